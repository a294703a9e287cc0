# The tests' own helpers (tests/commands/common): they must fail when they should.

test_refuted() {
    echo text >file
    refuted grep other file
    fails 1 refuted grep text file
    contains "$output" "exit status 0, expected 1: grep text file"
    fails 1 refuted grep text nowhere
    contains "$output" "nowhere: No such file or directory"
    refuted cmp <(echo one) <(echo other)
    fails 1 refuted cmp <(echo one) <(echo one)
    refuted contains "some text" "else"
    fails 1 refuted contains "some text" "text"
}

test_refuses_and_says() {
    refuses "nowhere" "No such" -- cat nowhere
    fails 1 refuses "nowhere" "is a directory" -- cat nowhere
    fails 1 refuses "text" -- echo text
    says "one" "two" -- echo one two
    fails 1 says "one" "three" -- echo one two
    fails 1 says "text" -- sh -c 'echo text; exit 3'
    refuses_once "one" -- sh -c 'echo vitrain: one; exit 1'
    fails 1 refuses_once "one" -- sh -c 'echo vitrain: one; echo vitrain: one; exit 1'
    fails 1 refuses_once "one" -- sh -c 'echo one; exit 1'
}

# Lines that `set -e` passes over: `! command`, and all but the last part of `one && another`.
test_no_line_without_effect() {
    grep -nE '^ *(! |\[ .* \] && )' "$TOP"/tests/commands/* | grep -vE ' \|\|( |$)' >lines || true
    [ ! -s lines ] || { cat lines; return 1; }
}

test_wait_until() {
    (sleep 0.1; echo one >file) &
    wait_until has_lines 1 file
    sleep 60 &
    HANG=1 fails 1 wait_until has_ended $!
    contains "$output" "waited 1 s for: has_ended $!"
    gone $! # it ended the test's jobs
}

# tests/run counts what a program of C tests says, and fails if it ends badly after its last test, or before.
test_ends_of_c_tests() {
    mkdir -p build/tests
    cat >build/tests/vitrain-tests <<'PROGRAM'
#!/bin/sh
case $* in
*--parallel*) exit ;;
*--list*) echo part/file/stubbed; exit ;;
esac
echo "ok   part/file/stubbed"
[ "$STUB" = dies ] || echo "12 passed, 0 failed, 0 skipped"
[ "$STUB" = well ] || { echo "a sanitizer's report"; exit 1; }
PROGRAM
    chmod +x build/tests/vitrain-tests
    STUB=well says "1 passed, 0 failed, 0 skipped" -- "$TOP/tests/run" "$PWD/build" stubbed
    STUB=reports refuses "a sanitizer's report" "exit status 1 after the last test" "1 passed, 1 failed" -- "$TOP/tests/run" "$PWD/build" stubbed
    STUB=dies refuses "ended early, exit status 1" "1 passed, 1 failed" -- "$TOP/tests/run" "$PWD/build" stubbed
}
