# Functions for the other scripts of this folder, which source this file. They set `top` to the directory above submit/,
# and `script` to the name for messages.
# shellcheck shell=bash disable=SC2034,SC2154

fail() { echo "$(basename "$script"): $*" >&2; exit 1; }

is_number() { [[ $1 =~ ^[1-9][0-9]*$ ]]; }

# path_of_program: VITRAIN, the program beside submit/, or where submit/ is installed (share/vitrain) the one in bin/.
path_of_program() {
    if [ -z "${VITRAIN:-}" ] && [ ! -x "$top/vitrain" ] && [ -x "$top/../../bin/vitrain" ]; then
        echo "$top/../../bin/vitrain"
    else
        echo "${VITRAIN:-$top/vitrain}"
    fi
}

# program ARGUMENTS...: sets `command`, the program with its arguments, under nsys if ENABLE_PROFILING=1. The report is
# ${PROFILE_DIR:-.}/${PROFILE_OUTPUT:-profile}.nsys-rep. nsys wraps every rank, but only rank 0 starts the capture. With
# --profile_ranks=all every rank starts one, into ${PROFILE_OUTPUT:-profile}-rank<rank>.nsys-rep.
program() {
    local vitrain
    vitrain=$(path_of_program)
    [ -x "$vitrain" ] || fail "$vitrain: no such program; build it with make, or name it with VITRAIN=PATH"
    command=("$vitrain" "$@")
    [ "${ENABLE_PROFILING:-0}" = 1 ] || return 0
    command -v nsys >/dev/null ||
        fail "ENABLE_PROFILING=1 can record nothing without nsys, which is not in the PATH: load NVIDIA Nsight Systems, or unset ENABLE_PROFILING"
    local directory=${PROFILE_DIR:-.} graphs=() argument previous="" ranks=first nsys
    for argument in "$@"; do
        case $argument in
        --profile_graphs=[Ff]alse | --profile_graphs=[Nn]o | --profile_graphs=[Oo]ff | --profile_graphs=0) graphs=() ;;
        --profile_graphs | --profile_graphs=*) graphs=(--cuda-graph-trace=node) ;;
        --profile_ranks=*) ranks=${argument#*=} ;;
        esac
        [ "$previous" != --profile_ranks ] || ranks=$argument
        previous=$argument
    done
    mkdir -p "$directory" || fail "PROFILE_DIR=$directory can't be made"
    # shellcheck disable=SC2054 # the commas are meant
    nsys=(nsys profile --trace=cuda,cublas,nvtx --kill none -c cudaProfilerApi -f true "${graphs[@]}"
        -o "$directory/${PROFILE_OUTPUT:-profile}")
    if [ "${ranks,,}" = all ]; then
        # each rank adds its number to the name of its report, which is the last word before the program; the variables are
        # those of Open MPI, MPICH, torchrun (and local.sh), and Slurm
        # shellcheck disable=SC2016 # expanded by the rank's shell
        nsys=(bash -c 'words=("${@:2:$1}"); shift "$(($1 + 1))"
            exec "${words[@]}-rank${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${RANK:-${SLURM_PROCID:-0}}}}" "$@"'
            nsys "${#nsys[@]}" "${nsys[@]}")
    fi
    command=("${nsys[@]}" "${command[@]}")
}

# check_bind: is BIND none (or not set) or numa?
check_bind() {
    case ${BIND:-none} in
    none | numa) ;;
    *) fail "BIND=$BIND: expected numa (a rank stays in a NUMA domain) or none" ;;
    esac
}

# mpi_of_program: prints the MPI that the program is linked with: openmpi, mpich or none.
mpi_of_program() {
    case $(ldd "$(path_of_program)" 2>/dev/null) in
    *libmpich.so* | *libmpi_cray* | *libmpi.so.12*) echo mpich ;; # MPICH's ABI: Intel MPI too
    *libmpi.so*) echo openmpi ;;
    *) echo none ;;
    esac
}

# mpirun_command [FLAG...]: sets `mpirun`, the command up to the number of ranks, for the mpirun in the PATH, with
# MPIRUN_FLAGS. Only Open MPI gets the FLAGs, and also: no binding (it would pin a rank with all its threads to one core),
# permission to run as root (for containers), and the names of the variables that other hosts need. BIND=numa: ranks are
# dealt out to NUMA domains, and each stays on the cores of its own.
mpirun_command() {
    local flags=() name bind=(--bind-to none)
    check_bind
    command -v mpirun >/dev/null || fail "there is no mpirun in the PATH: install or load Open MPI or MPICH"
    case $(mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*)
        [ "${BIND:-none}" = none ] || bind=(--map-by numa --bind-to numa)
        flags=("${bind[@]}" "$@")
        [ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
        for name in $(compgen -e); do
            case $name in # variables of the program and its libraries, and paths of these
            ENABLE_PROFILING | OMP_* | GOMP_* | MASTER_ADDR | MASTER_PORT | NCCL_* | NVIDIA_* | VITRAIN_* | BENCHY_* | XDG_CACHE_HOME | \
                CUDA_HOME | CUDA_PATH | CUDNN_HOME | LD_LIBRARY_PATH) flags+=(-x "$name") ;;
            esac
        done
        ;;
    *) [ "${BIND:-none}" = none ] || flags=(-bind-to numa -map-by numa) ;; # MPICH
    esac
    # shellcheck disable=SC2206 # words on purpose
    mpirun=(mpirun "${flags[@]}" ${MPIRUN_FLAGS-})
}
