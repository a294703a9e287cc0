# The reader from outside: its messages, faults of files while they are in use, benchy, bench io.

SMALL="$SMALL --config=base --img_size=[8,16] --depth=1 --global_batch_size=4 --num_epochs=2"
make_data() { synth --img_size=[8,16] --steps_per_year=41 --valid_steps=9 "$@"; }

# with_eio COMMAND...: reads of the training file fail where EIO_OFFSET says
with_eio() { ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$(dirname "$VITRAIN")/tests/eio.so EIO_FILE=${EIO_FILE:-train/2001.h5} "$@"; }

make_data

test_every_reader_gives_the_same_bits() {
    make_data --force --compress=2 --chunk_times=4
    says "reading: past HDF5, 1 thread (num_data_workers is not set: the cores to spare)" "  Waited for data " -- train --run_num=auto
    says "reading: through HDF5, 0 threads: each step waits for its batch" -- train --run_num=serial --data_loader_config=pytorch --num_data_workers=0
    says "reading: past HDF5, 5 threads" -- train --run_num=many --data_loader_config=dali --num_data_workers=5 --prefetch=2
    says "reading: through HDF5, 3 threads" -- train --run_num=native --data_loader_config=native --num_data_workers=3
    for reader in "pytorch --num_data_workers=0" "dali --num_data_workers=5" "native --num_data_workers=2"; do
        says "cache: what was read stays in memory: " -- train --run_num=kept --cache=host --data_loader_config=$reader
        [ "$(figures auto)" = "$(figures kept)" ]
    done
    for run in serial many native; do [ "$(figures auto)" = "$(figures $run)" ]; done
}

# A user who asks for direct reads is warned of a file that only HDF5 can read; otherwise there is no warning.
test_files_that_only_hdf5_reads() {
    repack -l fields:CHUNK=1x3x8x16 -f fields:NBIT
    local why="data/train/2001.h5: 'fields' is compressed with 'nbit'"
    says "WARNING - data_loader_config asks to read past HDF5, but HDF5 has to read some files: $why" -- train --run_num=asked --data_loader_config=direct
    says "INFO - HDF5 reads what can't be read past it: $why" -- train --run_num=auto
    [ "$(figures auto)" = "$(figures asked)" ]
}

test_cache_on_two_ranks() {
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --run_num=none >log
    says " on each rank; " -- "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --run_num=kept --cache=host
    cmp <(cut -d, -f1-5 runs/base/2CPU/none/metrics.csv) <(cut -d, -f1-5 runs/base/2CPU/kept/metrics.csv)
    refuses "needs --device=cuda" -- train --cache=device
}

test_synthetic_needs_no_file() {
    train --data_dir=nowhere --data_loader_config=synthetic --limit_nsamples=12 --limit_nsamples_val=5 >log
    contains "$(cat log)" "reading: nothing; every batch is the same noise" "samples: 12 for training, 5 for validation; 2 epochs of 3 steps"
}

# A read error ends the run with a checkpoint of the last step; once the file is mended, it continues as if nothing had happened.
test_read_error() {
    size=$(stat -c %s data/train/2001.h5)
    train --run_num=whole >/dev/null
    EIO_OFFSET=$((size - 5000)) EIO_AFTER=2 fails 1 with_eio train --run_num=direct --num_data_workers=1
    contains "$output" "data/train/2001.h5: can't read 'fields' at time" "Input/output error"
    contains "$output" "with a checkpoint; with the data mended, the same command with --resume goes on from there"
    train --run_num=direct --num_data_workers=1 --resume >log
    [ "$(figures whole)" = "$(figures direct)" ]
    EIO_OFFSET=$((size - 5000)) fails 1 with_eio train --run_num=native --data_loader_config=native
    contains "$output" "data/train/2001.h5: can't read 'fields' at time"
    valid=$(stat -c %s data/valid/2002.h5)
    for reader in direct native; do
        EIO_FILE=valid/2002.h5 EIO_OFFSET=$((valid - 1500)) fails 1 with_eio train --run_num=valid --data_loader_config=$reader
        contains "$output" "data/valid/2002.h5: can't read 'fields' at time" "ending after step 10, with a checkpoint; with the data mended"
    done
    EIO_OFFSET=$((size - 5000)) with_eio train --run_num=skip --skip_bad_samples >log 2>&1
    [ "$(grep -c "WARNING - 2 samples of this epoch could not be read, and others took their place" log)" = 2 ]
}

# One warning in a run, though each of its epochs waits: no thread reads ahead of the steps, and the disk is slow.
test_waiting_is_reported_once() {
    EIO_SLEEP=5000 with_eio train --num_data_workers=0 --num_epochs=3 >log
    [ "$(grep -Ec 'Waited for data [1-9][0-9]' log)" = 3 ]
    [ "$(grep -c 'WARNING - the steps waited for data .* (said once a run)' log)" = 1 ]
}

test_broken_checksum() {
    repack -l fields:CHUNK=1x3x8x16 -f fields:SHUF -f fields:GZIP=1 -f fields:FLET
    size=$(stat -c %s data/train/2001.h5)
    printf '\377\000\377\000' | dd of=data/train/2001.h5 bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
    for reader in direct native; do
        refuses "data/train/2001.h5: " "at time " -- train --run_num=$reader --data_loader_config=$reader
        [ $reader = native ] || contains "$output" "its fletcher32 checksum is wrong"
        train --run_num=skip-$reader --data_loader_config=$reader --skip_bad_samples >log
        contains "$(cat log)" "WARNING - 2 samples of this epoch could not be read, and others took their place" "DONE ---- rank 0"
    done
    [ "$(figures skip-direct)" = "$(figures skip-native)" ]
}

test_file_changes_while_training() {
    cp data/train/2001.h5 whole.h5
    for change in cut grown; do
        cp whole.h5 data/train/2001.h5
        train --run_num=$change --num_epochs=100000 --checkpoint_every=0 --limit_nsamples_val=1 >log 2>&1 &
        wait_until has_lines 9 runs/base/1CPU/$change/metrics.csv
        [ $change = grown ] || truncate -s 20000 data/train/2001.h5
        [ $change = cut ] || echo more >>data/train/2001.h5
        got=0; wait $! || got=$?
        [ $got -eq 1 ]
        [ $change = grown ] || contains "$(cat log)" "cut short"
        [ $change = cut ] || contains "$(cat log)" "data/train/2001.h5 has grown while it was in use"
        grep -q "data/train/2001.h5.* time [0-9]" log
        contains "$(cat log)" "with a checkpoint; with the data mended"
        ls runs/base/1CPU/$change/checkpoints/* >/dev/null
    done
}

test_benchy() {
    BENCHY_OUTPUT=rates.json train --enable_benchy >log
    number='[0-9]+\.[0-9]{3}'
    grep SUMMARY log | sed 's/.* - INFO - //' >summary
    for line in "BENCHY::SUMMARY::IO" "BENCHY::SUMMARY:: SYNTHETIC" "BENCHY::SUMMARY::FULL"; do
        grep -Eqx "$line average trial throughput: $number \+/- $number" summary
    done
    [ "$(grep -o '"trials": \[[0-9.e+]*, [0-9.e+]*, [0-9.e+]*\]' rates.json | wc -l)" = 3 ]
    [ "$(wc -l <rates.json)" = 1 ] # the tutorial's script reads it line by line
    contains "$(cat rates.json)" '"batches_per_trial": 50' '"nranks": 1'
    contains "$(cat log)" "BENCHY::INFO::Message: Using default benchy configuration." "BENCHY::INFO::Message: Tests completed.... exiting."
    grep -Eq 'BENCHY::SYNTHETIC_WARMUP_0::Average Iteration Throughput: [0-9.e+]+$' log
    grep -Eq 'BENCHY::FULL_2::Trial Throughput: [0-9.e+]+$' log
    [ "$(grep -c 'BENCHY::IO_0::Iteration Throughput' log)" = 5 ]
    BENCHY_OUTPUT=nowhere/rates.json refuses "BENCHY_OUTPUT: can't write nowhere/rates.json: No such file or directory" -- train --enable_benchy
    refuted grep "Throughput" <<<"$output" # known before anything is measured
    ! python3 -c '' 2>/dev/null || python3 -c 'import json; d = json.load(open("rates.json")); assert len(d["FULL"]["trials"]) == 3 and len(d["IO"]["rates"][2]) == 50 and len(d["FULL"]["trial_time"]) == 3'
}

test_benchy_as_configured() {
    cat >benchy.yaml <<'YAML'
global: {report_freq: 2, output_filename: 'mine.json', output_dir: './', profiler_mode: none}
IO: {run_benchmark: False}
synthetic: {nbatches: 4, ntrials: 2, nwarmup: 0}
full: {nbatches: 3, ntrials: 1, nwarmup: null}
YAML
    BENCHY_CONFIG_FILE=benchy.yaml train --enable_benchy >log
    contains "$(cat log)" "Using benchy configuration file benchy.yaml." "Writing JSON output to ./mine.json."
    refuted grep "IO\|Profiling mode\|SYNTHETIC_WARMUP" log
    [ "$(grep -c 'SYNTHETIC_[01]::Iteration Throughput' log)" = 4 ]
    refuted grep '"IO"' mine.json
    BENCHY_OUTPUT=other BENCHY_CONFIG_FILE=benchy.yaml train --enable_benchy --run_num=b >/dev/null
    [ -s other.json ]
    sed -i 's/report_freq: 2/report_freq: 2, exit_after_tests: False/' benchy.yaml
    BENCHY_CONFIG_FILE=benchy.yaml train --enable_benchy --run_num=on >log
    contains "$(cat log)" "Tests completed...." "Time taken for epoch 1 is" "Time taken for epoch 2 is" "DONE ---- rank 0"
    refuted grep "exiting" log
    printf 'global: null\nIO: {run_benchmark: off}\nsynthetic: {run_benchmark: False}\nfull: {nbatches: 1, ntrials: 1, nwarmup: 0}\n' >short.yaml
    BENCHY_CONFIG_FILE=short.yaml train --enable_benchy --run_num=short >log
    [ "$(grep -c "BENCHY::SUMMARY::" log)" = 1 ]
    contains "$(cat log)" "BENCHY::SUMMARY::FULL" "Profiling mode single" "exiting"
    [ -s runs/base/1CPU/short/benchy_output.json ]
    echo "synthetic: {run_benchmark: None}" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:" "'None' is not a switch" -- train --enable_benchy
    echo "full: {batches: 3}" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:" "full.batches" "nbatches" -- train --enable_benchy
    echo "reader: null" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:1: reader is no section of benchy; expected global, IO" -- train --enable_benchy
    echo "IO: 3" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:" "IO is the text '3'; expected an object with its settings" -- train --enable_benchy
    echo "global: {profiler_mode: some}" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:" "profiler_mode" "single|all|none" -- train --enable_benchy
    echo "full: {nbatches: 0}" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:18: full.nbatches: 0 is out of range (expected 1 or more)" -- train --enable_benchy
    echo "full: {ntrials: [3]}" >bad.yaml
    BENCHY_CONFIG_FILE=bad.yaml refuses "bad.yaml:1:17: full.ntrials: found a list, expected 1 or more" -- train --enable_benchy
    BENCHY_CONFIG_FILE=none.yaml refuses "none.yaml" "No such file" -- train --enable_benchy
}

test_benchy_over_ranks() {
    needs_mpi
    BENCHY_OUTPUT=rates.json "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --enable_benchy >log
    [ "$(grep -c "BENCHY::SUMMARY::" log)" = 3 ]
    contains "$(cat rates.json)" '"ranks": 2'
    [ "$(grep -o '"trials": \[[0-9.e+]*, [0-9.e+]*, [0-9.e+]*\]' rates.json | wc -l)" = 3 ]
}

test_bench_io() {
    "$VITRAIN" bench io ${SMALL/--num_epochs=2/} --num_iters=20 --num_data_workers=2 >log
    contains "$(cat log)" "20 batches of 4 samples" "of the plain preads' samples/s"
    refuted grep inflating log
    says "the files hold 1.000 of the bytes delivered" -- "$VITRAIN" bench io ${SMALL/--num_epochs=2/} --global_batch_size=1 --rollout=3 --num_iters=4
    make_data --force --compress=2 --chunk_times=1
    "$VITRAIN" bench io ${SMALL/--num_epochs=2/} --num_iters=20 --num_data_workers=2 >log
    grep -Eqx "ratio +[0-9]+\.[0-9]+ of the samples/s of inflating alone, by as many threads" log
    grep -Eqx "ratio +[0-9]+\.[0-9]+ of the samples/s of inflating alone into as much memory as the reader fills, by as many threads" log
    refuses "vitrain bench io" -- "$VITRAIN" bench
}

# A chunk that only the second rank's rows need: both ranks replace the sample; and a fault on one rank saves on both.
test_faults_on_two_ranks() {
    needs_mpi
    repack -l fields:CHUNK=1x3x4x16 -f fields:FLET
    size=$(stat -c %s data/train/2001.h5)
    two="$TOP/tests/mpirun -np 2 $VITRAIN $SMALL"
    for layout in --context_parallel=2 --context_parallel=1; do
        ASAN_OPTIONS=detect_leaks=0 $two $layout --run_num=good >/dev/null 2>&1
        printf '\377\000\377\000' | dd of=data/train/2001.h5 bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
        ASAN_OPTIONS=detect_leaks=0 $two $layout --skip_bad_samples >log 2>&1
        [ "$(grep -c "WARNING - 2 samples of this epoch could not be read" log)" = 2 ]
        ASAN_OPTIONS=detect_leaks=0 fails any $two $layout --run_num=ends
        contains "$output" "its fletcher32 checksum is wrong" "with a checkpoint; with the data mended"
        [ "$(messages <<<"$output" | wc -l)" -eq 1 ]
        make_data --force
        repack -l fields:CHUNK=1x3x4x16 -f fields:FLET
    done
}
