# docs/lab.md: every command of the page runs, on less data and a smaller model.

# ./vitrain as the page calls it; if a flag is repeated, the last one counts.
small_vitrain() {
    cat >vitrain <<'EOF'
#!/bin/sh
case $* in
synth*) set -- "$@" --img_size=[32,64] --steps_per_year=81 --valid_steps=17 ;;
*--run_num=huge* | "bench io"*) set -- "$@" --img_size=[32,64] ;;
--config=lab*) set -- "$@" --img_size=[32,64] --embed_dim=16 --depth=1 --limit_nsamples=64 --limit_nsamples_val=16 ;;
esac
case $* in *--num_iters=128* | *--num_iters=32*) set -- "$@" --num_iters=8 ;; esac
exec "$REAL" "$@"
EOF
    chmod +x vitrain
    export REAL=$VITRAIN VITRAIN=$PWD/vitrain
    ln -s "$TOP/config" config
    ln -s "$TOP/submit" submit
}

long_every_command() {
    small_vitrain
    unset NVTX_INJECTION64_PATH
    grep -E '^    (\./vitrain|submit/|ENABLE_PROFILING)' "$TOP/docs/lab.md" >commands
    [ "$(wc -l <commands)" -ge 30 ]
    has_mpi=1
    "$TESTS" --has-mpi >/dev/null && "$TOP/tests/mpirun" -np 1 true >/dev/null 2>&1 || has_mpi=
    while read -r line <&3; do
        case $line in
        "submit/"*) [ -n "$has_mpi" ] || continue ;;
        ENABLE_PROFILING=*) ! command -v nsys >/dev/null || continue ;;
        esac
        echo "$line"
        case $line in
        ENABLE_PROFILING=*) fails 1 bash -c "$line" && contains "$output" "can record nothing without nsys" ;;
        *huge*) fails 1 bash -c "$line" && contains "$output" "the run needs" && contains "$output" "saves" ;;
        *) bash -c "$line" >printed 2>&1 || { tail -n 5 printed; return 1; } ;;
        esac
    done 3<commands
    [ -s compare.html ]
    # the page's claim about the readers: the same numbers to the bit
    for run in workers dali cache; do
        cmp <(cut -d, -f1-5 runs/lab/1CPU/serial/metrics.csv) <(cut -d, -f1-5 runs/lab/1CPU/$run/metrics.csv)
    done
    [ -z "$has_mpi" ] || [ -s runs/lab/2CPU/buckets/logs/comm-1.csv ]
}
