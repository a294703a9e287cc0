# submit/*.sh, with stand-ins for srun, mpirun, nsys and scontrol that record their arguments and run the command.

# A folder of stand-ins at the front of the PATH, the program among them; their arguments are in ./calls.
stand_ins() {
    mkdir -p fake
    for name in srun mpirun nsys scontrol; do
        printf '#!/bin/sh\necho "%s $*" >>"%s/calls"\n' $name "$PWD" >fake/$name
    done
    cat >>fake/srun <<'EOF'
if [ "$1" = --mpi=list ]; then echo "MPI plugin types are..."; printf '\tpmi2\n\tpmix\n' >&2; exit 0; fi
while [ "${1#--}" != "$1" ]; do shift; done
[ "$1" != nsys ] || { "$@"; exit; }
exec "$@"
EOF
    cat >>fake/mpirun <<'EOF'
if [ "$1" = --version ]; then echo "${FAKE_MPI:-mpirun (Open MPI) 4.1.4}"; exit 0; fi
for word; do [ "${word##*/}" != vitrain ] || break; shift; done
exec "$@"
EOF
    cat >>fake/nsys <<'EOF'
for word; do [ "${word##*/}" != vitrain ] || break; shift; done
exec "$@"
EOF
    printf '#!/bin/sh\necho "${FAKE_LINKED}"\n' >fake/ldd
    printf '#!/bin/sh\necho "${FAKE_STATE:-RUNNING}"\n' >fake/squeue
    printf '#!/bin/sh\nwords=; for word; do words="$words[$word]"; done\nexec 3>>"%s/ran"; echo "$words${RANK-}/${WORLD_SIZE-}" >&3 # one write, as ranks share %s/ran\nexit ${FAKE_EXIT:-0}\n' \
        "$PWD" "$PWD" >fake/vitrain
    chmod +x fake/*
    export PATH=$PWD/fake:$PATH VITRAIN=$PWD/fake/vitrain FAKE_LINKED="libmpi.so.40 => libmpi.so.40"
    unset BIND SLURM_JOB_ID SLURM_RESTART_COUNT SLURM_CPUS_PER_TASK SLURM_MPI_TYPE NRANKS ENABLE_PROFILING PROFILE_OUTPUT \
        PROFILE_DIR SRUN_MPI LAUNCHER MPIRUN_FLAGS RANK WORLD_SIZE
}

called() { contains "$(cat calls 2>/dev/null)" "$1"; }
not_called() { case $(cat calls 2>/dev/null) in *"$1"*) cat calls; return 1 ;; esac; }

stand_ins

test_slurm() {
    refuses "not inside a Slurm job; use sbatch" -- "$TOP/submit/slurm.sh"
    export SLURM_JOB_ID=12
    "$TOP/submit/slurm.sh" --config=short "--img_size=[32, 64]"
    called "srun --kill-on-bad-exit=0 --mpi=pmix $VITRAIN --config=short"
    contains "$(cat ran)" "[--config=short][--img_size=[32, 64]]/"
    not_called scontrol
    FAKE_LINKED=libmpich.so.12 SLURM_CPUS_PER_TASK=4 "$TOP/submit/slurm.sh"
    called "srun --kill-on-bad-exit=0 --cpus-per-task=4 --mpi=pmi2 $VITRAIN"
    SRUN_MPI=own "$TOP/submit/slurm.sh"
    called "srun --kill-on-bad-exit=0 --mpi=own $VITRAIN"
    rm calls
    SLURM_MPI_TYPE=site "$TOP/submit/slurm.sh"
    called "srun --kill-on-bad-exit=0 $VITRAIN"
    BIND=numa "$TOP/submit/slurm.sh"
    called "srun --kill-on-bad-exit=0 --cpu-bind=ldoms"
    output=$(LAUNCHER=mpirun "$TOP/submit/slurm.sh" --depth=2 2>&1)
    called "mpirun --bind-to none"
    contains "$output" "unless this job was submitted with --signal=B:USR1@120"
    sed -i 's/\\tpmix/\\tnone/' fake/srun # a Slurm that Open MPI can't be started by
    rm calls
    "$TOP/submit/slurm.sh" --depth=2
    called "mpirun --bind-to none"
    VITRAIN=$PWD/none refuses "/none: no such program; build it with make" -- "$TOP/submit/slurm.sh"
}

test_slurm_requeues() {
    export SLURM_JOB_ID=12
    FAKE_EXIT=75 fails 75 "$TOP/submit/slurm.sh"
    called "scontrol requeue 12"
    rm calls
    FAKE_EXIT=75 FAKE_STATE=COMPLETING fails 75 "$TOP/submit/slurm.sh"
    contains "$output" "the job is COMPLETING: not requeued"
    not_called requeue
    FAKE_EXIT=1 fails 1 "$TOP/submit/slurm.sh"
    not_called requeue
    rm ran
    SLURM_RESTART_COUNT=1 "$TOP/submit/slurm.sh" --depth=2
    contains "$(cat ran)" "[--depth=2][--resume_newest]/"
    rm ran
    SLURM_RESTART_COUNT=1 "$TOP/submit/slurm.sh" --resume=PATH
    contains "$(cat ran)" "[--resume=PATH][--resume_newest]/"
    rm ran
    SLURM_RESTART_COUNT=1 "$TOP/submit/slurm.sh" --resume --depth=2
    contains "$(cat ran)" "[--resume][--depth=2][--resume_newest]/"
    for line in signal=USR1@120 requeue; do grep -q "^#SBATCH --$line" "$TOP/submit/slurm.sh"; done
}

# sbatch runs a copy of the script: the original is where Slurm says, or in the folder it was submitted from.
test_slurm_runs_a_copy() {
    cp "$TOP/submit/slurm.sh" slurm_script
    export SLURM_JOB_ID=12
    SLURM_SUBMIT_DIR=$TOP ./slurm_script --depth=2
    called "scontrol show job -o 12"
    contains "$(cat ran)" "[--depth=2]"
    echo "echo 'JobId=12 UserId=x Command=$TOP/submit/slurm.sh --depth=3 WorkDir=/'" >>fake/scontrol
    SLURM_SUBMIT_DIR=/ ./slurm_script --depth=3
    contains "$(cat ran)" "[--depth=3]"
    rm fake/scontrol
    SLURM_SUBMIT_DIR=$PWD refuses "holds no submit/common.sh" -- ./slurm_script
}

# Slurm's signals to the script are passed on to the ranks, and their status is returned.
test_slurm_passes_signals_on() {
    cat >fake/vitrain <<'EOF'
#!/bin/bash
trap 'exit 75' USR1
touch started
while :; do sleep 0.1; done
EOF
    SLURM_JOB_ID=12 "$TOP/submit/slurm.sh" &
    local script=$! status=0
    wait_until [ -e started ]
    kill -USR1 $script
    wait $script || status=$?
    [ $status -eq 75 ] || { echo "exit status $status"; return 1; }
    called "scontrol requeue 12"
}

test_mpirun() {
    "$TOP/submit/mpirun.sh" 8 --config=short
    called "-n 8 $VITRAIN --config=short"
    called "mpirun --bind-to none"
    BIND=numa "$TOP/submit/mpirun.sh" 2
    called "mpirun --map-by numa --bind-to numa"
    FAKE_MPI="HYDRA build details:" BIND=numa "$TOP/submit/mpirun.sh" 2
    called "mpirun -bind-to numa -map-by numa -n 2"
    BIND=socket refuses "BIND=socket: expected numa" -- "$TOP/submit/mpirun.sh" 2
    FAKE_MPI="HYDRA build details:" NRANKS=3 MPIRUN_FLAGS="-hosts a,b" "$TOP/submit/mpirun.sh" --depth=2
    called "mpirun -hosts a,b -n 3 $VITRAIN --depth=2"
    BENCHY_OUTPUT=x "$TOP/submit/mpirun.sh" 2
    called "-x BENCHY_OUTPUT"
    OMP_PLACES=cores NVIDIA_TF32_OVERRIDE=0 CUDNN_HOME=/cudnn "$TOP/submit/mpirun.sh" 2
    for name in OMP_PLACES NVIDIA_TF32_OVERRIDE CUDNN_HOME; do called "-x $name"; done
    rm calls
    FAKE_MPI=HYDRA SLURM_JOB_ID=12 "$TOP/submit/mpirun.sh" --depth=2
    called "mpirun $VITRAIN --depth=2"
    refuses "mpirun.sh: how many ranks? submit/mpirun.sh N" -- "$TOP/submit/mpirun.sh" --depth=2
    NRANKS=two refuses "NRANKS=two: expected a number of ranks" -- "$TOP/submit/mpirun.sh"
    FAKE_EXIT=75 fails 75 "$TOP/submit/mpirun.sh" 2
}

test_local() {
    "$TOP/submit/local.sh" --config=short
    not_called mpirun
    contains "$(cat ran)" "[--config=short]/"
    "$TOP/submit/local.sh" 4 --config=short
    called "--oversubscribe"
    called "-n 4 $VITRAIN --config=short"
    # no mpirun: torchrun's variables
    mkdir bare
    for tool in bash sh dirname basename readlink; do ln -s "$(command -v $tool)" bare/$tool; done
    rm ran
    PATH=$PWD/bare "$TOP/submit/local.sh" 3 --depth=2
    [ "$(sort ran | tr '\n' ' ')" = "[--depth=2]0/3 [--depth=2]1/3 [--depth=2]2/3 " ] || { cat ran; return 1; }
    FAKE_EXIT=75 PATH=$PWD/bare fails 75 "$TOP/submit/local.sh" 3
    PATH=$PWD/bare refuses "there is no mpirun in the PATH" -- "$TOP/submit/mpirun.sh" 3
    # ctrl-C: the ranks, which bash starts with SIGINT ignored, get a SIGTERM
    cat >fake/vitrain <<'EOF'
#!/bin/bash
trap 'exit 75' TERM
echo >>started
while :; do sleep 0.1; done
EOF
    ln -s "$(command -v sleep)" bare/sleep
    env --default-signal=INT PATH="$PWD/bare" "$TOP/submit/local.sh" 2 &
    local script=$! status=0
    wait_until has_lines 2 started
    kill -INT $script
    wait $script || status=$?
    [ $status -eq 75 ] || { echo "exit status $status"; return 1; }
}

test_profiling() {
    export ENABLE_PROFILING=1
    local profile="nsys profile --trace=cuda,cublas,nvtx --kill none -c cudaProfilerApi -f true -o"
    PROFILE_OUTPUT=mine "$TOP/submit/local.sh" --depth=2
    called "$profile ./mine $VITRAIN --depth=2"
    PROFILE_DIR=reports "$TOP/submit/mpirun.sh" 2 --profile_graphs
    called "${profile% -o} --cuda-graph-trace=node -o reports/profile $VITRAIN --profile_graphs"
    "$TOP/submit/local.sh" --profile_graphs=false
    called "$profile ./profile $VITRAIN --profile_graphs=false"
    SLURM_JOB_ID=12 "$TOP/submit/slurm.sh" --depth=4
    called "--mpi=pmix $profile ./profile $VITRAIN --depth=4"
    # a file for each rank, whoever says which it is
    for variable in OMPI_COMM_WORLD_RANK PMI_RANK RANK SLURM_PROCID; do
        env PROFILE_OUTPUT=$variable $variable=3 "$TOP/submit/local.sh" --profile_ranks=all "--img_size=[32, 64]"
        called "$profile ./$variable-rank3 $VITRAIN --profile_ranks=all --img_size=[32, 64]"
    done
    "$TOP/submit/local.sh" --profile_ranks all --profile_graphs
    called "${profile% -o} --cuda-graph-trace=node -o ./profile-rank0 $VITRAIN --profile_ranks all --profile_graphs"
    "$TOP/submit/local.sh" --profile_ranks=first
    called "$profile ./profile $VITRAIN --profile_ranks=first"
    mkdir bare
    for tool in bash sh dirname basename readlink mkdir; do ln -s "$(command -v $tool)" bare/$tool; done
    PATH=$PWD/bare refuses "ENABLE_PROFILING=1 can record nothing without nsys, which is not in the PATH" -- "$TOP/submit/local.sh"
    ENABLE_PROFILING=0 PATH=$PWD/bare "$TOP/submit/local.sh"
}
