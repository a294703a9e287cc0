# Runs that change their layout: resumed on other numbers of ranks, and on the same ones to the bit; exported parameters.

needs_mpi
synth --img_size=[12,20] # 15 tokens, which two ranks split into 8 and 7
SMALL="$SMALL --img_size=[12,20] --num_heads=4 --dropout=0.1 --num_epochs=2 --keep_last=99"

test_resumed_on_other_layouts() {
    ranks 1 one
    ranks 8 eight --tensor_parallel=2 --context_parallel=2 --checkpoint_every=5
    ranks 1 alone --resume="$(step_of eight 5)" --checkpoint_every=8
    ranks 4 four --tensor_parallel=4 --resume="$(step_of alone 8)" --checkpoint_every=11
    ranks 2 two --zero_stage=3 --resume="$(step_of four 11)"
    contains "$(cat two.printed)" "resuming from $(step_of four 11): step 11, epoch 2"
    contains "$(cat eight.printed)" "tensor 2 × context 2 × data 2"
    [ "$(ls "$(step_of eight 5)" | grep -c '^shard-0000[0-7]-of-00008.h5$')" -eq 8 ]
    as_promised <(figures_of eight | head -n 5; figures_of alone | head -n 3; figures_of four | head -n 3; figures_of two) <(figures_of one)
    near <(validations eight | head -n 1; validations two) <(validations one) 1e-5
    near <(validations alone) <(validations one) 1e-5
    # the learning rate and the figures of the whole eight-rank run, too
    as_promised <(figures_of eight) <(figures_of one)
}

test_resumed_on_the_same_layout() {
    same_bits 4 --tensor_parallel=2 --context_parallel=2 --sequence_parallel=true
    same_bits 4 --zero_stage=3 --amp_mode=bf16
    same_bits 8 --tensor_parallel=2 --context_parallel=2 --zero_stage=2 --cp_comm=ring
    same_bits 2 --zero_stage=1 --grad_accumulation=2 --recompute=block
}

# As with Adam, each optimizer's numbers and state are those of one rank, whatever the layout.
long_other_optimizers_on_layouts() {
    local options
    for options in "--optimizer=SGD --momentum=0 --lr=0.05" "--optimizer=SGD --momentum=0.95 --nesterov --lr=0.01" \
        "--optimizer=AdamW --betas=0.8,0.999 --eps=1e-6" "--optimizer=Adam8bit --embed_dim=32 --lr=1e-4" \
        "--optimizer=Adafactor --adafactor_beta1=0.9 --lr=1e-2"; do
        rm -rf one four two
        ranks 1 one $options
        ranks 4 four $options --tensor_parallel=2 --zero_stage=3 --checkpoint_every=5
        ranks 2 two $options --zero_stage=1 --resume="$(step_of four 5)"
        as_promised <(figures_of four) <(figures_of one)
        as_promised <(figures_of four | head -n 5; figures_of two) <(figures_of one)
    done
    same_bits 2 --optimizer=SGD --momentum=0 --zero_stage=2
    same_bits 4 --optimizer=AdamW8bit --embed_dim=32 --tensor_parallel=2 --zero_stage=3 --amp_mode=fp16
    same_bits 4 --optimizer=Muon --tensor_parallel=2 --zero_stage=3 --amp_mode=fp16
    same_bits 4 --optimizer=Adafactor --tensor_parallel=2 --zero_stage=3 --amp_mode=fp16
    same_bits 2 --optimizer=SGD --nesterov --zero_stage=3 --amp_mode=fp16 --loss_scale_hysteresis=2
}

# Other orders of summation, of 2^-24 each, change the direction of some roundings to bfloat16, of 2^-8 each.
test_bfloat16_on_layouts() {
    local more="--grad_accumulation=2" name
    losses_of() { figures_of "$1" | cut -d, -f1,2; }
    ranks 1 wide $more
    more="$more --amp_mode=bf16"
    ranks 1 one $more
    ranks 4 a $more --tensor_parallel=2 --context_parallel=2 --sequence_parallel=true
    ranks 4 b $more --tensor_parallel=4 --recompute=block
    ranks 4 c $more --context_parallel=2 --cp_comm=ring --zero_stage=3
    for name in a b c; do as_in_16_bits <(losses_of wide) <(losses_of one) <(losses_of $name) || { echo "layout $name"; return 1; }; done
}

# Every tensor of a .safetensors file: "name, number" a line; without attn.k.bias, whose gradient is rounding noise.
numbers() {
    local length header
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    header=$(tail -c +9 "$1" | head -c "$length")
    printf '%s' "$header" | grep -oE '"[^"]*":\{"dtype":"F32"[^}]*\}' | grep -v attn.k.bias |
        sed -E 's/"([^"]*)":.*"data_offsets":\[([0-9]*),([0-9]*)\].*/\1 \2 \3/' | sort | while read -r name first end; do
        od -An -v -w4 -t f4 -j $((8 + length + first)) -N $((end - first)) "$1" | sed "s/^ */$name /"
    done
}

test_export_of_many_shards() {
    ranks 1 one --checkpoint_every=5
    ranks 8 eight --tensor_parallel=2 --context_parallel=2 --zero_stage=1 --checkpoint_every=5
    "$VITRAIN" export "$(step_of one 5)" --output=one.safetensors >/dev/null
    "$VITRAIN" export "$(step_of eight 5)" --output=eight.safetensors >/dev/null
    numbers one.safetensors >one.numbers
    numbers eight.safetensors >eight.numbers
    [ "$(wc -l <one.numbers)" -gt 5000 ]
    # norm of the difference over norm, tensor by tensor
    paste -d' ' one.numbers eight.numbers | awk '
        $1 != $3 { print "other names: " $0; bad = 1 }
        { square[$1] += $2 * $2; difference[$1] += ($4 - $2) ^ 2 }
        END { for (name in square) if (!(difference[name] <= 1e-8 * square[name])) { print name, sqrt(difference[name] / square[name]); bad = 1 }
              exit bad }'
    # reading and writing with another layout keeps the bits: at learning rate 0 nothing changes
    ranks 8 again --tensor_parallel=2 --context_parallel=2 --zero_stage=3 --lr=0 --resume="$(step_of one 5)"
    "$VITRAIN" export "$(step_of again 14)" --output=again.safetensors >/dev/null
    cmp one.safetensors again.safetensors
}

# A shard that only its own rank reads.
test_damage_that_another_rank_finds() {
    ranks 2 two --zero_stage=3
    truncate -s -100 "$(step_of two 14)/shard-00001-of-00002.h5"
    ranks 2 two --zero_stage=3 --num_epochs=3 --resume
    contains "$(cat two.printed)" "WARNING - rank 1 on $(hostname): $(step_of two 14)/shard-00001-of-00002.h5 has"
    contains "$(cat two.printed)" "; going back to an older checkpoint" "resuming from $(step_of two 7): step 7, epoch 2"
}
