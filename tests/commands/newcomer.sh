# README.md's commands in bare trees of the distributions (tests/newcomer). Its `make test` has bounds of time, so nothing runs
# beside it. debootstrap is not among the packages of the tests: the walk takes longer than CI may.

newcomer() {
    [ "$(id -u)" = 0 ] || skip "only root can make a tree of another distribution"
    command -v debootstrap >/dev/null || skip "no debootstrap"
    unshare --mount true 2>/dev/null || skip "this machine does not let root mount anything"
    git -C "$TOP" ls-files --error-unmatch tests/newcomer >/dev/null 2>&1 || skip "no checkout of git, of which the tree gets a copy"
    "$TOP/tests/newcomer" "$1" tree
}

alone_newcomer_on_debian_12() { newcomer bookworm; }
alone_newcomer_on_debian_13() { newcomer trixie; }
