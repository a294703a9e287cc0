# Training as a user runs it: log lines, files of a run, repeatability, and error messages.

SMALL="$SMALL --num_epochs=2"

# a line of the log that matches, without the time stamp
logged() {
    grep -Eq "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} - root - INFO - $1\$" "$2" ||
        { echo "no line like '$1' in:"; cat "$2"; return 1; }
}

refused() { # PART COMMAND...: fails with one line that holds PART, and leaves no run directory
    local part=$1; shift
    refuses "$part" -- "$@"
    [ ! -e $RUNS/00/metrics.csv ] || { echo "a run directory was left"; return 1; }
}

synth

test_log_lines_and_files() {
    train >printed
    local run=$RUNS/00
    cmp -s <(tail -n +1 printed) $run/out.log || { echo "out.log is not what was printed"; return 1; }
    logged 'Starting Training Loop\.\.\.' printed
    logged 'Scaffolding memory high watermark: [0-9]+\.[0-9]{4} GB\.' printed
    logged ' Memory usage after forward pass: [0-9]+\.[0-9]{4} GB\.' printed
    # what is there at the start is there in the first epoch, too
    sed -n 's/.*\(watermark\|pass\): \([0-9.]*\) GB\.$/\2/p' printed | head -n 2 | tr '\n' ' ' | awk '{ exit !($1 > 0.005 && $1 <= $2) }'
    logged 'Time taken for epoch 2 is [0-9]+\.[0-9]{6} sec, avg [0-9]+\.[0-9]{6} samples/sec' printed
    logged '  Avg train loss=[0-9]\.[0-9]{6}' printed
    logged '  Avg val loss=[0-9]\.[0-9]+' printed
    logged '  Total validation time: [0-9.e-]+ sec' printed
    logged 'DONE ---- rank 0' printed
    logged 'patch_embed\.proj\.weight +\[16, 3, 4, 4\] +\[16, 3, 4, 4\] +3072' printed
    [ "$(grep -c 'Memory usage' printed)" -eq 2 ]
    [ "$(head -n 1 $run/metrics.csv)" = step,epoch,loss,learning_rate,grad_norm,samples_per_sec,data_wait_fraction ]
    [ "$(wc -l <$run/metrics.csv)" -eq 15 ] # 60 samples: 7 steps an epoch
    tail -n 1 $run/metrics.csv | grep -Eq '^14,2,'
    [ -s $run/config.yaml ]
    [ "$(head -c 8 $run/logs/events.out.tfevents.* | od -An -tu8 | tr -d " ")" = 24 ] # the length of the first record
    [ "$(ls $run/images)" = "$(printf 'epoch-0001.png\nepoch-0002.png')" ]
    [ "$(head -c 8 $run/images/epoch-0002.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ]
}

# About ten lines say what matters; then the configuration and the parameters, which are also in files.
test_log_opens_with_what_matters() {
    train --limit_nsamples=16 --lr=1e-3 | sed 's/^.* - root - INFO - //' >printed
    sed '/--- Configuration ---/,$d' printed >opening
    [ "$(wc -l <opening)" -le 12 ]
    for line in "configuration: 'demo' of $TOP/config/ViT.yaml, with .* --lr=0.001.*" \
        "data: data/train and data/valid: 3 channels (u10 v10 t2m) on 16×32 points" \
        "limit_nsamples: the first 16 of 60 samples in time order: 2001-01-01 00:00 to 2001-01-04 18:00" \
        "samples: 16 for training, 12 for validation; 2 epochs of 2 steps" \
        "model: 8656 parameters: embed_dim 16, depth 2, 2 heads, 32 tokens of 4×4 points" \
        "training: batches of 8, Adam, learning rate 0.001 (falls to 0 as a cosine), float32" \
        "computing on: CPU.*" "memory the run needs: .*" \
        "run directory: $RUNS/00 (all options in config.yaml, all tensors in parameters.csv)"; do
        grep -qx "$line" opening || { echo "no line like '$line' in:"; cat opening; return 1; }
    done
    refuted grep limit_nsamples_val: opening
    grep -qx 'name,global_shape,local_shape,bytes' $RUNS/00/parameters.csv
    grep -qx 'patch_embed.proj.weight,16x3x4x4,16x3x4x4,3072' $RUNS/00/parameters.csv
    [ "$(awk -F, 'NR > 1 { sum += $4 } END { print sum / 4 }' $RUNS/00/parameters.csv)" = 8656 ]
}

# TensorBoard's picture is the file's, but of a wind, which the file draws from blue over white to red, and TensorBoard in turbo's colours.
test_pictures() {
    hex() { od -An -v -tx1 "$@" | tr -d ' \n'; }
    in_events() { hex $RUNS/$1/logs/events.out.tfevents.* >events; grep -qF "$(hex $RUNS/$1/images/epoch-0001.png | cut -c1-20000)" events; }
    train --num_epochs=1 >/dev/null # t2m
    in_events 00
    train --num_epochs=1 --n_out_channels=1 --run_num=wind >/dev/null # u10
    refuted in_events wind
}

# In fp16 the losses are float32's to its precision; the loss scale goes into the checkpoint and on from there; a step
# that overflows is left out, the scale halved, and the run goes on.
test_half_precision_scales_the_loss() {
    losses() { figures "$1" | cut -d, -f1,3; }
    train --run_num=wide >/dev/null
    train --amp_mode=bf16 --run_num=eight >/dev/null
    train --amp_mode=fp16 >/dev/null
    # bf16's distance from float32 is measured; fp16 rounds less
    as_in_16_bits <(losses wide) <(losses eight) <(losses 00)
    train --amp_mode=fp16 --run_num=halves --checkpoint_every=3 --num_epochs=1 >/dev/null
    train --amp_mode=fp16 --run_num=halves --resume --num_epochs=2 >/dev/null
    "$VITRAIN" inspect $RUNS/halves >/dev/null
    train --amp_mode=fp16 --run_num=overflows --lr=1e3 --optimizer=SGD >printed 2>&1 || true
    grep -Eq 'the gradients are not finite in fp16 .*the loss scale is 32768 from here on' printed ||
        { cat printed; return 1; }
    # the first overflow is tolerated; and one at the limit of the scale ends the run
    train --amp_mode=fp16 --run_num=tolerant --loss_scale_hysteresis=2 --lr=1e3 --optimizer=SGD >printed 2>&1 || true
    grep -m 1 'not finite in fp16' printed | grep -q 'the loss scale is 65536 from here on' || { cat printed; return 1; }
    refuses "has reached loss_scale_min" -- train --amp_mode=fp16 --run_num=limit --loss_scale_min=65536 --lr=1e3 --optimizer=SGD
    # a NaN has no sign; and the means of --log_every leave such steps out, as the epoch's does
    train --amp_mode=fp16 --run_num=diverges --lr=1e4 --log_every=7 --num_epochs=3 >printed 2>&1 || true
    grep -q 'not finite in fp16 (loss nan' printed && ! grep -e -nan printed $RUNS/diverges/*.csv
    paste <(sed -n 's/.* - step .*: loss \([^,]*\), grad.*/\1/p' printed) <(sed -n 's/.*Avg train loss=//p' printed) |
        tee means | awk '$1 != $2 { print "means " $0; exit 1 }'
    [ "$(wc -l <means)" -ge 1 ]
}

test_a_run_repeats_its_bits_from_its_own_config() {
    train --dropout=0.1 >/dev/null
    "$VITRAIN" --yaml_config=$RUNS/00/config.yaml --config=demo --run_num=again >/dev/null
    cmp <(figures 00) <(figures again)
    train --dropout=0.1 --run_num=serial --data_loader_config=pytorch --num_data_workers=0 >/dev/null
    cmp <(figures 00) <(figures serial)
    train --dropout=0.1 --run_num=seed --seed=1 >/dev/null
    refuted cmp <(figures 00) <(figures seed)
}

test_every_instruction_set_gives_the_same_loss() {
    for isa in plain baseline auto; do
        train --cpu_isa=$isa --run_num=$isa >/dev/null
    done
    for isa in plain baseline; do
        paste -d, <(cut -d, -f3 $RUNS/$isa/metrics.csv) <(cut -d, -f3 $RUNS/auto/metrics.csv) |
            awk -F, 'NR > 1 { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-5) { print NR, $0; bad = 1 } } END { exit bad }'
    done
}

test_auto_is_what_the_environment_says() {
    train --num_epochs=1 --cpu_isa=plain --run_num=plain >/dev/null
    says ", plain" -- env VITRAIN_CPU_ISA=plain "$VITRAIN" $SMALL --num_epochs=1 --run_num=said
    cmp <(figures plain) <(figures said)
    refuses_once "VITRAIN_CPU_ISA is 'avx9', expected plain, baseline, avx2, avx512, bf16 or amx, or nothing" -- \
        env VITRAIN_CPU_ISA=avx9 "$VITRAIN" $SMALL
    VITRAIN_CPU_ISA=avx9 train --num_epochs=1 --cpu_isa=plain --run_num=fixed >/dev/null # only auto asks
    says ", plain" -- env VITRAIN_CPU_ISA= "$VITRAIN" $SMALL --num_epochs=1 --cpu_isa=plain --run_num=empty
}

test_length_of_a_run() {
    SMALL=${SMALL/--num_epochs=2/}
    says "num_iters 3 is less than an epoch of 7 steps: training for 3 steps" -- train --num_iters=3
    [ "$(wc -l <$RUNS/00/metrics.csv)" -eq 4 ]
    says "num_iters 20 makes 2 whole epochs, 14 steps" -- train --num_iters=20
}

test_flags_without_effect_are_reported() {
    says "disable_broadcast_buffers has no effect" -- train --num_epochs=1 --disable_broadcast_buffers
    says "WARNING - Adafactor's learning rate is 0.5, a share of the weights' own size; 1e-2 is usual" \
        -- train --num_epochs=1 --optimizer=Adafactor --lr=0.5
    cores=$(nproc)
    says "WARNING - --local_batch_size=0 counts as not given" "WARNING - the warm-up of 99 steps is not shorter than the run, which has 7" \
        "WARNING - zero_stage 3 has no effect" "WARNING - the run ends before its last rollout, 2 steps from epoch 25 on: it has 1 epoch" \
        "WARNING - num_threads $((2 * cores)): this process has $cores core" "on 8×16 points of 16×32, from row 0 and column 0 on" \
        -- train --num_epochs=1 --local_batch_size=0 --warmup=99 --zero_stage=3 --rollout=1,2@24 --num_threads=$((2 * cores)) --img_size=[8,16]
    refuses "num_threads=$((5 * cores)): this process has $cores core" "so 1 to $((4 * cores)) are expected" -- train --num_threads=$((5 * cores))
    synth --channels=4 --force
    says "WARNING - n_in_channels 4 counts the channels of 2 times (n_history + 1), so the model sees 2 of the 4 channels that it forecasts; --n_in_channels=8" \
        -- train --num_epochs=1 --n_history=1 --n_in_channels=4 --n_out_channels=4
}

# The order that docs/data.md says is the one that was used, in both epochs, on one rank and on two.
test_order_of_samples() {
    needs python3 python3
    sed -n '/^## The order of samples/,/^## /{/^```python/,/^```$/p}' "$TOP/docs/data.md" | grep -v '^```' >order.py
    cat >>order.py <<'EOF'
import csv, sys
assert str(order(333, 0, 10)) in open(sys.argv[1]).read()
seed, samples, batch = map(int, sys.argv[2:5])
rows = [row for path in sys.argv[5:] for row in csv.DictReader(open(path))]
expected = {}
for epoch in range(2):
    for i, sample in enumerate(order(seed, epoch, samples)[:samples // batch * batch]):
        expected[epoch * (samples // batch) + i // batch + 1, epoch + 1, i % batch] = sample
used = {(int(row["step"]), int(row["epoch"]), int(row["position"])): int(row["sample"]) for row in rows}
assert len(rows) == len(used) and used == expected, (used, expected)
assert all(row["place"] == "data/train/2001.h5, time %s" % row["sample"] for row in rows)
EOF
    train --seed=98765432101 --sample_trace >/dev/null
    python3 order.py "$TOP/docs/data.md" 98765432101 60 8 $RUNS/00/logs/samples-0.csv
    refuted python3 order.py "$TOP/docs/data.md" 333 60 8 $RUNS/00/logs/samples-0.csv
    ln -s data 'da"ta'
    train --sample_trace --run_num=quoted --data_dir='da"ta' --num_epochs=1 >/dev/null
    grep -q ',"da""ta/train/2001.h5, time 5"$' $RUNS/quoted/logs/samples-0.csv
    # a run that is resumed in the middle of an epoch gives the same rows
    train --seed=98765432101 --sample_trace --run_num=parts --checkpoint_every=10 >/dev/null
    train --seed=98765432101 --sample_trace --run_num=parts --resume=$RUNS/parts/checkpoints/step-00000010 >/dev/null
    cmp $RUNS/00/logs/samples-0.csv $RUNS/parts/logs/samples-0.csv
    train --sample_trace --run_num=none --data_loader_config=synthetic --num_epochs=1 >/dev/null
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --sample_trace >/dev/null
    python3 order.py "$TOP/docs/data.md" 333 60 8 runs/demo/2CPU/00/logs/samples-[01].csv
}

# An earlier run stays whole, but TensorBoard, which looks for "tfevents" in the names of files, no longer shows it.
test_an_earlier_run_is_kept_and_hidden_from_tensorboard() {
    train --num_epochs=1 >/dev/null
    local logs=$RUNS/00/logs events
    events=$(basename $logs/events.out.tfevents.*)
    cp $logs/$events before
    says "an earlier run with this tag is now $RUNS/00.old-" -- train --num_epochs=1
    [ "$(ls -d $RUNS/00*/metrics.csv | wc -l)" -eq 2 ]
    local old=$RUNS/00.old-*
    old=$(echo $old)
    cmp before "$old/logs/events.out.old.${events#events.out.tfevents.}"
    [ "$(find runs -name '*tfevents*' | wc -l)" -eq 1 ]
    "$VITRAIN" report "$old" >/dev/null
    contains "$("$VITRAIN" watch "$old")" "epoch 1/1"
    contains "$("$VITRAIN" inspect "$old")" "state: ended"
}

test_profiles_that_cannot_be_recorded() {
    unset NVTX_INJECTION64_PATH
    train --num_epochs=1 >printed
    [ "$(grep -c "no profile is recorded" printed)" -eq 0 ]
    for flag in --enable_manual_profiling --profile_ranks=all --profile_graphs; do
        train --num_epochs=1 $flag >printed
        [ "$(grep -c "WARNING - $flag: no profile is recorded, because " printed)" -eq 1 ]
    done
    ENABLE_PROFILING=1 train --num_epochs=1 >printed
    contains "$(cat printed)" "ENABLE_PROFILING=1: no profile is recorded, because "
    grep -q "no profile is recorded, because .*\(was built without CUDA\|no profiler is attached\)" printed
}

test_missing_and_broken_data() {
    refused "data_dir 'nowhere': no such directory" train --data_dir=nowhere
    refused "patch_size 5 does not divide" train --patch_size=5
    refused "img_size" train --img_size=[16,64]
    refused "n_in_channels" train --n_in_channels=4
    refused "fewer than one batch (global_batch_size 64)" train --global_batch_size=64
    refused "train_data_path 'data/train/2001.h5'" train --train_data_path=data/train/2001.h5
    refused "global_means_path" train --global_means_path=data/nothing.npy
    head -c 3000 data/train/2001.h5 >short
    mv short data/train/2001.h5
    refused "data/train/2001.h5" train
    echo "not HDF5 at all" >data/train/2001.h5
    refused "data/train/2001.h5" train
}

test_a_directory_that_cannot_be_written() {
    : >file
    refused "can't make the directory file" train --expdir=file/below
    [ "$(id -u)" -ne 0 ] || skip "root may write everywhere"
    mkdir locked
    chmod 555 locked
    refused "Permission denied" train --expdir=locked
}

# A full disk, by a limit on the size of a file: writing fails after 1 KiB.
test_a_full_disk() {
    refuses "log_everything" -- bash -c "ulimit -f 1; exec '$VITRAIN' $(echo $SMALL) --log_everything=1" # an unknown flag comes first
    refuses "File too large" -- bash -c "ulimit -f 1; exec '$VITRAIN' $(echo $SMALL)"
    fails 1 bash -c "ulimit -f 14; exec '$VITRAIN' $(echo $SMALL) --checkpoint_every=0" # enough for all but the second picture
    contains "$output" "File too large" "can't write $RUNS/00/logs/events.out.tfevents."
}

test_a_failure_is_in_the_log() {
    refuses "the gradients are not finite" -- "$VITRAIN" $SMALL --optimizer=SGD --lr=1e6
    local line
    line=$(tail -n 1 $RUNS/00/out.log)
    contains "$output" "vitrain: ${line#* - root - ERROR - }"
    contains "$line" "the gradients are not finite"
}

test_ncep_from_real_data() {
    local data=${VITRAIN_NCEP:-$TOP/../shared/data/ncep_air6h}
    [ -d "$data" ] || skip "no real data in ${VITRAIN_NCEP:-../shared/data/ncep_air6h} (VITRAIN_NCEP names it)"
    says "persistence (nothing changes) 0.1681" "air_sig995=" -- "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=ncep --data_dir="$data" --num_epochs=1 --expdir=runs
    awk -F, 'END { exit !($3 < 0.3) }' runs/ncep/1CPU/00/metrics.csv
}

test_log_every() {
    train --log_every=5 >printed
    logged 'step 10: loss [0-9]\.[0-9]{6}, gradient norm [0-9.e-]+, learning rate [0-9.e-]+, [0-9.]+ samples/sec' printed
    [ "$(grep -c ' - step ' printed)" -eq 2 ] # 14 steps
    train --run_num=plain >printed
    [ "$(grep -c ' - step ' printed)" -eq 0 ]
    cmp <(figures 00) <(figures plain)
}

test_memory_is_known_beforehand() {
    needs_kernels
    ! grep -q __asan_init "$VITRAIN" || skip "AddressSanitizer takes memory of its own"
    train --num_epochs=1 --limit_nsamples=16 >small
    train --num_epochs=1 --limit_nsamples=16 --embed_dim=256 --depth=8 --patch_size=2 --run_num=large >large
    takes_what_is_known small large
}

test_a_run_that_cannot_fit_is_refused_at_once() {
    refused "of memory (parameters" timeout $HANG "$VITRAIN" $SMALL --embed_dim=512 --depth=1000 --patch_size=1 --global_batch_size=48
    for setting in recompute=block patch_size=2; do contains "$output" " --$setting saves"; done
    # where the parameters are too many, the activations' settings would not help
    refused "of memory (parameters" timeout $HANG "$VITRAIN" $SMALL --embed_dim=16384 --depth=200
    contains "$output" "are free. --embed_dim=8192 saves"
}

# Two runs with one tag at once: the second is refused, the first goes on undisturbed.
test_a_running_run_is_left_alone() {
    "$VITRAIN" $SMALL --num_epochs=100000 --checkpoint_every=0 >going 2>&1 &
    local first=$!
    wait_until grep "Starting Training Loop" going
    fails 1 train
    kill -TERM $first
    wait $first || [ $? -eq 75 ]
    contains "$output" "a run is still going in $RUNS/00; give this one another --run_num"
    [ "$(ls -d $RUNS/*)" = $RUNS/00 ]
}

# OpenMP then keeps the first thread on one core before main begins; the program still knows of all.
test_bound_threads_have_all_cores() {
    local bind
    for bind in false true; do
        env -u OMP_NUM_THREADS -u GOMP_SPINCOUNT OMP_PLACES=threads OMP_PROC_BIND=$bind \
            "$VITRAIN" $SMALL --num_epochs=1 --run_num=$bind >log.$bind 2>&1
        grep -Eo "CPU, [0-9]+ thread" log.$bind >threads.$bind
    done
    cmp threads.false threads.true
}
