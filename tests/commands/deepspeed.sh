# vitrain options --deepspeed: DeepSpeed's JSON as a configuration.

convert() { "$VITRAIN" options --deepspeed=ds.json; }

# Every key that has a counterpart, and those without effect; with a tab and without blanks, as JSON may have.
whole() {
    cat >ds.json <<'JSON'
{
	"train_batch_size": 64,"train_micro_batch_size_per_gpu":4,
  "gradient_accumulation_steps": 2, "steps_per_print": 100, "gradient_clipping": 0.5,
  "wall_clock_breakdown": false, "zero_allow_untested_optimizer": true, "prescale_gradients": false,
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 15, "loss_scale_window": 500, "hysteresis": 3,
           "consecutive_hysteresis": true, "min_loss_scale": 2},
  "bf16": {"enabled": false}, "flops_profiler": {"enabled": false, "anything": [1, 2]}, "nebula": {"enabled": false, "x": 1},
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.05}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000, "warmup_num_steps": 50, "cos_min_ratio": 0.0}},
  "zero_optimization": {"stage": 2, "contiguous_gradients": true, "overlap_comm": true, "reduce_scatter": true,
                        "reduce_bucket_size": 1e7, "allgather_partitions": true, "allgather_bucket_size": 5e8,
                        "stage3_max_live_parameters": 1e9, "offload_optimizer": {"device": "none", "pin_memory": true}},
  "activation_checkpointing": {"partition_activations": false, "cpu_checkpointing": false}
}
JSON
}

test_every_key() {
    whole
    convert >mine.yaml 2>notes
    cat >expected <<'YAML'
base:
  global_batch_size: 64
  grad_accumulation: 2
  amp_mode: fp16
  loss_scale: 0
  loss_scale_power: 15
  loss_scale_window: 500
  loss_scale_hysteresis: 3
  loss_scale_refill: true
  loss_scale_min: 2
  optimizer: AdamW
  betas: [0.9, 0.98]
  eps: 1e-06
  weight_decay: 0.05
  lr: 0.0003
  lr_schedule: cosine
  warmup: 50
  num_iters: 1000
  grad_clip: 0.5
  log_every: 100
  zero_stage: 2
  bucket_cap_mb: 38.14697265625
  recompute: block
YAML
    diff mine.yaml expected
    grep 'no effect$' notes | sed 's/: no effect//' | sort >silent
    sort >expected <<'KEYS'
wall_clock_breakdown
zero_allow_untested_optimizer
prescale_gradients
flops_profiler.anything
flops_profiler.enabled
nebula.enabled
nebula.x
scheduler.params.cos_min_ratio
zero_optimization.contiguous_gradients
zero_optimization.overlap_comm
zero_optimization.reduce_scatter
zero_optimization.allgather_partitions
zero_optimization.allgather_bucket_size
zero_optimization.stage3_max_live_parameters
zero_optimization.offload_optimizer.device
zero_optimization.offload_optimizer.pin_memory
activation_checkpointing.partition_activations
KEYS
    diff silent expected
    contains "$(cat notes)" "means 8 data-parallel ranks"
    "$VITRAIN" layout --yaml_config=mine.yaml --ranks=8 >layout
}

# DeepSpeed's defaults are written where they are not those of vitrain.
test_defaults() {
    echo '{"train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": true}, "optimizer": {"type": "SGD", "params": {}}}' >ds.json
    says "loss_scale_power: 16" "loss_scale_window: 1000" "loss_scale_hysteresis: 2" "loss_scale_refill: false" "loss_scale_min: 1" \
        "optimizer: SGD" "momentum: 0" "nesterov: false" "weight_decay: 0" "lr: 0.001" "grad_clip: 1" "zero_stage: 0" -- convert
    convert 2>&1 >mine.yaml | grep -q -e '--local_batch_size=8'
    refuted grep -q batch mine.yaml
    "$VITRAIN" layout --yaml_config=mine.yaml --ranks=2 --local_batch_size=8 >layout
    echo '{"train_batch_size": 8, "gradient_clipping": 0, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": true}, "fp16": null}' >ds.json
    says "amp_mode: bf16" "optimizer: AdamW" "betas: [0.9, 0.999]" "eps: 1e-08" "weight_decay: 0" "grad_clip: None" -- convert
    echo '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}}' >ds.json
    says "optimizer: Adam" "weight_decay: 0.1" "amp_mode: none" -- convert
    refuted grep -q AdamW <<<"$output"
    echo '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"torch_adam": true}}}' >ds.json
    says "optimizer: AdamW" "weight_decay: 0.01" -- convert
    echo '{"train_batch_size": 8, "activation_checkpointing": {"cpu_checkpointing": true}}' >ds.json
    says "recompute: block" "offload_activations: host" -- convert
    echo '{"train_batch_size": 8, "activation_checkpointing": {"cpu_checkpointing": false}}' >ds.json
    says "recompute: block" -- convert
    refuted contains "$output" offload
}

# With a loss scale for good, fp16's other settings have no effect there nor here.
test_loss_scale_for_good() {
    echo '{"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 40, "hysteresis": 3}}' >ds.json
    convert >mine.yaml 2>notes
    contains "$(cat mine.yaml)" "loss_scale: 128"
    refuted grep -q loss_scale_ mine.yaml
    contains "$(cat notes)" "fp16's other settings have no effect"
    "$VITRAIN" layout --yaml_config=mine.yaml --ranks=1 >layout
}

# refuses_json JSON PART...: ds.json with these keys beside the batch.
refuses_json() {
    echo "{\"train_batch_size\": 8, $1}" >ds.json
    shift
    refuses "$@" -- convert
    [ "$(printf '%s\n' "$output" | wc -l)" -eq 1 ] || { echo "$output"; return 1; }
}

# Keys that have no effect with one value alone.
test_harmless_values() {
    local keys=(prescale_gradients sparse_gradients fp16.auto_cast fp16.fp16_master_weights_and_grads zero_optimization.cpu_offload
        zero_optimization.offload_{optimizer,param}.device optimizer.params.{bias_correction,amsgrad,maximize,dampening}
        scheduler.params.{warmup_min_ratio,cos_min_ratio,warmup_type})
    sections() { # SWITCH SWITCH DEVICE NUMBER WORD: one section a line
        cat <<JSON
"prescale_gradients": $2
"sparse_gradients": $2
"fp16": {"enabled": true, "auto_cast": $2}
"fp16": {"enabled": true, "fp16_master_weights_and_grads": $2}
"zero_optimization": {"cpu_offload": $2}
"zero_optimization": {"offload_optimizer": {"device": "$3"}}
"zero_optimization": {"offload_param": {"device": "$3"}}
"optimizer": {"type": "Adam", "params": {"bias_correction": $1}}
"optimizer": {"type": "Adam", "params": {"amsgrad": $2}}
"optimizer": {"type": "SGD", "params": {"maximize": $2}}
"optimizer": {"type": "SGD", "params": {"dampening": $4}}
"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": $4}}
"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": $4}}
"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "$5"}}
JSON
    }
    sections true false none 0.0 linear >with
    sections false true cpu 0.1 log >without
    for i in "${!keys[@]}"; do
        echo "{\"train_batch_size\": 8, $(sed -n $((i + 1))p with)}" >ds.json
        convert >mine.yaml 2>notes
        contains "$(cat notes)" "${keys[i]}: no effect"
        refuses_json "$(sed -n $((i + 1))p without)" "${keys[i]}"
    done
}

test_what_is_refused() {
    refuses_json '"zero_optimization": {"offload_optimizer": {"device": "cpu"}}' "ds.json:1:79: zero_optimization.offload_optimizer.device: vitrain keeps" "split them over more ranks"
    refuses_json '"zero_optimization": {"offload_param": {"device": "nvme"}}' "remove offload_optimizer and offload_param"
    refuses_json '"activation_checkpointing": {"cpu_checkpointing": 1}' "cpu_checkpointing"
    refuses_json '"activation_checkpointing": true' "activation_checkpointing is the text 'true'; expected an object"
    refuses_json '"fp16": true' "ds.json:1:33: fp16 is the text 'true'; expected an object with its settings"
    refuses_json '"optimizer": {"params": {"lr": 1e-3}}' "optimizer is a mapping; expected an object with type Adam, AdamW or SGD"
    refuses_json '"scheduler": {"params": {}}' "expected an object with type WarmupCosineLR"
    refuses_json '"train_batch_size": 16' "ds.json:1:25: the key train_batch_size stands twice"
    refuses_json '"zero_optimization": {"stage": 4}' "zero_stage"
    refuses_json '"zero_optimization": {"stage": "auto"}' "zero_optimization.stage is \"auto\"" "write the value itself"
    refuses_json '"optimizer": {"type": "OneBitAdam", "params": {"lr": 1}}' "optimizer.type is the text 'OneBitAdam'; expected Adam, AdamW or SGD"
    refuses_json '"optimizer": {"type": "Adam", "params": {"amsgrad": true}}' "optimizer.params.amsgrad has no counterpart"
    refuses_json '"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}' "betas is a list; expected two numbers"
    refuses_json '"scheduler": {"type": "WarmupLR", "params": {}}' "scheduler.type is the text 'WarmupLR'; expected WarmupCosineLR"
    refuses_json '"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1}}' "cos_min_ratio has no counterpart"
    refuses_json '"fp16": {"enabled": true}, "bf16": {"enabled": true}' "fp16 and bf16 are both enabled"
    refuses_json '"fp16": {"enabled": 1}' "fp16.enabled is the text '1'; expected true or false"
    refuses_json '"gradient_clipping": -1' "gradient_clipping is the text '-1'; expected a number of at least 0"
    refuses_json '"compression_training": {"x": {"y": 1}}' "compression_training.x.y has no counterpart in vitrain and may change results"
    refuses_json '"train_micro_batch_size_per_gpu": 3' "train_batch_size 8 is not a multiple of train_micro_batch_size_per_gpu 3"
    refuses_json '"gradient_accumulation_steps": 1.5' "gradient_accumulation_steps is the text '1.5'; expected a whole number"
    echo '{"optimizer": {"type": "Adam"}}' >ds.json
    refuses "neither train_batch_size nor train_micro_batch_size_per_gpu" -- convert
    echo '[1, 2]' >ds.json
    refuses "ds.json:1:1:" "DeepSpeed's settings" -- convert
    echo '{"train_batch_size": 8' >ds.json
    refuses "ds.json:" -- convert
    refuses "nowhere.json" -- "$VITRAIN" options --deepspeed=nowhere.json
    refuses "give one" -- "$VITRAIN" options --deepspeed=ds.json --man
}
