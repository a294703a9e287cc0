# The CUDA kernels under ThreadSanitizer: they have no race, and barriers that are left out are seen. `make tsan` does all.

long_kernels_and_mutants() {
    needs g++ g++
    "$TOP/tests/races" "$(dirname "$VITRAIN")" quick
}
