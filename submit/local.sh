#!/usr/bin/env bash
# Starts vitrain on this machine. All other arguments are passed to vitrain.
#
#   submit/local.sh --config=short       one rank, without a launcher
#   submit/local.sh 4 --config=short     4 ranks (the first argument, if it is a number; or NRANKS=4)
#
# Several ranks run under mpirun if it is installed. Otherwise this script starts them with torchrun's variables (RANK,
# LOCAL_RANK, WORLD_SIZE, ...), which is enough for GPUs and NCCL.
#
#   VITRAIN=PATH           the program (./vitrain beside submit/)
#   BIND=numa              each rank stays in a NUMA domain of its machine: start as many ranks as there are
#   ENABLE_PROFILING=1     runs it under Nsight Systems; PROFILE_OUTPUT, PROFILE_DIR: see submit/common.sh
#
# Ends with vitrain's exit status: 75 means that the run was stopped and can be continued with --resume.
set -u
script=$0
top=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=submit/common.sh
. "$top/submit/common.sh"

ranks=${NRANKS:-1}
if [ $# -gt 0 ] && is_number "$1"; then ranks=$1; shift; fi
is_number "$ranks" || fail "NRANKS=$ranks: expected a number of ranks"
program "$@"
[ "$ranks" -gt 1 ] || exec "${command[@]}"
if command -v mpirun >/dev/null; then
    mpirun_command --oversubscribe
    exec "${mpirun[@]}" -n "$ranks" "${command[@]}"
fi

[ "${BIND:-none}" = none ] || fail "BIND=$BIND needs mpirun, which is not in the PATH: install or load an MPI, or unset BIND"
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=${MASTER_ADDR:-localhost} MASTER_PORT=${MASTER_PORT:-29500}
processes=()
for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank LOCAL_RANK=$rank "${command[@]}" &
    processes+=($!)
done
trap 'kill -USR1 "${processes[@]}" 2>/dev/null' USR1 USR2 HUP
trap 'kill -TERM "${processes[@]}" 2>/dev/null' TERM INT # in the background SIGINT is ignored
status=0
for process in "${processes[@]}"; do # the first status that is not 0; a trapped signal ends `wait` early
    while true; do
        wait "$process"; one=$?
        if [ "$one" -le 128 ] || ! kill -0 "$process" 2>/dev/null; then break; fi
    done
    [ "$status" -ne 0 ] || status=$one
done
exit "$status"
