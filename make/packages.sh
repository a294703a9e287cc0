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
to=$log
[ ! -t 1 ] || to=/dev/stdout # on a terminal apt shows its progress
# shellcheck disable=SC2086 # sudo and its flag, or nothing
{ $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo $command; } >"$to" 2>&1 ||
    { tail -n 20 "$log" >&2; echo "that failed; run it by hand: $sudo $command" >&2; exit 1; }
