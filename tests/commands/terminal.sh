# A run in a terminal (made by util-linux's script): the bar is there, and the log's lines are whole.

FLAGS= # more of them
in_terminal() { # ENVIRONMENT...: trains a little; what the terminal got is in ./screen, its lines also in ./lines
    needs bsdutils script
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no pseudo-terminals here"
    synth --steps_per_year=81
    printf '%s\n' "exec env $* '$VITRAIN' $(echo $SMALL) --embed_dim=32 --depth=4 --patch_size=2 --global_batch_size=16 --num_epochs=2 $FLAGS" >command
    script -qec "bash command" screen </dev/null >/dev/null
    # as a terminal without scrollback shows it: what was overwritten is left out
    sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r$//; s/.*\r//' screen | grep -v '^epoch [12]/2 \|^Script \|^$' >lines
}

test_bar_and_whole_lines() {
    in_terminal TERM=xterm NO_COLOR=
    grep -Eq 'epoch 1/2 .*loss [0-9.]+.*left' screen
    grep -q $'\033\[36m' screen
    cmp lines <(without_details runs/demo/1CPU/00/out.log)
}

# Lines that only programs read are not shown to a person who did not ask for them.
without_details() { sed '/--- Configuration ---/,/number of model parameters/d' "$1"; }

test_details_on_a_terminal() {
    FLAGS=--verbose in_terminal TERM=dumb
    cmp lines runs/demo/1CPU/00/out.log
    grep -q -e '------------------ Configuration ------------------' lines
    grep -q 'number of model parameters' lines
}

test_no_colour() {
    in_terminal TERM=xterm NO_COLOR=1
    grep -q 'epoch 1/2 ' screen
    refuted grep $'\033\[36m' screen
}

test_dumb_terminal() {
    in_terminal TERM=dumb
    grep -q 'epoch 1/2 ' screen
    refuted grep $'\033' screen
    cmp lines <(without_details runs/demo/1CPU/00/out.log)
    refuted grep embed_dim: lines
}

# Open MPI gives its ranks a terminal, though its own output goes into a file.
test_no_bar_under_a_launcher() {
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --data_loader_config=synthetic --limit_nsamples=64 --limit_nsamples_val=8 --num_epochs=2 >printed
    refuted grep $'\033' printed
    cmp <(tr -d '\r' <printed) runs/demo/2CPU/00/out.log
    # and no escape codes either
    "$TOP/tests/mpirun" -np 1 "$VITRAIN" plan --config=demo --yaml_config="$TOP/config/ViT.yaml" --embed_dim=8192 --depth=48 \
        --global_batch_size=64 --ranks=8 --hardware="$TOP/config/hardware.yaml:a100-40" >planned
    contains "$(cat planned)" "does not fit"
    refuted grep $'\033' planned
}
