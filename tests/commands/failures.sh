# A real run on four ranks when one of them fails, and how it ends early.

needs_mpi
synth --img_size=[12,20]
# notes each rank's process, and sources the file rank-N, which may add to the flags
cat >as_rank <<'END'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ >pid-$rank
[ ! -e rank-$rank ] || . ./rank-$rank
exec "$@"
END
chmod +x as_rank
SMALL="$SMALL --img_size=[12,20] --num_heads=4 --num_epochs=100000 --lr=1e-5 --expdir=$PWD/runs"
run_directory() { echo "$PWD"/runs/demo/*/00; }

# start [flags]: starts four ranks; the job's process is in $job
start() {
    rm -f pid-*
    "$TOP/tests/mpirun" -np 4 ./as_rank "$VITRAIN" $SMALL "$@" >printed 2>&1 &
    job=$!
}
at_step() { wait_until has_lines $(($1 + 1)) "$PWD/runs/demo/*/${2-00}/metrics.csv" || { cat printed; return 1; }; } # STEPS [TAG]
# ends STATUS ("any": not 0; "": whatever it is): the job ends, long before comm_timeout, and leaves no process; $output: its messages
ends() {
    local got=0
    gone "$job" || { cat printed; return 1; }
    wait "$job" || got=$?
    # Open MPI gives ranks a terminal, so there is a progress bar, whose escape codes may precede a message
    output=$(sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r//g' printed)
    case $1 in any) [ "$got" -ne 0 ] ;; '') ;; *) [ "$got" -eq "$1" ] ;; esac || { echo "exit status $got, expected $1"; echo "$output"; return 1; }
    [ "$(ls pid-* | wc -l)" -eq 4 ]
    gone $(cat pid-*) $(processes)
}
ends_saying() { ends any; says_once "$@"; } # PART...: it fails, with one message that holds every PART
# Those of the program in this directory: the ranks, and with each the one in which it tries files.
processes() {
    local process
    for process in /proc/[0-9]*; do
        [ ! "$process/cwd" -ef . ] || [ ! "$process/exe" -ef "$VITRAIN" ] || echo "${process#/proc/}"
    done
}
goes_on() { # [flags]: the newest checkpoint does
    rm -f rank-*
    start --resume --max_time=1 "$@"
    ends 75
    contains "$output" "resuming from $(run_directory)/checkpoints/step-"
}

test_a_killed_rank() {
    start --checkpoint_every=3
    at_step 5
    [ "$(processes | wc -l)" -eq 8 ]
    kill -KILL "$(cat pid-2)"
    ends any
    refuted contains "$output" "DONE ----"
    goes_on
}

test_a_stopped_rank() {
    start --comm_timeout=3 --tensor_parallel=2
    at_step 3
    kill -STOP "$(cat pid-2)"
    ends_saying "rank 0 on " "rank 2 (" "pid $(cat pid-2)" "within 3 s (comm_timeout): it is stopped, dead or far behind"
}

test_a_rank_that_cannot_open_its_file() {
    mkdir other
    cp -r data other
    truncate -s 3000 other/data/train/2001.h5
    echo 'cd other' >rank-2
    start
    ends_saying "rank 2 on " "2001.h5"
    [ ! -e runs ]
}

test_a_file_on_which_hdf5_crashes() {
    cp "$TOP/tests/fuzz/corpus/fields/fill_value_crash" data/train/2001.h5
    start
    ends_saying "2001.h5: HDF5 crashed (Segmentation fault) when it was tried in a process of its own"
}

# A value that only one rank of the context axis reads, in the middle of a run: not with the others' rows.
test_a_rank_that_cannot_read_its_rows() {
    # time 40, channel 1, row 10 of 12, the fourth point: of the last four rows; NaN
    overwrite data/train/2001.h5 $((((40 * 3 + 1) * 12 + 10) * 20 + 3)) "$NAN"
    start --context_parallel=4
    ends_saying "rank " "NaN" "2001.h5"
    refuted grep '^vitrain: rank [01] ' <<<"$output"
    contains "$(cat "$(run_directory)/out.log")" "ERROR - all ranks: stop: rank "
}

test_a_full_disk_of_one_rank() {
    needs util-linux prlimit
    start --checkpoint_every=4
    at_step 5
    prlimit --pid "$(cat pid-3)" --fsize=4096
    ends_saying "checkpoint of step " "rank 3 on " "shard-00003-of-00004.h5" "File too large"
    [ ! -e "$(run_directory)"/checkpoints/*.tmp ]
    goes_on
}

test_gradients_that_are_not_finite() {
    start --lr=1e6 --weight_decay=1e3 --optimizer=SGD
    ends_saying "the gradients are not finite"
}

test_other_options_on_one_rank() {
    local flag name
    for flag in --lr=0.5 --tensor_parallel=2 --comm_timeout=77 --noddp; do
        echo "set -- \"\$@\" $flag" >rank-1
        name=${flag#--}
        start
        ends_saying "rank 1 on " "all ranks need the same options" "'${name%%=*}: "
        [ ! -e runs ]
    done
    echo 'set -- "$@" --num_threads=2' >rank-1 # which machines may need
    start --num_epochs=1
    ends 0
}

# Nodes whose copies of the files differ: rank 1 is in a directory of its own.
test_other_files_on_one_rank() {
    rm -rf node
    mkdir node
    cp -r data node
    echo 'cd node' >rank-1
    local seconds=$SECONDS file
    rm -rf node/data
    "$VITRAIN" synth node/data --img_size=[12,20] --channels=3 --steps_per_year=30 --valid_steps=8 >/dev/null
    start --data_dir=data
    ends_saying "rank 1 on " "data/train/2001.h5: " " bytes' here, 'data/train/2001.h5: " " bytes' on rank 0: all ranks need the same data"
    rm -rf node/data
    cp -r data node
    for file in means stds; do
        cp data/stats/time_diff_stds.npy node/data/stats/global_$file.npy
        start --data_dir=data
        ends_saying "rank 1 on " "'global_${file}_path: crc32c " " on rank 0: all ranks need the same data"
        cp data/stats/global_$file.npy node/data/stats
    done
    train --data_dir=data --num_epochs=1 --run_num=a --expdir=one >/dev/null
    train --data_dir=data --num_epochs=1 --run_num=a --seed=5 --expdir=node/one >/dev/null
    for file in "--init_from=one/demo/1CPU/a" "--resume=one/demo/1CPU/a/checkpoints/best" "--init_from=one/demo/1CPU/a --zero_stage=3"; do
        start --data_dir=data --num_epochs=2 $file
        ends_saying "rank 1 on " "checkpoint.h5: crc32c " " on rank 0: ranks would begin with parameters of different files; copy one to all nodes"
    done
    [ $((SECONDS - seconds)) -lt 300 ] # none of them waited for comm_timeout, 600 s
    rm -rf node
}

test_options_that_cannot_be() {
    start --tensor_parallel=3
    ends_saying "rank 0 on " "tensor_parallel 3"
    echo 'set -- "$@" --nonsense=3' >rank-2
    start
    ends_saying "rank 2 on " "unknown flag --nonsense"
}

test_signals_end_it_with_a_checkpoint() {
    start --context_parallel=2
    at_step 3
    kill -TERM "$(cat pid-3)"
    ends 75
    contains "$output" "Stopped by a signal to another rank after step"
    goes_on --context_parallel=2
    rm -r runs
    "$TOP/tests/mpirun" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE' || return 0 # others need not pass SIGUSR1 on
    start --run_num=usr1
    at_step 3 usr1
    kill -USR1 "$job"
    ends 75
    contains "$output" "Stopped by SIGUSR1 after step"
    [ -n "$(ls -d runs/demo/4CPU/usr1/checkpoints/step-*)" ]
}

test_max_time_and_a_terminated_launcher() {
    start --max_time=1
    ends 75
    contains "$output" "Stopped by max_time after step"
    start --resume --checkpoint_every=3
    at_step "$(($(wc -l <"$(run_directory)/metrics.csv") + 8))"
    kill -TERM "$job"
    ends "" # mpirun is the one that was terminated: that of Open MPI 5.0.7 sometimes ends with 0
    goes_on
}
