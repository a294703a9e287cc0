# The CUDA kernels under ThreadSanitizer: they have no race, and barriers that are left out are seen. `make tsan` does all.

test_kernels_and_mutants() {
    command -v g++ >/dev/null || { echo "no C++ compiler"; return 77; }
    "$TOP/tests/races" "$(dirname "$VITRAIN")" quick
}
