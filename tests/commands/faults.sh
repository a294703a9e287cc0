# A run that survives: crashes, failing calls, memory that runs out, numbers that are not finite, long runs. Some of what
# `make faults` does in full; docs/reliability.md says what each shows.

export SHIM="$(dirname "$TESTS")/fault_shim.so"
fault() { "$TOP/tests/faults/$@"; }

test_killed_six_times() { fault crash 6; }
long_killed_fifty_times() { fault crash 50; }
test_killed_while_checkpoints_are_written() { MORE=--async_checkpoint fault crash 6; }
test_every_kind_of_failing_call() { fault io 240; }
long_every_kind_of_failing_call() { fault io 20; }
test_every_kind_of_failing_call_beside_the_steps() { MORE=--async_checkpoint fault io 360; }
test_memory_that_runs_out() { fault memory 97 997; }
# Models × axes of ranks × how checkpoints are written: three of the thirty, then five more.
test_other_kinds_of_runs_are_killed() { needs_mpi; fault kinds 2 0 0 11 3; }
long_other_kinds_of_runs_are_killed() { needs_mpi; fault kinds 2 0 0 7 1; }
long_calls_that_fail_with_a_language_model() { MODEL=language MORE=--async_checkpoint fault io 240; }
test_calls_that_fail_on_a_zarr_store() { fault zarr 5; }
# Each memory request of the rarer paths of a short run: it ends with a message, not in a crash.
test_memory_that_runs_out_elsewhere() {
    export FAULT_REPORT=$PWD/report
    can_refuse_memory
    local n
    for part in unit/safetensors/what_the_package_writes unit/choices/choices_as_text; do
        for n in $(seq 100); do
            rm -f report
            output=$(cd "$TOP" && FAULT_CALLS=own-memory FAULT_AT=$n LD_PRELOAD=$SHIM "$TESTS" $part 2>&1) || true
            case $(head -n 1 report) in count*) break ;; esac
            says_once "vitrain: out of memory: could not get "
            refuted grep '^crash' report
        done
        [ "$n" -gt 5 ]
        [ "$n" -lt 100 ]
    done
}
long_memory_and_open_files_stay_flat() {
    ! grep -q __asan_init "$VITRAIN" || skip "AddressSanitizer keeps what was freed"
    fault long 20000
}

. "$TOP/tests/faults/common"

test_a_shim_that_is_not_loaded_is_noticed() {
    can_preload
    for name in "crash 20" "io 20" "memory 97 997"; do
        SHIM=/nowhere.so refuses "/nowhere.so was not loaded" -- timeout $HANG "$TOP/tests/faults/"$name
    done
}

# A run that is killed behind its last checkpoint: --resume makes it what it would have been, once.
test_killed_behind_the_last_checkpoint() {
    can_preload
    tiny_data
    cp -r data/valid data/test
    local run=runs/demo/1CPU/00 more kill calls n
    SMALL="$SMALL --num_epochs=3 --keep_last=1 --comm_trace"
    with_fault() { env FAULT_CALLS=$calls FAULT_BELOW="$PWD/$run/checkpoints" FAULT_REPORT="$PWD/report" LD_PRELOAD="$SHIM" "$@" "$VITRAIN" $SMALL $more >/dev/null; }
    left() { # the last end that the log has, and the files
        sed -n 's/.*root - INFO - //p' $run/out.log | awk '/^DONE ----/ { end = "" } { end = end $0 "\n" } END { printf "%s", end }'
        ls $run/checkpoints
        readlink $run/checkpoints/best
        cut -d, -f1-5 $run/metrics.csv $run/epochs.csv
        cut -d, -f1-4 $run/logs/comm-0.csv
    }
    ends_once() {
        says "all steps are done, but the run died before the end of its log" "Final test loss: " -- train $more --resume
        left | diff expected - || { echo "$1"; return 1; }
        says "the run is finished: 3 epochs are done" -- train $more --resume
        says "the run is finished: 3 epochs are done" -- train $more --num_epochs=2 --resume
        [ "$(grep -c '; run directory ' $run/out.log)" -eq 1 ]
    }
    for more in "" --async_checkpoint; do
        for kill in rename-1 rename-0 rmdir-0; do # before `best` is renamed, and the checkpoint that goes; in its removal
            calls=${kill%-*}
            rm -rf runs report
            with_fault env
            left >expected
            n=$(($(sed 's/count //' report) - ${kill#*-}))
            rm -rf runs
            fails 137 with_fault env FAULT_AT=$n FAULT_ERROR=kill
            ends_once "$more $(cat report)"
        done
    done
    rm -rf runs
    train >/dev/null
    left >expected
    mv runs whole
    for n in 1 2 3 4; do # before each of the last lines
        rm -rf runs
        cp -r whole runs
        head -n -$n whole/demo/1CPU/00/out.log >$run/out.log
        ends_once "$n lines"
    done
}

# On a file system without symbolic links `best` is a file, which every command follows.
test_best_without_links() {
    can_preload
    tiny_data
    local kept=runs/demo/1CPU/00/checkpoints first path
    without_links() { env FAULT_CALLS=symlink,symlinkat FAULT_ERROR=EPERM FAULT_AT=1 FAULT_STICKY=1 LD_PRELOAD="$SHIM" "$VITRAIN" $SMALL "$@"; }
    without_links --num_epochs=3 --keep_last=1 >printed
    [ "$(grep -c 'WARNING.*link' printed)" -eq 1 ] || { cat printed; return 1; }
    contains "$(grep 'WARNING.*link' printed)" "can't make the link $kept/best.tmp: Operation not permitted; $kept/best is now a file"
    first=$(cat $kept/best)
    [ ! -L $kept/best ]
    without_links --num_epochs=5 --keep_last=1 --resume --lr=3 >/dev/null # worse: the best stays
    [ "$(cat $kept/best)" = "$first" ]
    [ -d $kept/$first ]
    says "best is $first" -- "$VITRAIN" inspect runs/demo/1CPU/00
    says "$kept/$first: a checkpoint" -- "$VITRAIN" inspect $kept/best
    for path in $kept/best runs/demo/1CPU/00 $kept; do
        says "parameters of $kept/$first" -- "$VITRAIN" export $path --output=model.safetensors --force
    done
    says "$kept/$first (step" -- "$VITRAIN" evaluate --checkpoint=$kept/best --rollout=1 --output=scores
    says "the parameters begin as those of $kept/$first" -- train --run_num=tuned --num_epochs=1 --init_from=$kept/best
    says "resuming from $kept/$first: " -- train --num_epochs=4 --resume=$kept/best --lr=1e-9
    [ -L $kept/best ] # here links can be made again
    rm $kept/best
    echo step-00000999 >$kept/best
    refuses "$kept/best names step-00000999, but there is no such checkpoint beside it" -- "$VITRAIN" export $kept/best --output=x.safetensors
}

# Parameters so large that the loss overflows: safetensors of the model with one weight at 3e38.
overflowing_model() {
    tiny_data
    train --num_epochs=1 >/dev/null
    "$VITRAIN" export "$(ls -d runs/demo/1CPU/00/checkpoints/step-* | tail -n 1)" --output=model.safetensors >/dev/null
    # the last four bytes are the last element of head.weight or norm's: NaN
    local size; size=$(stat -c %s model.safetensors)
    printf '\000\000\300\177' | dd of=model.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
    rm -rf runs
}

test_not_finite_stops_the_run() {
    overflowing_model
    refuses "step 1: the gradients are not finite (loss " ", first in " "sample data/train/2001.h5, time " -- train --num_epochs=2 --init_from=model.safetensors
    [ -z "$(ls runs/demo/1CPU/00/checkpoints 2>/dev/null)" ]
    [ "$(wc -l <runs/demo/1CPU/00/metrics.csv)" -eq 1 ]
}

test_not_finite_is_skipped_up_to_a_limit() {
    overflowing_model
    fails 1 train --num_epochs=9 --init_from=model.safetensors --on_nonfinite=skip --checkpoint_every=0
    contains "$output" "WARNING - step 3: the gradients are not finite (loss " "so its update was left out: skipped update 3 of this run, 3 in a row"
    contains "$output" "step 10: the gradients were not finite in 10 steps in a row"
    [ "$(wc -l <runs/demo/1CPU/00/metrics.csv)" -eq 11 ]
    # what is not finite is not saved
    refuses "is not finite, so no checkpoint was made" -- train --num_epochs=9 --init_from=model.safetensors --on_nonfinite=skip --checkpoint_every=1
    [ -z "$(ls runs/demo/1CPU/00/checkpoints 2>/dev/null)" ]
}

test_skipping_changes_nothing_else() {
    tiny_data
    train --num_epochs=2 >/dev/null
    train --num_epochs=2 --on_nonfinite=skip --run_num=skip >/dev/null
    cmp <(figures runs/demo/1CPU/00) <(figures runs/demo/1CPU/skip)
    cmp <(tensors runs/demo/1CPU/00) <(tensors runs/demo/1CPU/skip)
}

test_not_finite_over_ranks() {
    needs_mpi
    overflowing_model
    fails any "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --num_epochs=9 --init_from=model.safetensors --on_nonfinite=skip --checkpoint_every=0
    contains "$output" "step 10: the gradients were not finite in 10 steps in a row"
    [ "$(grep -c 'its update was left out' runs/demo/2CPU/00/out.log)" -eq 10 ]
}

# Too large for the machine: reported by category, with what would help, at once, on one rank and on two.
test_too_large_over_ranks() {
    needs_mpi
    tiny_data
    fails any timeout $HANG "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --embed_dim=32768 --depth=200
    contains "$output" "of memory (parameters " "are free. --embed_dim=16384 saves"
    [ "$(grep -c 'of memory (parameters' <<<"$output")" -eq 1 ]
    [ ! -e runs ]
}

# A small allocation that fails on one rank ends the job, even if the launcher lets the others live.
test_memory_that_one_rank_lacks() {
    needs_mpi
    can_refuse_memory
    tiny_data
    export OMPI_MCA_orte_abort_on_non_zero_status=0 OMPI_MCA_orte_allowed_exit_without_sync=1
    lacking() { # N: rank 1 is refused its N-th request. Of ranks that end by themselves mpirun hides the exit status here
        rm -f failed
        timeout $HANG "$TOP/tests/mpirun" -np 2 sh -c '"$@" || : >failed' - "$TOP/tests/faults/one_rank" 1 env FAULT_CALLS=own-memory \
            FAULT_AT="$1" FAULT_REPORT="$PWD/report" LD_PRELOAD="$SHIM" "$VITRAIN" $SMALL --num_epochs=1 && [ ! -e failed ]
    }
    lacking 0 >/dev/null 2>&1
    local count; count=$(sed -n 's/^count \([0-9]*\).*/\1/p' report)
    [ "$count" -ge 100 ]
    for part in 5 7 9; do # of tenths; before the first four there are no other ranks yet
        rm -rf runs
        fails any lacking $((count * part / 10))
        contains "$output" "vitrain: rank 1 on $(hostname): " "memory"
        [ "$(messages <<<"$output" | wc -l)" -eq 1 ] || { echo "$output"; return 1; }
    done
    # alone: in the log, too
    rm -rf runs
    export FAULT_CALLS=own-memory FAULT_REPORT="$PWD/alone"
    LD_PRELOAD="$SHIM" train --num_epochs=1 >/dev/null
    count=$(sed -n 's/^count \([0-9]*\).*/\1/p' alone)
    rm -r runs
    refuses "vitrain: out of memory: " -- env FAULT_AT=$((count * 95 / 100)) LD_PRELOAD="$SHIM" "$VITRAIN" $SMALL --num_epochs=1
    contains "$(tail -n 1 runs/demo/1CPU/00/out.log)" " - root - ERROR - out of memory: "
}

# A path in a checkpoint that leads out of its directory is not followed (tests/unit/tensor_file.c has more of them), and
# neither is a name of a configuration.
test_no_way_out_of_the_directory() {
    tiny_data
    for name in ../up a/b .. ''; do
        fails 1 train --num_epochs=1 --run_num="$name"
        [ ! -e runs ]
        [ ! -e up ]
    done
}

# Of each file of the data that the limit of open files keeps closed the message says so, and what to do.
test_the_limit_of_open_files() {
    can_preload
    tiny_data
    local n told=0
    export FAULT_CALLS=open,openat FAULT_BELOW=$PWD/data FAULT_ERROR=EMFILE FAULT_REPORT=$PWD/report
    for n in $(seq 40); do
        rm -rf report runs
        env FAULT_AT=$n LD_PRELOAD="$SHIM" "$VITRAIN" $SMALL --num_epochs=1 >printed 2>&1 || true
        case $(head -n 1 report) in count*) break ;; *.h5 | *.npy) ;; *) continue ;; esac
        refuted grep -q "damaged or cut short" printed
        grep -q '^vitrain: ' printed || continue # what failed was not needed
        contains "$(grep '^vitrain: ' printed)" "Too many open files; this process may have $(ulimit -n) open files: \`ulimit -n NUMBER\`"
        told=$((told + 1))
    done
    [ "$n" -lt 40 ]
    [ "$told" -ge 4 ] || { echo "$told of $n"; return 1; } # means, standard deviations, a file of each set
}
