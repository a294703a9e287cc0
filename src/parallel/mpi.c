/* MPI (Open MPI, MPICH and their descendants): the engine and its groups. Every operation (mpi_operations.c) is a
 * nonblocking MPI operation whose completion is polled, so that every wait has a time limit (mpi_wait.c).
 * MPI advises implementations (MPI 4.0, 6.9.1) that a sum have the same bits each time it is computed from the same
 * values by as many ranks; Open MPI and MPICH do so on all ranks, and the tests check it. */
#include "parallel/group.h"

bool vt_engine_has_mpi(void)
{
#ifdef VT_HAS_MPI
    return true;
#else
    return false;
#endif
}

#ifndef VT_HAS_MPI

void vt_engine_mpi_name(char name[VT_ENGINE_NAME])
{
    name[0] = '\0';
}

vt_status vt_engine_open_mpi(int rank, int size, const char *launcher, double timeout, vt_engine **engine)
{
    vt_status status = VT_OK;
    (void)rank, (void)timeout;
    *engine = NULL;
    VT_FAIL(
        "%s started %d ranks, but this vitrain was built without MPI, which they need to communicate: install Open MPI "
        "or MPICH (make deps) and build again (make), or start one rank",
        launcher, size);
done:
    return status;
}

#else

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "parallel/mpi_inside.h"

/* Below INT_MAX, also in bytes: implementations multiply ints in places. */
enum { LARGEST_COUNT = 1 << 28, LARGEST_BYTES = 1 << 30 };

static int open_engines; /* MPI is initialised once, and finalised when the last engine is closed */

static vt_status mpi_split(vt_engine *engine, int color, int key, vt_group *group)
{
    MPI_Comm *made = vt_allocate(1, sizeof *made, "communication over MPI");
    vt_mpi_meet(engine, "making of a group");
    vt_mpi_check(engine, MPI_Comm_split(MPI_COMM_WORLD, color, key, made), "making of a group", group->name);
    int size = 0, rank = 0;
    MPI_Comm_size(*made, &size);
    MPI_Comm_rank(*made, &rank);
    VT_ASSERT(size == group->size && rank == group->rank);
    group->state = made;
    return VT_OK;
}

static void mpi_group_close(vt_group *group)
{
    MPI_Comm_free(group->state);
    free(group->state);
    group->state = NULL;
}

static void mpi_abort(vt_engine *engine)
{
    (void)engine;
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void mpi_close(vt_engine *engine)
{
    vt_mpi_state *state = engine->state;
    if (state != NULL) {
        vt_mpi_meet(engine, "end of the run");
        if (state->receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&state->receive);
            MPI_Wait(&state->receive, MPI_STATUS_IGNORE);
        }
        if (state->mail != MPI_COMM_NULL) MPI_Comm_free(&state->mail);
        free(state->processes);
        free(state);
    }
    if (--open_engines == 0) MPI_Finalize();
}

/* Signal handlers of the program that MPI_Init must not replace. */
static const int kept_signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU, SIGPIPE, SIGXFSZ};
enum { KEPT_SIGNALS = sizeof kept_signals / sizeof kept_signals[0] };

/* MPI_Init waits for all ranks, without a time limit and without a way to ask who is missing. */
static const double LEAST_START_SECONDS = 10; /* a busy machine may take this long */
static const double TURN_SECONDS = 0.2;       /* the lower ranks first: the launcher then ends the others */
enum { TURNS = 10 };
static char late[512]; /* the message, prepared because a signal handler can't format it */

static void end_late(int signal_number)
{
    (void)signal_number;
    (void)!write(STDERR_FILENO, late, strlen(late));
    _exit(EXIT_FAILURE);
}

/* 0: switches the alarm off. */
static void ring_after(double seconds)
{
    struct itimerval timer = {.it_value.tv_sec = (time_t)seconds};
    timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void initialise(int rank, int size, const char *launcher, double timeout, int *provided)
{
    struct sigaction before[KEPT_SIGNALS], alarm_before, alarm_action = {.sa_handler = end_late};
    const double seconds = timeout > LEAST_START_SECONDS ? timeout : LEAST_START_SECONDS;
    char host[VT_HOST_SIZE];
    vt_host_name(host);
    snprintf(late, sizeof late,
             "vitrain: rank %d on %.200s: MPI_Init has waited %g s (comm_timeout, at least %g) for the %d ranks that "
             "%s started: one hangs, has ended, is not vitrain or can't be reached over the network\n",
             rank, host, seconds, LEAST_START_SECONDS, size, launcher);
    for (int i = 0; i < KEPT_SIGNALS; i++) sigaction(kept_signals[i], NULL, &before[i]);
    sigaction(SIGALRM, &alarm_action, &alarm_before);
    ring_after(seconds + TURN_SECONDS * (rank < TURNS ? rank : TURNS));
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided); /* aborts the job itself if it fails */
    ring_after(0);
    sigaction(SIGALRM, &alarm_before, NULL);
    for (int i = 0; i < KEPT_SIGNALS; i++) sigaction(kept_signals[i], &before[i], NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

/* From "Open MPI v4.1.4, package: …" or "MPICH Version:\t4.0.2\n…". */
void vt_engine_mpi_name(char name[VT_ENGINE_NAME])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t') *c = ' ';
    snprintf(name, VT_ENGINE_NAME, "%.*s", VT_ENGINE_NAME - 1, text);
}

/* For tests: VITRAIN_MPI_LARGEST makes MPI's calls smaller, as if counts exceeded int. */
static int64_t largest(int64_t usual)
{
    const char *text = getenv("VITRAIN_MPI_LARGEST");
    int64_t value;
    return text != NULL && vt_text_to_integer(text, &value) && value > 0 && value < usual ? value : usual;
}

static void open_state(vt_engine *engine)
{
    vt_mpi_state *state = vt_allocate(1, sizeof *state, "communication over MPI");
    engine->state = state;
    state->receive = MPI_REQUEST_NULL;
    state->mail = MPI_COMM_NULL;
    state->largest_count = largest(LARGEST_COUNT);
    state->largest_bytes = largest(LARGEST_BYTES);
    state->processes = vt_allocate((size_t)engine->size, sizeof *state->processes, "communication over MPI");
    vt_mpi_process *own = &state->processes[engine->rank];
    vt_host_name(own->host);
    own->pid = (int)getpid();
    MPI_Request request = MPI_REQUEST_NULL;
    vt_mpi_operation work = {.name = "start", .count = 1, .requests = &request};
    vt_mpi_check(
        engine,
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, state->processes, sizeof *own, MPI_BYTE, MPI_COMM_WORLD, &request),
        work.name, "all ranks");
    vt_mpi_wait_for(engine, &work, NULL);
    vt_mpi_check(engine, MPI_Comm_dup(MPI_COMM_WORLD, &state->mail), work.name, "all ranks");
    vt_mpi_post_receive(state);
}

vt_status vt_engine_open_mpi(int rank, int size, const char *launcher, double timeout, vt_engine **result)
{
    vt_status status = VT_OK;
    int provided = MPI_THREAD_FUNNELED, mpi_rank = 0, mpi_size = 0;
    if (open_engines++ == 0) initialise(rank, size, launcher, timeout, &provided);
    vt_engine *engine = vt_allocate(1, sizeof *engine, "communication over MPI");
    engine->close = mpi_close;
    engine->abort = mpi_abort;
    engine->timeout = timeout;
    vt_engine_mpi_name(engine->name);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
    engine->rank = mpi_rank;
    engine->size = mpi_size;
    VT_CHECK(
        mpi_size == size && mpi_rank == rank,
        "%s says that this is rank %d of %d, %s says rank %d of %d: the launcher does not know this MPI. Start with "
        "the mpirun of %s, or with srun --mpi=pmix (or pmi2), whichever it was built for",
        launcher, rank, size, engine->name, mpi_rank, mpi_size, engine->name);
    VT_CHECK(provided >= MPI_THREAD_FUNNELED, "%s was built without threads (MPI_THREAD_FUNNELED), which vitrain needs",
             engine->name);
    engine->split = mpi_split;
    engine->group_close = mpi_group_close;
    vt_mpi_operations_fill(engine);
    open_state(engine);
done:
    if (status != VT_OK) vt_engine_close(&engine);
    *result = engine;
    return status;
}

#endif
