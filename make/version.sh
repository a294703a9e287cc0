#!/bin/sh
# version.sh STAMP: VERSION holds the number of the release; to it belongs the commit, from git where this is a checkout's
# top, else from make/commit, in which `git archive` has written it. Prints 1.0.0 for a release, 1.0.0+g1234567 for another commit, 1.0.0+g1234567.dirty where files differ
# from it, and 1.0.0 alone where nobody knows the commit. STAMP holds what was printed at an earlier build: it counts where
# git refuses to say (root in another user's checkout).
dirty= release=$(cat VERSION)
if [ -e .git ]; then
    commit=$(git rev-parse --short HEAD 2>/dev/null) || { cat "$1" 2>/dev/null || echo "$release"; exit; }
    names=$(git tag --points-at HEAD 2>/dev/null)
    git diff-index --quiet HEAD -- 2>/dev/null || dirty=.dirty
else
    read -r commit names <make/commit # HASH HEAD -> main, tag: v1.0.0
    case $commit in *Format*) commit= ;; esac
fi
for name in $names; do
    [ "${name%,}$dirty" != "v$release" ] || commit=
done
echo "$release${commit:++g$commit$dirty}"
