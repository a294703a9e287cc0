#!/usr/bin/env bash
# tests/slurm/try_slurm.sh: tests submit/slurm.sh under a real Slurm, which it starts for itself: slurmctld and slurmd on this
# host, with all files in a fresh directory and without munge. It needs root and Debian's slurm-wlm. Not part of `make test`.
#
# A job of TASKS ranks (2) trains on a small synthetic set, gets SIGUSR1, saves, ends with 75, is requeued, continues and
# finishes. Another job is cancelled and must not be requeued.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
export VITRAIN=${VITRAIN:-$top/vitrain}
tasks=${TASKS:-2}
for tool in slurmctld slurmd sbatch srun scontrol; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install slurm-wlm" >&2; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "slurmd needs root" >&2; exit 77; }

directory=$(mktemp -d)
cd "$directory"
export SLURM_CONF=$directory/slurm.conf
host=$(hostname -s)
cat >slurm.conf <<END
ClusterName=trial
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
mkdir state spool
stop() {
    scancel --user=root 2>/dev/null || true
    sleep 1
    for daemon in slurmd slurmctld; do
        [ -e $daemon.pid ] || continue
        process=$(cat $daemon.pid)
        kill "$process" || true
        for _ in $(seq 50); do kill -0 "$process" 2>/dev/null || break; sleep 0.2; done # it writes its state before it ends
    done
    if [ "${passed:-}" ]; then rm -rf "$directory"; else echo "the files are in $directory" >&2; fi
}
trap stop EXIT
slurmctld -i
slurmd

# until_true SECONDS COMMAND...: waits until the command succeeds.
until_true() {
    local seconds=$1; shift
    for _ in $(seq "$seconds"); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 1; done
    echo "waited $seconds s for: $*" >&2
    tail -n 30 ./*.out >&2 || true
    return 1
}
state_is() { [ "$(squeue --noheader --jobs="$1" --format=%T 2>/dev/null)" = "$2" ]; }
until_true 20 sh -c 'sinfo --noheader --format=%T | grep -q idle'
echo "srun --mpi: $(srun --mpi=list 2>&1 | tr -s '[:space:]' ' ')"

"$VITRAIN" synth data --img_size=[32,64] --channels=8 --years=1 --valid_steps=64 >synth.log
submit() { # OUTPUT TAG
    sbatch --parsable --ntasks="$tasks" --overcommit --output="$1" "$top/submit/slurm.sh" --config=demo \
        --yaml_config="$top/config/ViT.yaml" --data_dir="$directory/data" --expdir="$directory/runs" --run_num="$2" \
        --num_epochs=4 --embed_dim=32 --depth=2 --num_threads=1 --checkpoint_every=0
}
steps_of() { echo "$directory"/runs/demo/*/"$1"/metrics.csv; }
has_steps() { [ "$(wc -l <"$(steps_of "$1")")" -gt "$2" ]; }

job=$(submit first.out first)
until_true 60 has_steps first 5
scancel --signal=USR1 "$job"
until_true 60 state_is "$job" PENDING
before=$(($(wc -l <"$(steps_of first)") - 1))
echo "stopped by SIGUSR1 after step $before, requeued"
scontrol update JobId="$job" StartTime=now # Slurm holds a requeued job for two minutes
until_true 240 grep -q 'DONE ---- rank 0' first.out
grep -q 'resuming from' first.out
after=$(($(wc -l <"$(steps_of first)") - 1))
[ "$after" -gt "$before" ]
[ "$(sed 1d "$(steps_of first)" | cut -d, -f1)" = "$(seq "$after")" ] ||
    { echo "metrics.csv doesn't have every step once" >&2; exit 1; }
echo "continued and finished; metrics.csv has each of the $after steps once"

job=$(submit second.out second)
until_true 60 has_steps second 5
scancel "$job"
until_true 60 grep -q 'not requeued' second.out
until_true 20 sh -c "! squeue --noheader --jobs=$job 2>/dev/null | grep -q ."
echo "a cancelled job stays cancelled"
passed=1
