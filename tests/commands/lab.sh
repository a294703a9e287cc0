# docs/lab.md: every command of the page runs, on less data and with a smaller model; those of two tables also as they are, and what
# these tables say of memory and losses is compared.

# ./vitrain as the page calls it, with the flags of small_flags or of table_flags; if a flag is repeated, the last one counts.
wrapped_vitrain() { # FLAGS
    { printf '#!/bin/sh\ncase $* in\n'; "$1"; printf 'esac\nexec "$REAL" "$@"\n'; } >vitrain
    chmod +x vitrain
    export REAL=$VITRAIN VITRAIN=$PWD/vitrain
    ln -s "$TOP/config" config
    ln -s "$TOP/submit" submit
    unset NVTX_INJECTION64_PATH
    has_mpi=1
    "$TESTS" --has-mpi >/dev/null && "$TOP/tests/mpirun" -np 1 true >/dev/null 2>&1 || has_mpi=
}

small_flags() {
    cat <<'FLAGS'
synth*) set -- "$@" --img_size=[32,64] --steps_per_year=81 --valid_steps=17 ;;
*--run_num=huge* | "bench io"*) set -- "$@" --img_size=[32,64] ;;
--config=lab*)
    set -- "$@" --img_size=[32,64] --embed_dim=16 --depth=1 --limit_nsamples=64 --limit_nsamples_val=16
    case $* in *--num_iters=128* | *--num_iters=32*) set -- "$@" --num_iters=8 ;; esac ;;
FLAGS
}

table_flags() {
    cat <<'FLAGS'
*--embed_dim=256*) set -- "$@" --limit_nsamples_val=16 --num_iters=1 ;;
--config=lab*) set -- "$@" --limit_nsamples_val=16 ;;
FLAGS
}

# row_of RUN WORD: the run's row of the page's table whose head has the word
row_of() {
    awk -F ' *[|] *' -v run="\`$1\`" -v word="$2" '
        /^[|]/ { if (!inside) fits = index($0, word); inside = 1; if (fits && index($2, run) == 1) print }
        !/^[|]/ { inside = 0 }' "$TOP/docs/lab.md"
}

# as_the_page_says RUN: the memory of parameters, gradients, optimizer and data in the log `printed`, and the loss of step 16, whose
# last digits rounding may change
as_the_page_says() {
    local row memory directory
    row=$(row_of "$1" "GFLOP a step")
    if [ -n "$row" ]; then
        memory=$(sed -n 's/.*memory the run needs: .*parameters \([0-9.]*\) MB, gradients \([0-9.]*\) MB, optimizer \([0-9.]*\) MB, .*data \([0-9.]*\) MB, .*/\1 \2 \3 \4/p' printed)
        awk -F ' *[|] *' -v memory="$memory" '{
            split(memory, m, " ")
            exit sprintf("%.1f %.1f %.1f %.0f", m[1], m[2], m[3], m[4]) != $4 " " $5 " " $6 " " $8
        }' <<<"$row" || { echo "$row: not $memory"; return 1; }
    fi
    row=$(row_of "$1" "loss of step 16")
    [ -n "$row" ] || return 0
    for directory in runs/lab/*/"$1"; do
        awk -F, -v row="$row" '
            BEGIN { split(row, cell, / *[|] */); ok = 0 }
            $1 == 16 { change = $3 / cell[5] - 1; ok = change < 1e-6 && change > -1e-6 }
            END { exit !ok }' "$directory/metrics.csv" || { echo "$row: not $(tail -n 1 "$directory/metrics.csv")"; return 1; }
    done
}

long_tables() {
    wrapped_vitrain table_flags
    [ -n "$has_mpi" ] || skip "no MPI"
    local line name count=0
    while read -r line <&3; do
        name=${line#*--run_num=} name=${name%% *}
        [ -n "$(row_of "$name" "GFLOP a step")$(row_of "$name" "loss of step 16")" ] || [[ $line == *synth* ]] || continue
        bash -c "$line" >printed 2>&1 || { tail -n 5 printed; return 1; }
        [[ $line == *synth* ]] || as_the_page_says "$name"
        count=$((count + 1))
    done 3< <(grep -E '^    (\./vitrain|submit/)' "$TOP/docs/lab.md")
    [ "$count" -eq 14 ]
}

long_every_command() {
    wrapped_vitrain small_flags
    grep -E '^    (\./vitrain|submit/|ENABLE_PROFILING)' "$TOP/docs/lab.md" >commands
    [ "$(wc -l <commands)" -ge 30 ]
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
