/* Several launchers may have left their variables: mpirun in a batch job of Slurm, srun of a script that sets
 * torchrun's. The innermost one counts: the one that started this process. */
#include "parallel/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { DEFAULT_PORT = 29500 };

/* ---- variables ---- */

/* NULL if it is not set or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The first of these that is set, otherwise NULL. */
#define FIRST_SET(...) first_set((const char *const[]){__VA_ARGS__, NULL})
static const char *first_set(const char *const *names)
{
    while (*names != NULL && variable(*names) == NULL) names++;
    return *names;
}

static vt_status read_number(const char *name, int least, int most, int *value)
{
    vt_status status = VT_OK;
    int64_t number = 0;
    const char *text = variable(name);
    VT_CHECK(vt_text_to_integer(text, &number), "%s=%.60s: expected a whole number", name, text);
    VT_CHECK(number >= least && number <= most, "%s=%.60s: expected %d to %d", name, text, least, most);
    *value = (int)number;
done:
    return status;
}

/* What a launcher says a process is, and by which variables; of several names for one thing the first that is set
 * counts. */
typedef struct {
    vt_launcher launcher;
    bool (*present)(void); /* NULL: when the rank or the number of ranks is set */
    const char *rank[3], *size[4], *local_rank[2], *local_size[2];
} source;

/* The rank and the number of ranks, which must both be set. */
static vt_status read_world(vt_launch *launch, const source *from)
{
    vt_status status = VT_OK;
    const char *rank = first_set(from->rank), *size = first_set(from->size);
    VT_CHECK(rank != NULL && size != NULL, "%s=%.60s is set, but %s is not: %s sets both", rank != NULL ? rank : size,
             variable(rank != NULL ? rank : size), rank != NULL ? from->size[0] : from->rank[0],
             vt_launch_name(launch->launcher));
    VT_TRY(read_number(size, 1, INT_MAX, &launch->world_size));
    VT_TRY(read_number(rank, 0, INT_MAX, &launch->rank));
    VT_CHECK(launch->rank < launch->world_size, "%s=%d is outside %s=%d: ranks are 0 to %d", rank, launch->rank, size,
             launch->world_size, launch->world_size - 1);
done:
    return status;
}

/* The place on this host, which may be unknown. */
static vt_status read_local(vt_launch *launch, const source *from)
{
    vt_status status = VT_OK;
    const char *rank = first_set(from->local_rank), *size = first_set(from->local_size);
    launch->local_rank = launch->local_size = -1;
    if (size != NULL) VT_TRY(read_number(size, 1, INT_MAX, &launch->local_size));
    if (rank != NULL) VT_TRY(read_number(rank, 0, INT_MAX, &launch->local_rank));
    VT_CHECK(size == NULL || rank == NULL || launch->local_rank < launch->local_size,
             "%s=%d is outside %s=%d: local ranks are 0 to %d", rank, launch->local_rank, size, launch->local_size,
             launch->local_size - 1);
done:
    return status;
}

/* ---- Slurm's shorthands ---- */

/* "4(x2),3": 4 tasks on each of nodes 0 and 1, 3 on node 2. -1: this node is not included. */
static int tasks_of_node(const char *text, int node)
{
    while (node >= 0 && *text != '\0') {
        char *end = NULL;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > INT_MAX) return -1;
        if (strncmp(end, "(x", 2) == 0) {
            text = end + 2;
            times = strtol(text, &end, 10);
            if (end == text || times < 1 || *end++ != ')') return -1;
        }
        if (node < times) return (int)tasks;
        node -= (int)times;
        if (*end == ',') end++;
        text = end;
    }
    return -1;
}

/* "node[003-008,12],gpu1" -> "node003"; "rack[1-2]node[04,07]" -> "rack1node04". False when it doesn't fit. */
static bool first_node(const char *list, char *name, size_t room)
{
    size_t length = 0;
    while (*list != '\0' && *list != ',') {
        if (*list == '[') {
            list++;
            while (*list >= '0' && *list <= '9' && length + 1 < room) name[length++] = *list++;
            list += strcspn(list, "]");
            if (*list == ']') list++;
        } else {
            if (length + 1 >= room) return false;
            name[length++] = *list++;
        }
    }
    name[length] = '\0';
    return length > 0;
}

/* ---- launchers ---- */

/* A process of a step (srun), not the batch script itself. In a batch script, and in what it starts without srun,
 * SLURM_PROCID is 0 and SLURM_NTASKS is what the job asked for, but no other process runs: this is a single rank. Such
 * a process has a job and no step, or a step with one of the numbers that Slurm reserves for batch scripts and
 * interactive shells (0xfffffff0 and above). Without a job, someone set the three variables by hand in place of Slurm:
 * they are believed. */
static bool has_slurm(void)
{
    int64_t number = 0;
    const char *step = FIRST_SET("SLURM_STEP_ID", "SLURM_STEPID");
    const char *job = FIRST_SET("SLURM_JOB_ID", "SLURM_JOBID");
    if (variable("SLURM_PROCID") == NULL) return false;
    if (step == NULL) return job == NULL;
    return !vt_text_to_integer(variable(step), &number) || number < INT64_C(0xfffffff0);
}

/* The step's own count first: srun may start fewer tasks on a node than the job asked for. */
static vt_status read_slurm_local_size(vt_launch *launch)
{
    vt_status status = VT_OK;
    int node = -1;
    const char *tasks = FIRST_SET("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
    if (variable("SLURM_NODEID") != NULL) VT_TRY(read_number("SLURM_NODEID", 0, INT_MAX, &node));
    if (tasks != NULL) launch->local_size = tasks_of_node(variable(tasks), node);
    if (launch->local_size < 0 && variable("SLURM_NTASKS_PER_NODE") != NULL)
        VT_TRY(read_number("SLURM_NTASKS_PER_NODE", 1, INT_MAX, &launch->local_size));
    if (launch->local_size > launch->world_size || launch->local_size <= launch->local_rank) launch->local_size = -1;
done:
    return status;
}

/* MPICH's mpiexec. Inside a Slurm job its daemons are a step of Slurm's, whose variables the ranks inherit, so
 * mpiexec's own must be checked first; srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE too, but not these. */
static bool has_hydra(void)
{
    return FIRST_SET("MPI_LOCALNRANKS", "MPI_LOCALRANKID") != NULL && variable("PMI_RANK") != NULL;
}

/* From the innermost outwards. */
static const source sources[] = {
    {VT_LAUNCHER_TORCHRUN, NULL, {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}},
    {VT_LAUNCHER_OPEN_MPI,
     NULL,
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {VT_LAUNCHER_PMI, has_hydra, {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}},
    {VT_LAUNCHER_SLURM,
     has_slurm,
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     {"SLURM_LOCALID"},
     {NULL}},
    {VT_LAUNCHER_PMI, NULL, {"PMI_RANK", "PMIX_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}},
};
enum { SOURCE_COUNT = sizeof sources / sizeof sources[0] };

static bool is_present(const source *from)
{
    return from->present != NULL ? from->present() : first_set(from->rank) != NULL || first_set(from->size) != NULL;
}

/* The first launcher from sources[from] on that is present; VT_LAUNCHER_NONE: one rank. PMIx says which rank a process
 * is, but has no variable for the number of ranks: one must ask its library. Open MPI and Slurm, which start such
 * processes, set their own variables and are recognised by those. */
static vt_status find_launcher(int from, vt_launch *launch)
{
    vt_status status = VT_OK;
    *launch = (vt_launch){.launcher = VT_LAUNCHER_NONE, .world_size = 1, .local_size = 1};
    while (from < SOURCE_COUNT && !is_present(&sources[from])) from++;
    if (from == SOURCE_COUNT) return VT_OK;
    launch->launcher = sources[from].launcher;
    VT_CHECK(launch->launcher != VT_LAUNCHER_PMI || FIRST_SET("PMI_RANK", "PMI_SIZE") != NULL,
             "PMIX_RANK=%.60s is set, but nothing says how many ranks there are, for which PMIx has no variable: set "
             "PMI_SIZE to their number, or start them with mpirun or srun",
             variable("PMIX_RANK"));
    VT_TRY(read_world(launch, &sources[from]));
    VT_TRY(read_local(launch, &sources[from]));
    if (launch->launcher == VT_LAUNCHER_SLURM) VT_TRY(read_slurm_local_size(launch));
done:
    return status;
}

/* Scripts set RANK and WORLD_SIZE from Slurm's or mpirun's variables: then MPI is present too, and may know more. One
 * of MPI's processes may also have started several ranks, or torchrun may run in each. Otherwise one of the two is
 * wrong, and each rank would be a run of its own in the same directory, or wait for ranks that don't exist. */
static vt_status look_behind_torchrun(vt_launch *launch)
{
    vt_status status = VT_OK;
    vt_launch other;
    if (find_launcher(1, &other) != VT_OK) {
        vt_error_clear(); /* whatever it is, it isn't needed */
        return VT_OK;
    }
    if (other.launcher == VT_LAUNCHER_NONE) return VT_OK;
    launch->mpi_too = other.rank == launch->rank && other.world_size == launch->world_size;
    VT_CHECK(launch->mpi_too || other.world_size == 1 || variable("TORCHELASTIC_RUN_ID") != NULL,
             "RANK=%d and WORLD_SIZE=%d say that this is rank %d of %d, %s says rank %d of %d: unset RANK and "
             "WORLD_SIZE, or start without the other",
             launch->rank, launch->world_size, launch->rank, launch->world_size, vt_launch_name(other.launcher),
             other.rank, other.world_size);
    if (!launch->mpi_too) return VT_OK;
    if (launch->local_rank < 0) launch->local_rank = other.local_rank;
    if (launch->local_size < 0 && launch->local_rank < other.local_size) launch->local_size = other.local_size;
done:
    return status;
}

static void guess_local(vt_launch *launch)
{
    if (launch->world_size == 1) launch->local_size = 1;
    if (launch->local_rank >= 0) return;
    launch->local_rank = launch->local_size > 0 ? launch->rank % launch->local_size : launch->rank;
}

/* ---- the address ---- */

static vt_status find_address(vt_launch *launch)
{
    vt_status status = VT_OK;
    const char *address = variable("MASTER_ADDR");
    /* mpirun's daemons are a step too, but not on the first node: only a rank that Slurm started uses the step's */
    const char *nodes = launch->launcher == VT_LAUNCHER_SLURM
                            ? FIRST_SET("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
                            : FIRST_SET("SLURM_JOB_NODELIST", "SLURM_NODELIST");
    launch->port = DEFAULT_PORT;
    if (variable("MASTER_PORT") != NULL) VT_TRY(read_number("MASTER_PORT", 1, 65535, &launch->port));
    /* torchrun itself listens there, for the ranks of PyTorch programs */
    if (variable("TORCHELASTIC_RUN_ID") != NULL) launch->port += launch->port < 65535 ? 1 : -1;
    strcpy(launch->address, "localhost");
    if (address != NULL) {
        VT_CHECK(strlen(address) < sizeof launch->address, "MASTER_ADDR=%.60s...: %zu bytes are too long for a host",
                 address, strlen(address));
        strcpy(launch->address, address);
    } else if (nodes != NULL && launch->launcher != VT_LAUNCHER_NONE) {
        VT_CHECK(first_node(variable(nodes), launch->address, sizeof launch->address),
                 "%s=%.60s: no first node can be read from it; set MASTER_ADDR", nodes, variable(nodes));
    }
done:
    return status;
}

vt_status vt_launch_detect(vt_launch *launch)
{
    vt_status status = VT_OK;
    VT_TRY(find_launcher(0, launch));
    if (launch->launcher == VT_LAUNCHER_TORCHRUN) VT_TRY(look_behind_torchrun(launch));
    guess_local(launch);
    VT_TRY(find_address(launch));
done:
    return status;
}

const char *vt_launch_name(vt_launcher launcher)
{
    static const char *const names[] = {
        [VT_LAUNCHER_NONE] = "no launcher",
        [VT_LAUNCHER_TORCHRUN] = "torchrun (RANK)",
        [VT_LAUNCHER_OPEN_MPI] = "Open MPI (OMPI_COMM_WORLD_RANK)",
        [VT_LAUNCHER_SLURM] = "Slurm (SLURM_PROCID)",
        [VT_LAUNCHER_PMI] = "PMI (PMI_RANK)",
    };
    return names[launcher];
}

bool vt_launch_has_mpi(const vt_launch *launch)
{
    if (launch->launcher == VT_LAUNCHER_TORCHRUN) return launch->mpi_too;
    return launch->launcher != VT_LAUNCHER_NONE;
}
