#!/usr/bin/env bash
# Starts vitrain in a Slurm job. All arguments are passed to vitrain. One task is one rank; choose nodes, tasks and GPUs
# with sbatch's flags:
#
#   sbatch --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --time=4:00:00 submit/slurm.sh --config=short --run_num=a
#   salloc --ntasks=4 submit/slurm.sh --config=short
#
# 120 s before the time limit Slurm sends SIGUSR1 to the ranks; they save a checkpoint and end with status 75. This script
# then requeues the job, which continues from that checkpoint: --resume_newest is added whenever a job was requeued.
#
#   VITRAIN=PATH           the program (./vitrain in the checkout that this script was submitted from)
#   SRUN_MPI=TYPE          srun's --mpi (default: SLURM_MPI_TYPE, or else by the program's MPI: pmix for Open MPI, pmi2 for MPICH)
#   LAUNCHER=mpirun        uses mpirun inside the job instead of srun. This is also the fallback if this Slurm has no pmix
#                          for Open MPI. Slurm doesn't signal mpirun by itself: submit with --signal=B:USR1@120
#   BIND=numa              each task stays in a NUMA domain of its node (srun's --cpu-bind=ldoms)
#   ENABLE_PROFILING=1     runs it under Nsight Systems; PROFILE_OUTPUT, PROFILE_DIR: see submit/common.sh
#SBATCH --job-name=vitrain
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -u
script=submit/slurm.sh

[ -n "${SLURM_JOB_ID:-}" ] || { echo "slurm.sh: not inside a Slurm job; use sbatch [flags] submit/slurm.sh, or salloc [flags] submit/slurm.sh" >&2; exit 1; }

# sbatch runs a copy of this script; Slurm knows the path of the original.
top=$(dirname "$(dirname "$(readlink -f "$0")")")
if [ ! -e "$top/submit/common.sh" ]; then
    original=$(scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null | sed -n 's/.* Command=\([^ ]*\).*/\1/p')
    top=$(dirname "$(dirname "${original:-none/none}")")
    [ -e "$top/submit/common.sh" ] || top=${SLURM_SUBMIT_DIR:-.}
fi
[ -e "$top/submit/common.sh" ] || { echo "slurm.sh: $top holds no submit/common.sh; submit from the checkout of vitrain" >&2; exit 1; }
# shellcheck source=submit/common.sh
. "$top/submit/common.sh"

arguments=("$@")
# Continue from the job's own checkpoints; while there are none, `resume` of the flags or of the YAML file applies.
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || arguments+=(--resume_newest)
program "${arguments[@]}"

# Sets `flags`; fails if this Slurm can't start the program's MPI.
choose_mpi() {
    local offered kind
    if [ -n "${SRUN_MPI:-}" ]; then flags+=("--mpi=$SRUN_MPI"); return; fi
    [ -z "${SLURM_MPI_TYPE:-}" ] || return 0 # the site's choice, which srun reads itself
    offered=" $(srun --mpi=list 2>&1 | tr -s '[:space:]' ' ') "
    case $(mpi_of_program) in
    openmpi) set -- pmix ;; # most builds, also Debian's, have no pmi2
    mpich) set -- cray_shasta pmi2 pmix ;;
    none) return 0 ;;
    esac
    if [ "$1" = cray_shasta ] && [ -z "${CRAY_MPICH_VERSION:-}" ]; then shift; fi
    for kind in "$@"; do
        case $offered in *" $kind "*) flags+=("--mpi=$kind"); return ;; esac
    done
    return 1
}

# --kill-on-bad-exit=0: ranks that end with 75 don't end at the same moment, and Slurm must not kill the last ones. A rank
# that fails ends the others itself. --cpus-per-task: since Slurm 22.05 srun no longer inherits it from sbatch.
flags=(--kill-on-bad-exit=0)
check_bind
[ "${BIND:-none}" = none ] || flags+=(--cpu-bind=ldoms)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || flags+=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
if [ "${LAUNCHER:-srun}" != mpirun ] && choose_mpi; then
    launch=(srun "${flags[@]}")
else
    echo "slurm.sh: mpirun starts the ranks, which Slurm does not signal by itself: unless this job was submitted with --signal=B:USR1@120, it is killed at its time limit, and not requeued" >&2
    # shellcheck disable=SC2119 # no further flags
    mpirun_command
    launch=("${mpirun[@]}")
fi

# In the background, so that a signal to this shell reaches the ranks through srun or mpirun at once.
"${launch[@]}" "${command[@]}" &
launched=$!
trap 'kill -USR1 $launched' USR1 USR2 HUP
trap 'kill -TERM $launched' TERM INT
status=128
while [ "$status" -ge 128 ] && kill -0 "$launched" 2>/dev/null; do # a trapped signal ends `wait` too
    wait "$launched"; status=$?
done
wait "$launched" 2>/dev/null; last=$?
[ "$last" -eq 127 ] || status=$last

if [ "$status" -eq 75 ]; then
    # A cancelled job is no longer RUNNING and is not requeued.
    state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T 2>/dev/null) || state=RUNNING
    case ${state:-RUNNING} in
    RUNNING) scontrol requeue "$SLURM_JOB_ID" || echo "slurm.sh: the job can't be requeued; submit it again with --resume" >&2 ;;
    *) echo "slurm.sh: the job is $state: not requeued" >&2 ;;
    esac
fi
exit "$status"
