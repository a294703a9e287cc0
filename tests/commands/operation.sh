# An operation that the product does not have, `y = a x`, comes in with a row, a plain loop and a test: the files of
# tests/tenant/operation, which lie before src/ in the include path. What depends on the table is compiled with them;
# the vector kernels, which the test does not run, and all else are the library's.

test_one_more_operation() {
    ! grep -q '__[at]san_init' "$VITRAIN" || skip "a sanitizer's library needs its flags"
    own=$TOP/tests/tenant/operation
    find "$own" -type f >files
    [ "$(wc -l <files)" -le 4 ] || { cat files; return 1; }
    for source in "$TOP"/src/backend/*.c "$TOP"/src/backend/dry/*.c "$TOP"/src/backend/cpu/*.c "$TOP"/src/backend/cpu/plain/*.c \
        "$TOP"/tests/main.c "$TOP"/tests/operations/mirror.c "$TOP"/tests/operations/guarded.c $(grep '\.c$' files); do
        echo "$source"
    done >sources
    xargs -P 2 -I{} sh -c 'cc -std=gnu11 -O0 -fopenmp -Wall -Wextra -Wshadow -Wconversion -Werror \
        "-I$1" "-I$2/src" "-I$2/tests" -c "$3" -o "$(echo "$3" | tr / _).o"' - "$own" "$TOP" {} <sources
    cc -fopenmp -o tests_of_operation ./*.o "$(dirname "$VITRAIN")/libvitrain.a" -lm -lpthread
    ./tests_of_operation scale >said || { cat said; return 1; }
    grep -q "^3 passed, 0 failed" said || { cat said; return 1; }
    ./tests_of_operation mirror >said || { cat said; return 1; }
}
