# Reference runs (tests/reference/runs): their losses, learning rates, gradient norms and validation losses to the bit, and the
# bytes that they plan and send, compared with tests/reference/record. All are computed by the plain loops.
# A change that intends other figures writes the record again: REFERENCE_RECORD=write make test FILTER=commands/reference

SMALL="$SMALL --img_size=[12,20] --num_heads=4 --dropout=0.1 --num_epochs=2 --keep_last=99 --num_data_workers=1 --cpu_isa=plain"
RECORD=$TOP/tests/reference/record

# Bits depend on the C library's exp and erf, on the compiler, and on the order in which MPI adds.
environment() {
    echo "$(uname -m), $(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'another C library'), $("$TOP/tests/mpirun" --version 2>/dev/null | head -n 1)"
}

# one_run NAME RANKS [flags]: prints a line for each figure: "NAME WHAT VALUES"
one_run() {
    local name=$1 count=$2 directory flags=(); shift 2
    for flag in "$@"; do
        case $flag in
        --resume=@*) flags+=("--resume=$(echo "${flag#--resume=@}"/demo/*/00/checkpoints/step-00000007)") ;;
        *) flags+=("$flag") ;;
        esac
    done
    ranks "$count" "$name" "${flags[@]}" >&2
    directory=$(echo "$name"/demo/*/00)
    tail -n +2 "$directory/metrics.csv" | cut -d, -f1,3-5 | sed "s/^/$name step /; s/,/ /g"
    sed -n "s/.*Avg val loss=\(.*\)/$name validation \1/p; s/.*Valid RMSE by channel: /$name rmse /p" "$directory/out.log"
    echo "$name plan $(tail -n 1 "$directory/plan.csv")"
    case "${flags[*]}" in *--resume=*) return 0 ;; esac
    "$VITRAIN" layout --ranks="$count" $SMALL "${flags[@]}" | sed -n '/^sent by/,$p' | tail -n +2 | tr -s ' ' | sed "s/^/$name sent/"
}

record_of() {
    local name ranks flags
    grep -v '^#' "$TOP/tests/reference/runs" | while read -r name ranks flags; do
        one_run "$name" "$ranks" $flags </dev/null
    done
}

# To 1e-5, which is what any other machine or layout is promised; plans and messages to the byte.
close_to_record() {
    paste -d'|' "$1" "$2" | awk -F'|' '
        { count = split($1, here, " "); split($2, kept, " ")
          for (i = 1; i <= count; i++) {
              number = here[i]; of_record = kept[i]
              sub(/.*=/, "", number); sub(/.*=/, "", of_record)
              difference = number - of_record; size = of_record < 0 ? -of_record : of_record
              if (difference < 0) difference = -difference
              if (here[2] == "plan" || here[2] == "sent" || i <= 2 ? here[i] != kept[i] : difference > 1e-4 * size) {
                  print $1 " instead of " $2; bad = 1; next }
          } }
        END { exit bad }'
}

test_same_as_recorded() {
    needs_mpi
    synth --img_size=[12,20]
    record_of >figures
    if [ "${REFERENCE_RECORD:-}" = write ]; then { echo "# $(environment)"; cat figures; } >"$RECORD"; fi
    tail -n +2 "$RECORD" >recorded
    if [ "$(head -n 1 "$RECORD")" = "# $(environment)" ]; then
        diff recorded figures
    else
        close_to_record figures recorded
    fi
}
