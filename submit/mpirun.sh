#!/usr/bin/env bash
# Starts vitrain under the mpirun of Open MPI or MPICH. All other arguments are passed to vitrain.
#
#   submit/mpirun.sh 8 --config=short          8 ranks (the first argument, if it is a number)
#   NRANKS=8 submit/mpirun.sh --config=short   the same
#   submit/mpirun.sh --config=short            in a batch job: as many ranks as the job has slots
#
#   MPIRUN_FLAGS="..."     more flags for mpirun: "--hostfile hosts", "--oversubscribe"
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

ranks=${NRANKS:-}
if [ $# -gt 0 ] && is_number "$1"; then ranks=$1; shift; fi
[ -z "$ranks" ] || is_number "$ranks" || fail "NRANKS=$ranks: expected a number of ranks"
[ -n "$ranks" ] || [ -n "${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}" ] ||
    fail "how many ranks? submit/mpirun.sh N [flags of vitrain], or NRANKS=N"
program "$@"
# shellcheck disable=SC2119 # no further flags
mpirun_command
[ -z "$ranks" ] || mpirun+=(-n "$ranks")
exec "${mpirun[@]}" "${command[@]}"
