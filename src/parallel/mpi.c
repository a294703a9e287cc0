/* MPI (Open MPI, MPICH and their descendants): the engine, its groups and their operations. Each is a nonblocking MPI
 * operation, or several if a count would exceed int, whose completion is polled, so that every wait has a time limit
 * (mpi_wait.c).
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

vt_status vt_engine_open_mpi(const vt_launch *launch, double timeout, vt_engine **engine)
{
    (void)timeout;
    *engine = NULL;
    return vt_error_note(
        __FILE__, __LINE__,
        "%s started %d ranks, but this vitrain was built without MPI, which they need to communicate: install Open MPI "
        "or MPICH (make deps) and build again (make), or start one rank",
        vt_launch_name(launch->launcher), launch->world_size);
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

/* ---- groups ---- */

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

/* ---- their operations ---- */

static MPI_Comm communicator(const vt_group *group)
{
    return *(const MPI_Comm *)group->state;
}

static void operation_close(vt_mpi_operation *work)
{
    free(work->requests);
    free(work->counts);
    free(work);
}

/* Makes room for one more request. */
static MPI_Request *next(vt_mpi_operation *work)
{
    work->requests = vt_grow(work->requests, (size_t)work->count, sizeof *work->requests, "communication over MPI");
    work->requests[work->count] = MPI_REQUEST_NULL;
    return &work->requests[work->count++];
}

static const vt_mpi_state *state_of(const vt_group *group)
{
    return group->engine->state;
}

typedef enum { SEND, RECEIVE, BROADCAST, SUM, SUM_TO_ONE } call_kind;

/* One MPI call, or several where it is too large for one. peer: the rank of the group that sends, receives or gets the
 * sum. */
static void call(vt_group *group, vt_mpi_operation *work, call_kind kind, vt_sum_type sum, vt_group_bytes memory,
                 int peer)
{
    const MPI_Comm comm = communicator(group);
    const MPI_Datatype type = sum == VT_SUM_FLOAT64 ? MPI_DOUBLE : MPI_FLOAT;
    const bool sums = kind >= SUM;
    const size_t size = sums ? vt_sum_type_size(sum) : 1;
    const size_t most = (size_t)(sums ? state_of(group)->largest_count : state_of(group)->largest_bytes);
    for (size_t done = 0; done < memory.count;) {
        char *at = memory.at + done;
        const size_t left = (memory.count - done) / size;
        const int now = (int)(left < most ? left : most);
        MPI_Request *own = next(work);
        const int code = kind == SEND ? MPI_Isend(at, now, MPI_BYTE, peer, 0, comm, own)
                         : kind == RECEIVE ? MPI_Irecv(at, now, MPI_BYTE, peer, 0, comm, own)
                         : kind == BROADCAST ? MPI_Ibcast(at, now, MPI_BYTE, peer, comm, own)
                         : kind == SUM ? MPI_Iallreduce(MPI_IN_PLACE, at, now, type, MPI_SUM, comm, own)
                         : peer == group->rank ? MPI_Ireduce(MPI_IN_PLACE, at, now, type, MPI_SUM, peer, comm, own)
                                               : MPI_Ireduce(at, NULL, now, type, MPI_SUM, peer, comm, own);
        vt_mpi_check(group->engine, code, work->name, group->name);
        done += (size_t)now * size;
    }
}

/* Too large for one call: one, or several, for each rank's part. */
static void call_for_parts(vt_group *group, vt_mpi_operation *work, call_kind kind, const vt_group_operation *operation)
{
    char *at = operation->block.at;
    for (int root = 0; root < group->size; at += operation->parts[root++])
        call(group, work, kind, operation->type, (vt_group_bytes){at, operation->parts[root]}, root);
}

static void reduce_scatter(vt_group *group, vt_mpi_operation *work, const vt_group_operation *operation)
{
    if (operation->block.count / sizeof(float) > (size_t)state_of(group)->largest_count) {
        call_for_parts(group, work, SUM_TO_ONE, operation);
        return;
    }
    work->counts = vt_allocate((size_t)group->size, sizeof *work->counts, "communication over MPI");
    for (int i = 0; i < group->size; i++) work->counts[i] = (int)(operation->parts[i] / sizeof(float));
    work->to = operation->receive;
    work->from = operation->block.at;
    int code = MPI_Ireduce_scatter(MPI_IN_PLACE, operation->block.at, work->counts, MPI_FLOAT, MPI_SUM,
                                   communicator(group), next(work));
    vt_mpi_check(group->engine, code, work->name, group->name);
}

static void all_gather(vt_group *group, vt_mpi_operation *work, const vt_group_operation *operation)
{
    if (operation->block.count > (size_t)state_of(group)->largest_bytes) {
        call_for_parts(group, work, BROADCAST, operation);
        return;
    }
    work->counts = vt_allocate(2 * (size_t)group->size, sizeof *work->counts, "communication over MPI");
    int *offsets = work->counts + group->size;
    for (int i = 0, offset = 0; i < group->size; offset += work->counts[i++]) {
        work->counts[i] = (int)operation->parts[i];
        offsets[i] = offset;
    }
    int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, operation->block.at, work->counts, offsets, MPI_BYTE,
                               communicator(group), next(work));
    vt_mpi_check(group->engine, code, work->name, group->name);
}

static void mpi_start(vt_group *group, const vt_group_operation *operation, vt_request *request)
{
    vt_mpi_operation *work = vt_allocate(1, sizeof *work, "communication over MPI");
    const bool exchanges = operation->kind == VT_EXCHANGE;
    work->is_receive = exchanges && operation->send.count == 0 && group->receiving[0] != '\0';
    work->name = work->is_receive ? group->receiving : vt_group_operation_names[operation->kind];
    work->volume = operation->block.count;
    request->state = work;
    if (operation->kind == VT_REDUCE_SCATTER) reduce_scatter(group, work, operation);
    if (operation->kind == VT_ALL_GATHER) all_gather(group, work, operation);
    if (operation->kind == VT_ALL_REDUCE) call(group, work, SUM, operation->type, operation->block, 0);
    if (operation->kind == VT_BROADCAST)
        call(group, work, BROADCAST, operation->type, operation->block, operation->from);
    if (operation->kind != VT_EXCHANGE) return;
    call(group, work, RECEIVE, operation->type, operation->receive, operation->from);
    call(group, work, SEND, operation->type, operation->send, operation->to);
}

static void finish(vt_request *request)
{
    vt_mpi_operation *work = request->state;
    if (work->to.at != NULL) memmove(work->to.at, work->from, work->to.count);
    operation_close(work);
    request->state = NULL;
}

static bool mpi_test(vt_request *request)
{
    vt_engine *engine = request->group->engine;
    if (!vt_mpi_is_over(engine, request->state, request->group->name)) {
        vt_mpi_read_mail(engine); /* a rank that polls repeatedly answers, too */
        return false;
    }
    finish(request);
    return true;
}

static void mpi_wait(vt_request *request)
{
    vt_mpi_wait_for(request->group->engine, request->state, request->group);
    finish(request);
}

/* Any call moves a few of a long message's parts. */
static void mpi_advance(vt_engine *engine)
{
    enum { CALLS = 8 };
    const vt_mpi_state *state = engine->state;
    int here = 0;
    for (int i = 0; i < CALLS; i++) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state->mail, &here, MPI_STATUS_IGNORE);
}

/* ---- the engine ---- */

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

static void initialise(const vt_launch *launch, double timeout, int *provided)
{
    struct sigaction before[KEPT_SIGNALS], alarm_before, alarm_action = {.sa_handler = end_late};
    const double seconds = timeout > LEAST_START_SECONDS ? timeout : LEAST_START_SECONDS;
    char host[VT_HOST_SIZE];
    vt_host_name(host);
    snprintf(late, sizeof late,
             "vitrain: rank %d on %.200s: MPI_Init has waited %g s (comm_timeout, at least %g) for the %d ranks that "
             "%s started: one hangs, has ended, is not vitrain or can't be reached over the network\n",
             launch->rank, host, seconds, LEAST_START_SECONDS, launch->world_size, vt_launch_name(launch->launcher));
    for (int i = 0; i < KEPT_SIGNALS; i++) sigaction(kept_signals[i], NULL, &before[i]);
    sigaction(SIGALRM, &alarm_action, &alarm_before);
    ring_after(seconds + TURN_SECONDS * (launch->rank < TURNS ? launch->rank : TURNS));
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

vt_status vt_engine_open_mpi(const vt_launch *launch, double timeout, vt_engine **result)
{
    vt_status status = VT_OK;
    int provided = MPI_THREAD_FUNNELED;
    if (open_engines++ == 0) initialise(launch, timeout, &provided);
    vt_engine *engine = vt_allocate(1, sizeof *engine, "communication over MPI");
    *engine = (vt_engine){.timeout = timeout,
                          .split = mpi_split,
                          .group_close = mpi_group_close,
                          .start = mpi_start,
                          .test = mpi_test,
                          .wait = mpi_wait,
                          .advance = mpi_advance,
                          .abort = mpi_abort,
                          .close = mpi_close};
    vt_engine_mpi_name(engine->name);
    MPI_Comm_rank(MPI_COMM_WORLD, &engine->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &engine->size);
    VT_CHECK(
        engine->size == launch->world_size && engine->rank == launch->rank,
        "%s says that this is rank %d of %d, %s says rank %d of %d: the launcher does not know this MPI. Start with "
        "the mpirun of %s, or with srun --mpi=pmix (or pmi2), whichever it was built for",
        vt_launch_name(launch->launcher), launch->rank, launch->world_size, engine->name, engine->rank, engine->size,
        engine->name);
    VT_CHECK(provided >= MPI_THREAD_FUNNELED, "%s was built without threads (MPI_THREAD_FUNNELED), which vitrain needs",
             engine->name);
    open_state(engine);
done:
    if (status != VT_OK) vt_engine_close(&engine);
    *result = engine;
    return status;
}

#endif
