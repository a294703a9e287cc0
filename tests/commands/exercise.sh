# The exercise of docs/lab.md: wrong without communication, right with that of src/model/mlp.c.

test_mlp_over_ranks() {
    needs_mpi
    local make=(make --no-print-directory -C "$TOP" BUILD="$(dirname "$VITRAIN")" EXERCISE="$PWD/own" exercise)
    fails any "${make[@]}"
    contains "$output" "2 ranks; each has 2048 of the 4096 hidden columns"
    [ "$(grep -c ': wrong$' <<<"$output")" -eq 2 ]
    contains "$(cat own/mlp.c)" "vt_matrix input = x;"
    cp "$TOP/src/model/mlp.c" own/mlp.c
    says "2 ranks" -- "${make[@]}"
    [ "$(grep -c ': right$' <<<"$output")" -eq 2 ]
}
