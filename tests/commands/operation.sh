# An operation that the product doesn't have, `y = a x`, comes in with a row, a plain loop and a test: tests/tenant/operation,
# which lies before src/ in the include path of build/tests/operation-tests.

test_one_more_operation() {
    find "$TOP/tests/tenant/operation" -type f >files
    [ "$(wc -l <files)" -le 4 ] || { cat files; return 1; }
    for file in operations/scale/ operations/mirror/; do
        "$(dirname "$TESTS")/operation-tests" $file | tee said
        grep -q "^[1-9][0-9]* passed, 0 failed, 0 skipped" said
    done
}
