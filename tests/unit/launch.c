/* src/parallel/launch: who started the process, according to the variables that launchers set. */
#include "parallel/launch.h"

#include "base/text.h"
#include "test.h"

extern char **environ;

/* Detects with these variables ("NAME=value", NULL ends the list) and nothing else of the environment. */
static vt_status detect_with(vt_launch *launch, const char *const *variables)
{
    char **before = environ, *now[16] = {NULL};
    for (int i = 0; variables[i] != NULL; i++) now[i] = vt_text_copy(variables[i]);
    environ = now;
    vt_status status = vt_launch_detect(launch);
    environ = before;
    for (int i = 0; now[i] != NULL; i++) free(now[i]);
    return status;
}

static void check(vt_launcher launcher, int rank, int world_size, int local_rank, int local_size, const char *address,
                  const char *const *variables)
{
    vt_launch launch;
    const char *first = variables[0] != NULL ? variables[0] : "nothing set";
    EXPECT_OK(detect_with(&launch, variables));
    EXPECT(launch.launcher == launcher, "%s: %s", first, vt_launch_name(launch.launcher));
    EXPECT(launch.rank == rank && launch.world_size == world_size, "%s: %d of %d", first, launch.rank,
           launch.world_size);
    EXPECT(launch.local_rank == local_rank && launch.local_size == local_size, "%s: %d of %d", first, launch.local_rank,
           launch.local_size);
    EXPECT(strcmp(launch.address, address) == 0, "%s: %s", first, launch.address);
}
#define CHECK(launcher, rank, size, local_rank, local_size, address, ...)                                              \
    check(launcher, rank, size, local_rank, local_size, address, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#define DETECT(launch, ...) EXPECT_OK(detect_with(launch, (const char *const[]){__VA_ARGS__, NULL}))

#define EXPECT_BAD(part, ...)                                                                                          \
    do {                                                                                                               \
        vt_launch launch_;                                                                                             \
        EXPECT_ERROR(detect_with(&launch_, (const char *const[]){__VA_ARGS__, NULL}), part);                           \
    } while (0)

TEST(started_by_hand)
{
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "localhost");
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "localhost", "RANK=", "WORLD_SIZE=");
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "other", "MASTER_ADDR=other");
    vt_launch launch;
    DETECT(&launch, "MASTER_PORT=1234");
    EXPECT(launch.port == 1234 && !vt_launch_has_mpi(&launch));
}

TEST(torchrun)
{
    CHECK(VT_LAUNCHER_TORCHRUN, 5, 8, 1, 4, "h0", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
          "MASTER_ADDR=h0");
    CHECK(VT_LAUNCHER_TORCHRUN, 5, 8, 1, 4, "localhost", "RANK=5", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4");
    CHECK(VT_LAUNCHER_TORCHRUN, 5, 8, 1, -1, "localhost", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1");
    CHECK(VT_LAUNCHER_TORCHRUN, 5, 8, 5, -1, "localhost", "RANK=5", "WORLD_SIZE=8");
    CHECK(VT_LAUNCHER_TORCHRUN, 0, 1, 0, 1, "localhost", "RANK=0", "WORLD_SIZE=1");
    EXPECT_BAD("RANK=1 is set, but WORLD_SIZE is not", "RANK=1");
    EXPECT_BAD("WORLD_SIZE=2 is set, but RANK is not", "WORLD_SIZE=2");
    EXPECT_BAD("RANK=2 is outside WORLD_SIZE=2: ranks are 0 to 1", "RANK=2", "WORLD_SIZE=2");
    EXPECT_BAD("RANK=-1: expected 0 to", "RANK=-1", "WORLD_SIZE=2");
    EXPECT_BAD("RANK=1x: expected a whole number", "RANK=1x", "WORLD_SIZE=2");
    EXPECT_BAD("WORLD_SIZE=0: expected 1 to", "RANK=0", "WORLD_SIZE=0");
    EXPECT_BAD("LOCAL_RANK=4 is outside LOCAL_WORLD_SIZE=4", "RANK=1", "WORLD_SIZE=8", "LOCAL_RANK=4",
               "LOCAL_WORLD_SIZE=4");
    EXPECT_BAD("MASTER_PORT=70000: expected 1 to 65535", "RANK=1", "WORLD_SIZE=8", "MASTER_PORT=70000");
}

/* Scripts set torchrun's variables from the launcher's: then MPI is present as well. */
TEST(torchrun_inside_another)
{
    vt_launch launch;
    DETECT(&launch, "RANK=1", "WORLD_SIZE=2");
    EXPECT(!vt_launch_has_mpi(&launch));
    DETECT(&launch, "RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
           "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1");
    EXPECT(launch.launcher == VT_LAUNCHER_TORCHRUN && vt_launch_has_mpi(&launch));
    EXPECT(launch.local_rank == 0 && launch.local_size == 1);
    DETECT(&launch, "RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1");
    EXPECT(!vt_launch_has_mpi(&launch) && launch.rank == 1);
    DETECT(&launch, "RANK=1", "WORLD_SIZE=2", "PMIX_RANK=1");
    EXPECT(!vt_launch_has_mpi(&launch) && launch.rank == 1);
}

/* Variables left over from elsewhere, or set by mistake, are named. A process that was started by one process of
 * another launcher, or by torchrun in each of them, is fine. */
TEST(torchrun_contradicts_another)
{
    EXPECT_BAD(
        "RANK=0 and WORLD_SIZE=1 say that this is rank 0 of 1, Open MPI (OMPI_COMM_WORLD_RANK) says rank 1 of 2: "
        "unset RANK",
        "RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2");
    EXPECT_BAD("Slurm (SLURM_PROCID) says rank 1 of 2", "RANK=0", "WORLD_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2");
    CHECK(VT_LAUNCHER_TORCHRUN, 3, 4, 3, -1, "localhost", "RANK=3", "WORLD_SIZE=4", "SLURM_PROCID=0", "SLURM_NTASKS=1");
    CHECK(VT_LAUNCHER_TORCHRUN, 5, 8, 1, 4, "localhost", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
          "TORCHELASTIC_RUN_ID=none", "SLURM_PROCID=1", "SLURM_NTASKS=2");
}

TEST(open_mpi)
{
    CHECK(VT_LAUNCHER_OPEN_MPI, 3, 8, 1, 2, "localhost", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8",
          "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3");
    EXPECT_BAD("OMPI_COMM_WORLD_RANK=3 is set, but OMPI_COMM_WORLD_SIZE is not: Open MPI", "OMPI_COMM_WORLD_RANK=3");
    /* mpirun in a batch job: on the other nodes its daemons are a step of Slurm's, one task each */
    CHECK(VT_LAUNCHER_OPEN_MPI, 5, 8, 1, 4, "n1", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
          "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4", "SLURM_PROCID=0", "SLURM_NTASKS=1",
          "SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=n2", "SLURM_JOB_NODELIST=n[1-2]");
    vt_launch launch;
    DETECT(&launch, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1");
    EXPECT(vt_launch_has_mpi(&launch));
}

TEST(slurm)
{
    CHECK(VT_LAUNCHER_SLURM, 5, 8, 1, -1, "localhost", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1");
    CHECK(VT_LAUNCHER_SLURM, 5, 8, 1, 4, "node003", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
          "SLURM_STEP_ID=0", "SLURM_JOB_ID=12", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4(x2)",
          "SLURM_STEP_NODELIST=node[003-008,12]");
    CHECK(VT_LAUNCHER_SLURM, 9, 11, 1, 3, "a", "SLURM_PROCID=9", "SLURM_NTASKS=99", "SLURM_STEP_NUM_TASKS=11",
          "SLURM_LOCALID=1", "SLURM_STEPID=3", "SLURM_JOBID=12", "SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=4(x2),3",
          "SLURM_JOB_NODELIST=a,b,c");
    CHECK(VT_LAUNCHER_SLURM, 5, 8, 1, 4, "localhost", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
          "SLURM_NTASKS_PER_NODE=4");
    /* the job's count, in a step with fewer tasks */
    CHECK(VT_LAUNCHER_SLURM, 1, 2, 1, -1, "localhost", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1",
          "SLURM_NTASKS_PER_NODE=8");
    EXPECT_BAD("SLURM_PROCID=1 is set, but SLURM_STEP_NUM_TASKS is not", "SLURM_PROCID=1");
    EXPECT_BAD("SLURM_PROCID=8 is outside SLURM_NTASKS=8", "SLURM_PROCID=8", "SLURM_NTASKS=8");
    EXPECT_BAD("SLURM_JOB_NODELIST=[: no first node", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_NODELIST=[");
}

/* Processes that the batch script itself starts, and an interactive shell of salloc: one rank, whatever the job has
 * room for. */
TEST(slurm_without_a_step)
{
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "localhost", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_LOCALID=0",
          "SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]");
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "localhost", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=12",
          "SLURM_STEP_ID=4294967290");
    CHECK(VT_LAUNCHER_NONE, 0, 1, 0, 1, "localhost", "SLURM_NTASKS=8", "SLURM_JOB_ID=12");
}

TEST(first_nodes)
{
    static const char *const lists[][2] = {{"SLURM_STEP_NODELIST=n7", "n7"},
                                           {"SLURM_STEP_NODELIST=n7,n8", "n7"},
                                           {"SLURM_STEP_NODELIST=n[07,09-11]", "n07"},
                                           {"SLURM_STEP_NODELIST=rack[1-2]node[04,07],x", "rack1node04"},
                                           {"SLURM_STEP_NODELIST=n[3-4].example.org", "n3.example.org"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        CHECK(VT_LAUNCHER_SLURM, 0, 2, 0, -1, lists[i][1], "SLURM_PROCID=0", "SLURM_NTASKS=2", lists[i][0]);
}

/* Counts of tasks that are none say nothing of the ranks of a node. */
TEST(slurm_without_counts)
{
    static const char *const counts[] = {"many", "0", "4(x", "4(x0)", "4(x2", "4", "4;4", "99999999999"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char *variable = vt_test_owned(vt_text_format("SLURM_STEP_TASKS_PER_NODE=%s", counts[i]));
        CHECK(VT_LAUNCHER_SLURM, 5, 8, 1, -1, "localhost", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
              "SLURM_STEP_ID=0", "SLURM_NODEID=1", variable);
    }
}

TEST(addresses_that_are_too_long)
{
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    char *address = vt_test_owned(vt_text_format("MASTER_ADDR=%s", name));
    char *nodes = vt_test_owned(vt_text_format("SLURM_STEP_NODELIST=%s", name));
    EXPECT_BAD("399 bytes are too long for a host", address);
    EXPECT_BAD(": no first node can be read from it; set MASTER_ADDR", "SLURM_PROCID=0", "SLURM_NTASKS=2", nodes);
}

/* The first rank would find MASTER_PORT taken by torchrun itself. */
TEST(ports_beside_torchruns)
{
    vt_launch launch;
    DETECT(&launch, "RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a", "MASTER_PORT=1234");
    EXPECT(launch.port == 1235);
    DETECT(&launch, "RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a", "MASTER_PORT=65535");
    EXPECT(launch.port == 65534);
}

TEST(pmi)
{
    CHECK(VT_LAUNCHER_PMI, 3, 4, 1, 2, "localhost", "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1",
          "MPI_LOCALNRANKS=2");
    CHECK(VT_LAUNCHER_PMI, 3, 4, 3, -1, "localhost", "PMIX_RANK=3", "PMI_SIZE=4");
    /* MPICH's mpiexec in a Slurm job: its daemons are a step, one task a node */
    CHECK(VT_LAUNCHER_PMI, 3, 4, 1, 2, "n1", "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
          "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=n[1-2]");
    /* srun --mpi=pmi2 */
    CHECK(VT_LAUNCHER_SLURM, 3, 4, 1, -1, "localhost", "PMI_RANK=3", "PMI_SIZE=4", "SLURM_PROCID=3", "SLURM_NTASKS=4",
          "SLURM_LOCALID=1", "SLURM_STEP_ID=0");
    EXPECT_BAD("PMIX_RANK=3 is set, but nothing says how many ranks there are, for which PMIx has no variable: set "
               "PMI_SIZE",
               "PMIX_RANK=3");
    EXPECT_BAD("PMI_RANK=3 is set, but PMI_SIZE is not", "PMI_RANK=3");
    EXPECT_BAD("PMI_SIZE=3 is set, but PMI_RANK is not", "PMI_SIZE=3");
}
