# The other ranks when one fails (tests/parallel/faults.c; comm_timeout is 3 s there once all have met).

# four_ranks FAULT: runs it; its messages are in $output. It must end with an error, and leave no process.
four_ranks() {
    needs_mpi
    local status=0
    output=$(ASAN_OPTIONS=detect_leaks=0 timeout $HANG "$TOP/tests/mpirun" -np 4 "$TESTS" --fault "$1" 2>&1) || status=$?
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || { echo "exit status $status"; echo "$output"; return 1; }
    gone $(printf '%s\n' "$output" | sed -n 's/^pid \([0-9]*\)$/\1/p')
    refuted contains "$output" "got past"
}

test_stopped_rank_is_named() {
    local start=$SECONDS
    four_ranks stop
    [ $((SECONDS - start)) -ge 3 ]
    says_once "vitrain: rank 0 on "
    contains "$output" "rank 2 (" "does not answer, and the all-reduce over dp [0 1 2 3] is not over within 3 s (comm_timeout): it is stopped, dead or far behind"
    pid=$(printf '%s\n' "$output" | sed -n 's/.* rank 2 ([^,]*, pid \([0-9]*\)).*/\1/p')
    contains "$output" "pid $pid"
}

test_stopped_rank_of_another_group_is_named() {
    four_ranks chain
    says_once "rank 2 ("
}

test_killed_rank_ends_all() {
    four_ranks kill
}

test_error_of_one_rank_ends_all() {
    four_ranks error
    says_once "vitrain: rank 2 on "
    contains "$output" ": the disk of nobody is full"
}

test_rank_that_gives_up_ends_all() {
    four_ranks world
    says_once "vitrain: rank 2 on "
    contains "$output" ": the disk of nobody is full"
}

# MPI_Init waits for it: 10 s at least, whatever comm_timeout says.
test_rank_that_never_starts_is_missed() {
    needs_mpi
    fails any timeout $HANG "$TOP/tests/mpirun" -np 2 sh -c "[ $RANK = 0 ] || exec sleep $HANG"'; exec "$@"' - "$TESTS" --fault missed
    says_once "vitrain: rank 0 on $(hostname): MPI_Init has waited 10 s (comm_timeout, at least 10) for the 2 ranks"
}

# A queue's signal to a rank that still waits for the others to start.
test_signal_before_all_have_started() {
    needs_mpi
    local settings; settings="$(echo $SMALL) --data_loader_config=synthetic --limit_nsamples=64 --limit_nsamples_val=8 --num_epochs=100000"
    "$TOP/tests/mpirun" -np 2 sh -c "if [ $RANK = 0 ]; then echo \$\$ >first; else while [ ! -e sent ]; do sleep 0.1; done; fi"'
        exec "$@"' - "$VITRAIN" $settings >printed 2>&1 &
    local launcher=$! status=0
    has_handler() { [ $((0x0$(sed -n 's/^SigCgt:\t//p' "/proc/$(cat first)/status") & 0x200)) -ne 0 ]; }
    wait_until has_handler
    kill -USR1 "$(cat first)"
    touch sent
    wait $launcher || status=$?
    [ $status -eq 75 ] || { echo "exit status $status"; cat printed; return 1; }
    contains "$(cat printed)" "SIGUSR1"
    ls runs/demo/2CPU/00/checkpoints/step-00000001/checkpoint.h5
}

test_signal_handlers_stay() {
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$TESTS" --fault signals
}
