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
# at_step STEPS: waits until metrics.csv has that many rows
at_step() {
    local tries
    for tries in $(seq 1000); do
        [ "$(cat "$(run_directory)/metrics.csv" 2>/dev/null | wc -l)" -le "$1" ] || { since=$SECONDS; return 0; }
        sleep 0.02
    done
    echo "the run did not get to step $1"; cat printed; return 1
}
# ends STATUS SECONDS ("any": not 0): the job ends, at most SECONDS after $since, and leaves no process; $output: its messages
ends() {
    local got=0
    wait "$job" || got=$?
    # Open MPI gives ranks a terminal, so there is a progress bar, whose escape codes may precede a message
    output=$(sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r//g' printed)
    if [ "$1" = any ]; then [ "$got" -ne 0 ]; else [ "$got" -eq "$1" ]; fi || { echo "exit status $got, expected $1"; echo "$output"; return 1; }
    [ $((SECONDS - since)) -le "$2" ] || { echo "took $((SECONDS - since)) s"; echo "$output"; return 1; }
    [ "$(ls pid-* | wc -l)" -eq 4 ]
    gone $(cat pid-*)
}
goes_on() { # [flags]: the newest checkpoint does
    rm -f rank-*
    start --resume --max_time=1 "$@"
    since=$SECONDS
    ends 75 20
    contains "$output" "resuming from $(run_directory)/checkpoints/step-"
}

test_a_killed_rank() {
    start --checkpoint_every=3
    at_step 5
    kill -KILL "$(cat pid-2)"
    ends any 10
    refuted contains "$output" "DONE ----"
    goes_on
}

test_a_stopped_rank() {
    start --comm_timeout=3 --tensor_parallel=2
    at_step 3
    kill -STOP "$(cat pid-2)"
    ends any 16
    says_once "rank 0 on " "rank 2 (" "pid $(cat pid-2)" "within 3 s (comm_timeout): it is stopped, dead or far behind"
}

test_a_rank_that_cannot_open_its_file() {
    mkdir other
    cp -r data other
    truncate -s 3000 other/data/train/2001.h5
    echo 'cd other' >rank-2
    since=$SECONDS
    start
    ends any 10
    says_once "rank 2 on " "2001.h5"
    [ ! -e runs ]
}

# A value that only one rank of the context axis reads, in the middle of a run: not with the others' rows.
test_a_rank_that_cannot_read_its_rows() {
    # time 40, channel 1, row 10 of 12, the fourth point: of the last four rows; NaN
    overwrite data/train/2001.h5 $((((40 * 3 + 1) * 12 + 10) * 20 + 3)) "$NAN"
    since=$SECONDS
    start --context_parallel=4
    ends any 20
    says_once "rank " "NaN" "2001.h5"
    refuted grep '^vitrain: rank [01] ' <<<"$output"
    contains "$(cat "$(run_directory)/out.log")" "ERROR - all ranks: stop: rank "
}

test_a_full_disk_of_one_rank() {
    command -v prlimit >/dev/null || skip "no prlimit"
    start --checkpoint_every=40
    at_step 41
    prlimit --pid "$(cat pid-3)" --fsize=4096
    ends any 20
    says_once "checkpoint of step " "rank 3 on " "shard-00003-of-00004.h5" "File too large"
    [ ! -e "$(run_directory)"/checkpoints/*.tmp ]
    goes_on
}

test_gradients_that_are_not_finite() {
    since=$SECONDS
    start --lr=1e6 --weight_decay=1e3 --optimizer=SGD
    ends any 20
    says_once "the gradients are not finite"
}

test_other_options_on_one_rank() {
    local flag name
    for flag in --lr=0.5 --tensor_parallel=2 --comm_timeout=77 --noddp; do
        echo "set -- \"\$@\" $flag" >rank-1
        name=${flag#--}
        since=$SECONDS
        start
        ends any 10
        says_once "rank 1 on " "all ranks need the same options" "'${name%%=*}: "
        [ ! -e runs ]
    done
    echo 'set -- "$@" --num_threads=2' >rank-1 # which machines may need
    start --num_epochs=1
    since=$SECONDS
    ends 0 20
}

test_options_that_cannot_be() {
    since=$SECONDS
    start --tensor_parallel=3
    ends any 10
    says_once "rank 0 on " "tensor_parallel 3"
    echo 'set -- "$@" --nonsense=3' >rank-2
    start
    ends any 10
    says_once "rank 2 on " "unknown flag --nonsense"
}

test_signals_end_it_with_a_checkpoint() {
    start --context_parallel=2
    at_step 3
    kill -TERM "$(cat pid-3)"
    ends 75 20
    contains "$output" "Stopped by a signal to another rank after step"
    goes_on --context_parallel=2
    rm -r runs
    "$TOP/tests/mpirun" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE' || return 0 # others need not pass SIGUSR1 on
    start --run_num=usr1
    local tries
    for tries in $(seq 500); do [ "$(cat runs/demo/4CPU/usr1/metrics.csv 2>/dev/null | wc -l)" -le 3 ] || break; sleep 0.02; done
    since=$SECONDS
    kill -USR1 "$job"
    ends 75 20
    contains "$output" "Stopped by SIGUSR1 after step"
    [ -n "$(ls -d runs/demo/4CPU/usr1/checkpoints/step-*)" ]
}

test_max_time_and_a_terminated_launcher() {
    since=$SECONDS
    start --max_time=1
    ends 75 20
    contains "$output" "Stopped by max_time after step"
    start --resume --checkpoint_every=3
    at_step "$(($(wc -l <"$(run_directory)/metrics.csv") + 8))"
    kill -TERM "$job"
    ends any 20
    goes_on
}
