# docs/lab.md: every command of the page runs, on less data and with a smaller model. Those of tables that name parts of a run's
# memory, or the loss of a step, also run as they are, up to that step, and the tables are compared with their logs.

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
*--text*) ;;
synth*unet3d*) set -- "$@" --box_size=[32,32] ;;
synth*) set -- "$@" --img_size=[32,64] --steps_per_year=81 --valid_steps=17 ;;
*--run_num=huge* | "bench io --config=lab"*) set -- "$@" --img_size=[32,64] ;;
--config=lab*)
    set -- "$@" --img_size=[32,64] --embed_dim=16 --depth=1 --limit_nsamples=64 --limit_nsamples_val=16
    case $* in *--num_iters=128* | *--num_iters=32*) set -- "$@" --num_iters=8 ;; esac ;;
--config=lm_demo*) set -- "$@" --embed_dim=16 --ffn_dim=32 --depth=1 --limit_nsamples_val=32 --num_iters=4 ;;
--config=unet_demo*) set -- "$@" --unet_width=4 --Nsamples=16 --Nsamples_val=16 --num_epochs=1 ;;
FLAGS
}

table_flags() {
    cat <<'FLAGS'
*--embed_dim=256*) set -- "$@" --limit_nsamples_val=16 --num_iters=1 ;;
--config=lab*) set -- "$@" --limit_nsamples_val=16 ;;
--config=lm_demo*) set -- "$@" --limit_nsamples_val=32 --num_iters=2 ;;
FLAGS
}

# cells_of RUN [WORD]: of each table of the page that has a row of the run: a line "COLUMN=CELL" for each of its columns, or
# those with the word
cells_of() {
    awk -F ' *[|] *' -v run="\`$1\`" -v word="${2:-}" '
        /^[|]/ && !inside { inside = 1; split($0, head, / *[|] */); next }
        /^[|]/ && index($2, run) == 1 { for (i = 2; i < NF; i++) if (index(head[i], word)) print head[i] "=" $i }
        !/^[|]/ { inside = 0 }' "$TOP/docs/lab.md"
}

# as_the_page_says RUN: memory in the log `printed` (one decimal, of data none), and losses, whose last digits rounding may change
as_the_page_says() {
    local column cell found
    while IFS='=' read -r column cell <&4; do
        case $column in
        parameters | gradients | optimizer | data)
            found=$(sed -n "s/.*memory the run needs: .*$column \([0-9.]*\) MB.*/\1/p" printed)
            awk -v found="$found" -v form="$([ "$column" = data ] && echo %.0f || echo %.1f)" -v cell="$cell" \
                'BEGIN { exit sprintf(form, found) != cell }' || { echo "$1, $column: the page says $cell, the log $found"; return 1; } ;;
        "loss of step "*)
            for found in runs/*/*/"$1"; do
                awk -F, -v step="${column##* }" -v cell="$cell" '
                    $1 == step { change = $3 / cell - 1; ok = change < 1e-6 && change > -1e-6 }
                    END { exit !ok }' "$found/metrics.csv" || { echo "$1, $column: not $cell, but $(tail -n 1 "$found/metrics.csv")"; return 1; }
            done ;;
        esac
    done 4< <(cells_of "$1")
}

long_tables() {
    wrapped_vitrain table_flags
    [ -n "$has_mpi" ] || skip "no MPI"
    local line name count=0
    while read -r line <&3; do
        name=${line#*--run_num=} name=${name%% *}
        [ -n "$(cells_of "$name" gradients)$(cells_of "$name" "loss of step")" ] || [[ $line =~ synth.*(data/lab|--text) ]] || continue
        bash -c "$line" >printed 2>&1 || { tail -n 5 printed; return 1; }
        rm -f data/lm_demo/test.txt
        [[ $line == *synth* ]] || as_the_page_says "$name"
        count=$((count + 1))
    done 3< <(grep -E '^    (\./vitrain|submit/)' "$TOP/docs/lab.md")
    [ "$count" -eq 21 ]
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
        rm -f data/lm_demo/test.txt
    done 3<commands
    [ -s compare.html ]
    # the page's claim about the readers: the same numbers to the bit
    for run in workers dali cache; do
        cmp <(cut -d, -f1-5 runs/lab/1CPU/serial/metrics.csv) <(cut -d, -f1-5 runs/lab/1CPU/$run/metrics.csv)
    done
    [ -n "$has_mpi" ] || return 0
    [ -s runs/lab/2CPU/buckets/logs/comm-1.csv ]
    contains "$(cat runs/lab/2MP/bubble4/report.html)" "20.0 % by (p - 1)/(m + p - 1), with 2 stages and 4 micro-batches.<"
}
