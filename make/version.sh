#!/bin/sh
# version.sh STAMP: prints the version: the release's number from the file VERSION, and the commit. The commit comes from git
# if this is the top of a checkout, otherwise from make/commit, which `git archive` fills in. 1.0.0 is a release (or the
# commit is unknown), 1.0.0+g1234567 another commit, 1.0.0+g1234567.dirty a commit whose files were changed. STAMP is the
# version of an earlier build; it is printed if git refuses to answer (root in another user's checkout).
dirty= release=$(cat VERSION)
if [ -e .git ]; then
    commit=$(git rev-parse --short HEAD 2>/dev/null) || { cat "$1" 2>/dev/null || echo "$release"; exit; }
    names=$(git tag --points-at HEAD 2>/dev/null)
    git update-index -q --refresh >/dev/null 2>&1 # else files that only have a new date count as changed
    git diff-index --quiet HEAD -- 2>/dev/null || dirty=.dirty
else
    read -r commit names <make/commit # HASH HEAD -> main, tag: v1.0.0
    case $commit in *Format*) commit= ;; esac
fi
for name in $names; do
    [ "${name%,}$dirty" != "v$release" ] || commit=
done
echo "$release${commit:++g$commit$dirty}"
