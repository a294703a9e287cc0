#!/bin/sh
# make/packages.sh SUDO PACKAGE...: installs packages with apt, as root or by SUDO ("sudo"). Prints the command; if that can't be
# done, says what to do by hand, and fails.
sudo=$1
shift
[ "$(id -u)" != 0 ] || sudo=
command="apt-get install -y --no-install-recommends $*"
if ! command -v apt-get >/dev/null || { [ -n "$sudo" ] && ! command -v "${sudo%% *}" >/dev/null; }; then
    echo "Some packages are missing and can't be installed from here. As root, on Debian or Ubuntu: $command" >&2
    exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "${sudo:+$sudo }$command"
# On a terminal apt shows how far it is.
show() { if [ -t 1 ]; then cat; else cat >>"$log"; fi; }
# shellcheck disable=SC2086 # sudo and its flag, or nothing
{ { $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo $command && echo done >"$log.done"; } 2>&1 | show; [ -e "$log.done" ]; } ||
    { tail -n 20 "$log" >&2; echo "that failed; run it by hand: $sudo $command" >&2; exit 1; }
