/* MPI (Open MPI, MPICH and what descends from it): the only file that includes mpi.h. Every operation is one of MPI's
 * nonblocking ones, waited for by polling, so that a wait has an end: after engine->timeout seconds the rank asks all
 * others who is there, on a communicator of its own. Ranks that wait answer, as they watch their mail; who does not is
 * stopped, dead or far behind, and is named before the job ends.
 *
 * MPI lays it upon its implementations (MPI 4.0, 6.9.1, advice) that a sum has the same bits each time it is made of
 * the same values by as many ranks; Open MPI and MPICH keep to it on all ranks, and the tests hold them to it. */
#include "parallel/group.h"

#ifndef VT_HAS_MPI

bool vt_engine_has_mpi(void)
{
    return false;
}

vt_status vt_engine_open_mpi(int rank, int size, const char *launcher, double timeout, vt_engine **engine)
{
    vt_status status = VT_OK;
    (void)rank, (void)timeout;
    *engine = NULL;
    VT_FAIL("%s started %d ranks, but this vitrain was built without MPI, over which they would talk: install Open MPI "
            "or MPICH (make deps) and build again (make), or start one rank",
            launcher, size);
done:
    return status;
}

#else

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

/* Below INT_MAX, also in bytes: implementations multiply in int here and there. */
enum { LARGEST_COUNT = 1 << 28, LARGEST_BYTES = 1 << 30 };

/* The steps of a wait: spin, give way, rest. Data that is on its way moves only while ranks poll, and resting while it
 * does was measured to cost a factor of three, so one gives way for as long as 100 MB/s would take. */
static const double SPIN_SECONDS = 1e-4, YIELD_SECONDS = 0.02, YIELD_SECONDS_PER_BYTE = 1e-8, REST_SECONDS = 1e-4;
static const double ANSWER_SECONDS = 3;  /* for answers after a time-out */
static const double SPEAK_SECONDS = 3;   /* for the lowest rank to speak and end the job */
static const double LINGER_SECONDS = 12; /* who was asked is gone after these, however the job's end comes */

/* What ranks write to one another about a time-out. Small: MPI then sends without the receiver's help. */
typedef enum { MAIL_ASK = 1, MAIL_ANSWER, MAIL_SPEAK } mail_tag;
typedef struct {
    char text[1024]; /* the wait that took too long; the wait of who answers; the sentence to be said */
} letter;

typedef struct {
    char host[VT_HOST_SIZE];
    int pid;
} process;

typedef struct {
    process *processes; /* [size] */
    MPI_Comm mail;
    MPI_Request receive; /* always posted, from any rank */
    letter incoming;
    char **answers; /* [size], while this rank asks: what each waits for, NULL: silent */
    char waiting[256];
    double end;            /* someone asked: when to be gone, else 0 */
    int64_t largest_count; /* elements and bytes that MPI is given at once */
    int64_t largest_bytes;
} mpi_state;

/* One operation: its parts, and what MPI reads while they run. */
typedef struct {
    const char *name;
    size_t volume;         /* bytes, of all ranks together or one */
    int count, room, over; /* requests; the first `over` are */
    MPI_Request *requests;
    int *counts, *offsets;
    void *sum; /* made here, because it may lie in what is sent; belongs to `receive` */
    void *receive;
    size_t bytes;
} operation;

static int open_engines; /* MPI is initialised once, and finalised when the last is closed */

bool vt_engine_has_mpi(void)
{
    return true;
}

static void check(vt_engine *engine, int code, const char *operation_name, const char *where)
{
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    vt_engine_abort(engine, "the %s over %s: %s: %s", operation_name, where, engine->name, text);
}

/* ---- waiting, and finding out who does not answer ---- */

static void send_letter(mpi_state *state, const char *text, int to, mail_tag tag)
{
    /* stays: the job is about to end, and MPI may read it until then */
    letter *sent = vt_allocate(1, sizeof *sent, "communication over MPI");
    snprintf(sent->text, sizeof sent->text, "%s", text);
    MPI_Request request;
    if (MPI_Isend(sent, sizeof *sent, MPI_BYTE, to, (int)tag, state->mail, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* Errors don't count: the mail is about the end of the job anyway. */
static void post_receive(mpi_state *state)
{
    MPI_Irecv(&state->incoming, sizeof state->incoming, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, state->mail,
              &state->receive);
}

static void read_mail(vt_engine *engine)
{
    mpi_state *state = engine->state;
    double now = vt_clock_seconds();
    int here = 1;
    MPI_Status from;
    while (state->receive != MPI_REQUEST_NULL && MPI_Test(&state->receive, &here, &from) == MPI_SUCCESS && here) {
        letter read = state->incoming;
        read.text[sizeof read.text - 1] = '\0';
        post_receive(state);
        switch (from.MPI_TAG) {
        case MAIL_ASK:
            send_letter(state, state->waiting, from.MPI_SOURCE, MAIL_ANSWER);
            if (state->end == 0) state->end = now + LINGER_SECONDS;
            break;
        case MAIL_ANSWER:
            if (state->answers != NULL && state->answers[from.MPI_SOURCE] == NULL)
                state->answers[from.MPI_SOURCE] = vt_text_copy(read.text);
            break;
        default:
            vt_engine_abort(engine, "%s", read.text);
        }
    }
    if (state->end != 0 && now > state->end) _exit(EXIT_FAILURE); /* the others have said why */
}

static void sleep_for(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static bool all_answered(const vt_engine *engine)
{
    const mpi_state *state = engine->state;
    for (int rank = 0; rank < engine->size; rank++)
        if (state->answers[rank] == NULL) return false;
    return true;
}

static bool is_member(const vt_group *group, int rank)
{
    for (int i = 0; group != NULL && i < group->size; i++)
        if (group->members[i] == rank) return true;
    return group == NULL; /* all ranks */
}

/* "rank 2 (nodeA, pid 4711)", "ranks 2 (…), 3 (…)": who did not answer. `inside`: are all in the group? */
static int name_silent(const vt_engine *engine, const vt_group *group, vt_text *names, bool *inside)
{
    enum { SHOWN = 5 };
    const mpi_state *state = engine->state;
    int silent = 0;
    *inside = true;
    for (int rank = 0; rank < engine->size; rank++) silent += state->answers[rank] == NULL;
    vt_text_append(names, silent > 1 ? "ranks " : "rank ");
    for (int rank = 0, shown = 0; rank < engine->size; rank++) {
        if (state->answers[rank] != NULL) continue;
        *inside = *inside && is_member(group, rank);
        if (++shown > SHOWN) continue;
        vt_text_append(names, "%s%d (%s, pid %d)", shown > 1 ? ", " : "", rank, state->processes[rank].host,
                       state->processes[rank].pid);
    }
    if (silent > SHOWN) vt_text_append(names, " and %d more", silent - SHOWN);
    return silent;
}

/* The sentence about a wait that took too long, from the answers. */
static char *verdict(const vt_engine *engine, const vt_group *group)
{
    const mpi_state *state = engine->state;
    vt_text names = {0}, text = {0};
    bool inside;
    int silent = name_silent(engine, group, &names, &inside);
    const char *are = silent > 1 ? "they are" : "it is";
    if (silent == 0) { /* a bug, or a network that crawls */
        vt_text_append(&text,
                       "the %s is not over within %g s (comm_timeout), though every rank answers:", state->waiting,
                       engine->timeout);
        for (int rank = 0; rank < engine->size && rank < 8; rank++)
            vt_text_append(&text, "%s rank %d waits for the %s", rank > 0 ? "," : "", rank, state->answers[rank]);
    } else if (inside) {
        vt_text_append(&text, "%s %s not joined the %s within %g s (comm_timeout): %s stopped, dead or far behind",
                       names.characters, silent > 1 ? "have" : "has", state->waiting, engine->timeout, are);
    } else {
        vt_text_append(&text,
                       "%s %s not answer, and the %s is not over within %g s (comm_timeout): %s stopped, dead or far "
                       "behind",
                       names.characters, silent > 1 ? "do" : "does", state->waiting, engine->timeout, are);
    }
    vt_text_close(&names);
    return text.characters;
}

/* Asks who is there, and ends the job: the lowest rank that answers speaks. */
__attribute__((noreturn)) static void time_out(vt_engine *engine, const vt_group *group)
{
    mpi_state *state = engine->state;
    state->answers = vt_allocate((size_t)engine->size, sizeof *state->answers, "communication over MPI");
    state->answers[engine->rank] = vt_text_copy(state->waiting);
    state->end = 0; /* this one goes its own way to the end */
    for (int rank = 0; rank < engine->size; rank++)
        if (rank != engine->rank) send_letter(state, state->waiting, rank, MAIL_ASK);
    double start = vt_clock_seconds();
    while (vt_clock_seconds() - start < ANSWER_SECONDS && !all_answered(engine)) {
        read_mail(engine);
        sleep_for(1e-3);
    }
    char *sentence = verdict(engine, group);
    int lowest = 0;
    while (state->answers[lowest] == NULL) lowest++;
    if (lowest != engine->rank) {
        send_letter(state, sentence, lowest, MAIL_SPEAK);
        for (start = vt_clock_seconds(); vt_clock_seconds() - start < SPEAK_SECONDS; sleep_for(1e-3)) read_mail(engine);
    }
    vt_engine_abort(engine, "%s", sentence);
}

/* Is the operation over? The requests are looked at in turn; MPI moves all of them on in each call. */
static bool is_over(vt_engine *engine, operation *work, const char *where)
{
    while (work->over < work->count) {
        int done = 0;
        check(engine, MPI_Test(&work->requests[work->over], &done, MPI_STATUS_IGNORE), work->name, where);
        if (!done) return false;
        work->over++;
    }
    return true;
}

/* group NULL: all ranks. Spins at first, then gives way, then rests: often there are more ranks than cores. */
static void wait_for(vt_engine *engine, operation *work, const vt_group *group)
{
    mpi_state *state = engine->state;
    char text[VT_GROUP_TEXT_SIZE] = "all ranks";
    if (is_over(engine, work, text)) return;
    if (group != NULL) vt_group_text(group, text);
    snprintf(state->waiting, sizeof state->waiting, "%s over %s", work->name, text);
    double start = vt_clock_seconds(), yield = YIELD_SECONDS + YIELD_SECONDS_PER_BYTE * (double)work->volume;
    while (!is_over(engine, work, text)) {
        double waited = vt_clock_seconds() - start;
        if (waited < SPIN_SECONDS) continue;
        read_mail(engine);
        if (waited > engine->timeout) time_out(engine, group);
        if (waited < yield)
            sched_yield();
        else
            sleep_for(REST_SECONDS);
    }
}

/* For MPI's calls that can't be polled: when all ranks are here they take a moment only. */
static void meet(vt_engine *engine, const char *name)
{
    MPI_Request request = MPI_REQUEST_NULL;
    operation work = {.name = name, .count = 1, .requests = &request};
    check(engine, MPI_Ibarrier(MPI_COMM_WORLD, &request), name, "all ranks");
    wait_for(engine, &work, NULL);
}

/* ---- the operations ---- */

static MPI_Comm communicator(const vt_group *group)
{
    return *(const MPI_Comm *)group->state;
}

static operation *operation_begin(const char *name, size_t volume, vt_request *request)
{
    operation *work = vt_allocate(1, sizeof *work, "communication over MPI");
    work->name = name;
    work->volume = volume;
    request->state = work;
    return work;
}

static void operation_close(operation *work)
{
    free(work->requests);
    free(work->counts);
    free(work->offsets);
    free(work->sum);
    free(work);
}

/* Room for one more request. */
static MPI_Request *next(operation *work)
{
    if (work->count == work->room) {
        work->room = work->room > 0 ? 2 * work->room : 2;
        work->requests =
            vt_reallocate(work->requests, (size_t)work->room, sizeof *work->requests, "communication over MPI");
    }
    work->requests[work->count] = MPI_REQUEST_NULL;
    return &work->requests[work->count++];
}

static int part(int64_t left, int64_t largest)
{
    return (int)(left < largest ? left : largest);
}

static int64_t largest_count(const vt_group *group)
{
    return ((const mpi_state *)group->engine->state)->largest_count;
}

static int64_t largest_bytes(const vt_group *group)
{
    return ((const mpi_state *)group->engine->state)->largest_bytes;
}

static void mpi_all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request)
{
    size_t size = type == VT_SUM_FLOAT64 ? sizeof(double) : sizeof(float);
    operation *work = operation_begin("all-reduce", (size_t)count * size, request);
    for (int64_t done = 0; done < count;) {
        int now = part(count - done, largest_count(group));
        int code =
            MPI_Iallreduce(MPI_IN_PLACE, (char *)data + (size_t)done * size, now,
                           type == VT_SUM_FLOAT64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, communicator(group), next(work));
        check(group->engine, code, work->name, group->name);
        done += now;
    }
}

/* Too much for one call: a reduction to each rank. */
static void reduce_to_each(vt_group *group, operation *work, float *send, const int64_t *counts, float *receive)
{
    int64_t first = 0;
    for (int root = 0; root < group->size; first += counts[root++]) {
        for (int64_t done = 0; done < counts[root];) {
            int now = part(counts[root] - done, largest_count(group));
            float *from = send + first + done, *to = root == group->rank ? receive + done : NULL;
            int code = MPI_Ireduce(from == to ? MPI_IN_PLACE : from, to, now, MPI_FLOAT, MPI_SUM, root,
                                   communicator(group), next(work));
            check(group->engine, code, work->name, group->name);
            done += now;
        }
    }
}

static void mpi_reduce_scatter(vt_group *group, float *send, const int64_t *counts, float *receive, vt_request *request)
{
    int64_t total = 0, own = counts[group->rank];
    for (int i = 0; i < group->size; i++) total += counts[i];
    operation *work = operation_begin("reduce-scatter", (size_t)total * sizeof *send, request);
    if (total > largest_count(group)) {
        reduce_to_each(group, work, send, counts, receive);
        return;
    }
    work->counts = vt_allocate((size_t)group->size, sizeof *work->counts, "communication over MPI");
    for (int i = 0; i < group->size; i++) work->counts[i] = (int)counts[i];
    float *to = receive;
    if (receive >= send && receive < send + total) { /* MPI forbids that they overlap */
        work->bytes = (size_t)own * sizeof *send;
        work->sum = to = malloc(work->bytes > 0 ? work->bytes : 1);
        work->receive = receive;
        if (to == NULL) vt_engine_abort(group->engine, "no memory for %zu bytes of a reduce-scatter", work->bytes);
    }
    int code = MPI_Ireduce_scatter(send, to, work->counts, MPI_FLOAT, MPI_SUM, communicator(group), next(work));
    check(group->engine, code, work->name, group->name);
}

/* Too much for one call: a broadcast from each rank. */
static void broadcast_parts(vt_group *group, operation *work, char *data, size_t bytes, int root)
{
    for (size_t done = 0; done < bytes;) {
        int now = part((int64_t)(bytes - done), largest_bytes(group));
        check(group->engine, MPI_Ibcast(data + done, now, MPI_BYTE, root, communicator(group), next(work)), work->name,
              group->name);
        done += (size_t)now;
    }
}

static void mpi_all_gather(vt_group *group, const void *send, const size_t *bytes, void *receive, vt_request *request)
{
    size_t total = 0, before = 0;
    for (int i = 0; i < group->size; i++) {
        if (i == group->rank) before = total;
        total += bytes[i];
    }
    operation *work = operation_begin("all-gather", total, request);
    char *own = (char *)receive + before;
    if (total > (size_t)largest_bytes(group)) {
        if (send != own) memcpy(own, send, bytes[group->rank]);
        char *place = receive;
        for (int root = 0; root < group->size; place += bytes[root++])
            broadcast_parts(group, work, place, bytes[root], root);
        return;
    }
    work->counts = vt_allocate((size_t)group->size, sizeof *work->counts, "communication over MPI");
    work->offsets = vt_allocate((size_t)group->size, sizeof *work->offsets, "communication over MPI");
    for (int i = 0, offset = 0; i < group->size; offset += work->counts[i++]) {
        work->counts[i] = (int)bytes[i];
        work->offsets[i] = offset;
    }
    int code = MPI_Iallgatherv(send == own ? MPI_IN_PLACE : send, work->counts[group->rank], MPI_BYTE, receive,
                               work->counts, work->offsets, MPI_BYTE, communicator(group), next(work));
    check(group->engine, code, work->name, group->name);
}

static void mpi_exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive,
                         size_t receive_bytes, int from, vt_request *request)
{
    operation *work = operation_begin("exchange", send_bytes + receive_bytes, request);
    for (size_t done = 0; done < receive_bytes;) {
        int now = part((int64_t)(receive_bytes - done), largest_bytes(group));
        int code = MPI_Irecv((char *)receive + done, now, MPI_BYTE, from, 0, communicator(group), next(work));
        check(group->engine, code, work->name, group->name);
        done += (size_t)now;
    }
    for (size_t done = 0; done < send_bytes;) {
        int now = part((int64_t)(send_bytes - done), largest_bytes(group));
        int code = MPI_Isend((const char *)send + done, now, MPI_BYTE, to, 0, communicator(group), next(work));
        check(group->engine, code, work->name, group->name);
        done += (size_t)now;
    }
}

static void mpi_broadcast(vt_group *group, void *data, size_t bytes, int root, vt_request *request)
{
    broadcast_parts(group, operation_begin("broadcast", bytes, request), data, bytes, root);
}

static void finish(vt_request *request)
{
    operation *work = request->state;
    if (work->sum != NULL) memcpy(work->receive, work->sum, work->bytes);
    operation_close(work);
    request->state = NULL;
}

static bool mpi_test(vt_request *request)
{
    vt_engine *engine = request->group->engine;
    if (!is_over(engine, request->state, request->group->name)) {
        read_mail(engine); /* a rank that looks again and again is there, too */
        return false;
    }
    finish(request);
    return true;
}

static void mpi_wait(vt_request *request)
{
    wait_for(request->group->engine, request->state, request->group);
    finish(request);
}

/* ---- groups and the engine ---- */

static vt_status mpi_split(vt_engine *engine, int color, int key, vt_group *group)
{
    MPI_Comm *made = vt_allocate(1, sizeof *made, "communication over MPI");
    meet(engine, "making of a group");
    check(engine, MPI_Comm_split(MPI_COMM_WORLD, color, key, made), "making of a group", group->name);
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
    signal(SIGALRM, SIG_DFL); /* should the launcher not answer, this ends the rank */
    alarm(10);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void mpi_close(vt_engine *engine)
{
    mpi_state *state = engine->state;
    if (state != NULL) {
        meet(engine, "end of the run");
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

/* Handlers of the program that MPI_Init is not to replace. */
static const int kept_signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGPIPE, SIGXFSZ};
enum { KEPT_SIGNALS = sizeof kept_signals / sizeof kept_signals[0] };

static void initialise(int *provided)
{
    struct sigaction before[KEPT_SIGNALS];
    for (int i = 0; i < KEPT_SIGNALS; i++) sigaction(kept_signals[i], NULL, &before[i]);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided); /* ends the job itself when it fails */
    for (int i = 0; i < KEPT_SIGNALS; i++) sigaction(kept_signals[i], &before[i], NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

/* "Open MPI v4.1.4", from "Open MPI v4.1.4, package: …" or "MPICH Version:\t4.0.2\n…". */
static void name_library(char name[96])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t') *c = ' ';
    snprintf(name, 96, "%.95s", text);
}

/* Test: VITRAIN_MPI_LARGEST makes MPI's calls smaller, as if counts went beyond int. */
static int64_t largest(int64_t usual)
{
    const char *text = getenv("VITRAIN_MPI_LARGEST");
    int64_t value;
    return text != NULL && vt_text_to_integer(text, &value) && value > 0 && value < usual ? value : usual;
}

static void open_state(vt_engine *engine)
{
    mpi_state *state = vt_allocate(1, sizeof *state, "communication over MPI");
    engine->state = state;
    state->receive = MPI_REQUEST_NULL;
    state->mail = MPI_COMM_NULL;
    state->largest_count = largest(LARGEST_COUNT);
    state->largest_bytes = largest(LARGEST_BYTES);
    state->processes = vt_allocate((size_t)engine->size, sizeof *state->processes, "communication over MPI");
    process *own = &state->processes[engine->rank];
    vt_host_name(own->host);
    own->pid = (int)getpid();
    MPI_Request request = MPI_REQUEST_NULL;
    operation work = {.name = "start", .count = 1, .requests = &request};
    check(engine,
          MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, state->processes, sizeof *own, MPI_BYTE, MPI_COMM_WORLD, &request),
          work.name, "all ranks");
    wait_for(engine, &work, NULL);
    check(engine, MPI_Comm_dup(MPI_COMM_WORLD, &state->mail), work.name, "all ranks");
    post_receive(state);
}

vt_status vt_engine_open_mpi(int rank, int size, const char *launcher, double timeout, vt_engine **result)
{
    vt_status status = VT_OK;
    int provided = MPI_THREAD_FUNNELED, mpi_rank = 0, mpi_size = 0;
    if (open_engines++ == 0) initialise(&provided);
    vt_engine *engine = vt_allocate(1, sizeof *engine, "communication over MPI");
    engine->close = mpi_close;
    engine->abort = mpi_abort;
    engine->timeout = timeout;
    name_library(engine->name);
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
    engine->all_reduce = mpi_all_reduce;
    engine->reduce_scatter = mpi_reduce_scatter;
    engine->all_gather = mpi_all_gather;
    engine->exchange = mpi_exchange;
    engine->broadcast = mpi_broadcast;
    engine->test = mpi_test;
    engine->wait = mpi_wait;
    open_state(engine);
done:
    if (status != VT_OK) vt_engine_close(&engine);
    *result = engine;
    return status;
}

#endif
