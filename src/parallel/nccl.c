/* NCCL: one GPU a rank. Opened on first use, like all CUDA libraries (cuda/libraries.h). Each group has a communicator
 * and a stream of its own: an operation begins behind what the back end's stream has been given so far, and waiting for
 * it makes that stream wait, not the host. A thread watches over all communicators: an error of one, or an operation
 * that is not over after engine->timeout seconds, ends the job.
 *
 * Groups over host memory (figures, agreements) go through a small piece of device memory, and the host does wait. */
#include "parallel/group.h"

bool vt_engine_has_nccl(void)
{
#ifdef VT_HAS_NCCL
    return true;
#else
    return false;
#endif
}

#ifndef VT_HAS_NCCL

vt_status vt_engine_open_nccl(const vt_nccl_options *options, vt_engine **engine)
{
    (void)options;
    *engine = NULL;
    return vt_error_note(__FILE__, __LINE__,
                         "this vitrain was built without NCCL, because make found no nccl.h beside CUDA; --comm=mpi "
                         "moves data between GPUs through the host");
}

#else

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"
#include "libraries.h"

typedef struct communicator {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t begin; /* what the back end's stream had been given */
    cudaEvent_t end;   /* of the newest operation */
    double started;    /* when that was; 0: none yet */
    const char *what;
    void *room; /* device memory for host groups */
    size_t room_bytes;
    vt_group *group;
    struct communicator *next;
} communicator;

typedef struct {
    const vt_nccl *nccl;
    vt_engine *engine;
    ncclComm_t all;
    int device;
    communicator *list; /* under `mutex`, which the watch takes too */
    cudaEvent_t replay_end;
    double replay_started; /* of the newest replay; 0: none yet */
    pthread_mutex_t mutex;
    pthread_t watch;
    bool watching, stop;
} nccl_state;

/* One operation; `end` was recorded behind it. */
typedef struct {
    communicator *communicator;
    cudaEvent_t end;
} operation;

static nccl_state *state_of(const vt_group *group)
{
    return group->engine->state;
}

static void fail(vt_group *group, const char *what, const char *why)
{
    char text[VT_GROUP_TEXT_SIZE];
    vt_engine_abort(group->engine, "the %s over %s: %s", what, vt_group_text(group, text), why);
}

static void check(vt_group *group, const char *what, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        fail(group, what, state_of(group)->nccl->ncclGetErrorString(result));
}

static void check_cuda(vt_group *group, const char *what, cudaError_t error)
{
    if (error != cudaSuccess) fail(group, what, cudaGetErrorString(error));
}

static void rest(void)
{
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

/* Waits until a communicator that was opened without blocking is ready. */
static vt_status settle(const nccl_state *state, ncclComm_t comm, double timeout, const char *what)
{
    vt_status status = VT_OK;
    double end = vt_clock_seconds() + timeout;
    ncclResult_t result = ncclInProgress;
    while (state->nccl->ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress) {
        VT_CHECK(vt_clock_seconds() < end,
                 "NCCL: %s was not over after %g s (comm_timeout): not all ranks have come, or they can't reach one "
                 "another",
                 what, timeout);
        rest();
    }
    VT_CHECK(result == ncclSuccess, "NCCL: %s: %s (%s)", what, state->nccl->ncclGetErrorString(result),
             state->nccl->ncclGetLastError(comm));
done:
    return status;
}

/* ---- the watch ---- */

static void look_after(nccl_state *state, communicator *c)
{
    char text[VT_GROUP_TEXT_SIZE];
    ncclResult_t result = ncclSuccess;
    if (state->nccl->ncclCommGetAsyncError(c->comm, &result) == ncclSuccess && result != ncclSuccess &&
        result != ncclInProgress)
        vt_engine_abort(state->engine, "the %s over %s: NCCL: %s (%s)", c->what, vt_group_text(c->group, text),
                        state->nccl->ncclGetErrorString(result), state->nccl->ncclGetLastError(c->comm));
    bool late = c->started > 0 && vt_clock_seconds() - c->started > state->engine->timeout;
    if (late && cudaEventQuery(c->end) == cudaErrorNotReady)
        vt_engine_abort(state->engine,
                        "the %s over %s is not over after %g s (comm_timeout): one of these ranks is stopped, dead or "
                        "far behind",
                        c->what, vt_group_text(c->group, text), state->engine->timeout);
}

/* Recorded operations have no communicator's event to look at: the whole replay has. */
static void look_after_replay(nccl_state *state)
{
    bool late = state->replay_started > 0 && vt_clock_seconds() - state->replay_started > state->engine->timeout;
    if (late && cudaEventQuery(state->replay_end) == cudaErrorNotReady)
        vt_engine_abort(state->engine,
                        "a step, replayed as it was recorded, is not over after %g s (comm_timeout): a rank that it "
                        "communicates with is stopped, dead or far behind",
                        state->engine->timeout);
}

static void *watch(void *argument)
{
    nccl_state *state = argument;
    cudaSetDevice(state->device);
    vt_threads_roam();
    enum cudaStreamCaptureMode mode =
        cudaStreamCaptureModeRelaxed; /* looking at events is no part of anyone's capture */
    cudaThreadExchangeStreamCaptureMode(&mode);
    for (;;) {
        pthread_mutex_lock(&state->mutex);
        for (communicator *c = state->list; c != NULL && !state->stop; c = c->next) look_after(state, c);
        if (!state->stop) look_after_replay(state);
        bool stop = state->stop;
        pthread_mutex_unlock(&state->mutex);
        if (stop) return NULL;
        for (int i = 0; i < 250; i++) rest();
    }
}

/* ---- groups ---- */

static vt_status split(vt_engine *engine, int color, int key, vt_group *group)
{
    vt_status status = VT_OK;
    nccl_state *state = engine->state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    communicator *c = vt_allocate(1, sizeof *c, "communication by NCCL");
    c->group = group;
    c->what = "opening";
    VT_CHECK(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking) == cudaSuccess &&
                 cudaEventCreateWithFlags(&c->begin, cudaEventDisableTiming) == cudaSuccess &&
                 cudaEventCreateWithFlags(&c->end, cudaEventDisableTiming) == cudaSuccess,
             "no stream for the group %s: %s", group->name, cudaGetErrorString(cudaGetLastError()));
    ncclResult_t result = state->nccl->ncclCommSplit(state->all, color, key, &c->comm, &config);
    VT_CHECK(result == ncclSuccess || result == ncclInProgress, "NCCL: the group %s: %s", group->name,
             state->nccl->ncclGetErrorString(result));
    VT_TRY(settle(state, state->all, engine->timeout, "splitting the ranks into groups"));
    VT_TRY(settle(state, c->comm, engine->timeout, "opening a group"));
    group->state = c;
    pthread_mutex_lock(&state->mutex);
    c->next = state->list;
    state->list = c;
    pthread_mutex_unlock(&state->mutex);
    c = NULL;
done:
    free(c);
    return status;
}

static void group_close(vt_group *group)
{
    nccl_state *state = state_of(group);
    communicator *c = group->state;
    pthread_mutex_lock(&state->mutex);
    communicator **place = &state->list;
    while (*place != c) place = &(*place)->next;
    *place = c->next;
    pthread_mutex_unlock(&state->mutex);
    cudaStreamSynchronize(c->stream);
    state->nccl->ncclCommFinalize(c->comm);
    if (settle(state, c->comm, group->engine->timeout, "closing a group") == VT_OK)
        state->nccl->ncclCommDestroy(c->comm);
    else
        state->nccl->ncclCommAbort(c->comm);
    vt_error_clear();
    cudaEventDestroy(c->begin);
    cudaEventDestroy(c->end);
    cudaStreamDestroy(c->stream);
    cudaFree(c->room);
    free(c);
    group->state = NULL;
}

/* ---- operations ---- */

static cudaStream_t compute_stream(const vt_group *group)
{
    return group->backend != NULL ? (cudaStream_t)group->backend->stream : NULL;
}

static bool is_capturing(const vt_group *group)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(compute_stream(group), &status);
    return status == cudaStreamCaptureStatusActive;
}

/* The operation's stream goes on from where the back end's stream stands. */
static communicator *begin(vt_group *group, const char *what)
{
    communicator *c = group->state;
    if (group->backend == NULL) return c;
    check_cuda(group, what, cudaEventRecord(c->begin, compute_stream(group)));
    check_cuda(group, what, cudaStreamWaitEvent(c->stream, c->begin, 0));
    return c;
}

static void finish(vt_group *group, const char *what, vt_request *request)
{
    communicator *c = group->state;
    nccl_state *state = state_of(group);
    ncclResult_t result = ncclInProgress; /* a call without blocking may go on behind the scenes */
    while (state->nccl->ncclCommGetAsyncError(c->comm, &result) == ncclSuccess && result == ncclInProgress) rest();
    check(group, what, result);
    operation *one = vt_allocate(1, sizeof *one, "communication by NCCL");
    one->communicator = c;
    check_cuda(group, what, cudaEventCreateWithFlags(&one->end, cudaEventDisableTiming));
    check_cuda(group, what, cudaEventRecord(one->end, c->stream));
    request->state = one;
    if (is_capturing(group)) return; /* it will run with the graph, which is not watched from here */
    pthread_mutex_lock(&state->mutex);
    check_cuda(group, what, cudaEventRecord(c->end, c->stream));
    c->started = vt_clock_seconds();
    c->what = what;
    pthread_mutex_unlock(&state->mutex);
}

static void close_operation(vt_request *request)
{
    operation *one = request->state;
    cudaEventDestroy(one->end);
    free(one);
    request->state = NULL;
}

/* Device memory that stands for a host group's buffer. */
static char *take_room(vt_group *group, const char *what, size_t bytes)
{
    communicator *c = group->state;
    if (bytes > c->room_bytes) {
        cudaFree(c->room);
        check_cuda(group, what, cudaMalloc(&c->room, bytes));
        c->room_bytes = bytes;
    }
    return c->room;
}

static void put(vt_group *group, const char *what, void *device, const void *host, size_t bytes)
{
    communicator *c = group->state;
    check_cuda(group, what, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, c->stream));
}

/* Brings a host group's result back; the host waits, as long as the time-out lets it. */
static void get(vt_group *group, const char *what, void *host, const void *device, size_t bytes, vt_request *request)
{
    operation *one = request->state;
    double end = vt_clock_seconds() + group->engine->timeout;
    while (cudaEventQuery(one->end) == cudaErrorNotReady) {
        if (vt_clock_seconds() > end)
            fail(group, what, "not over in time (comm_timeout): one of these ranks is stopped, dead or far behind");
        rest();
    }
    check_cuda(group, what, cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    close_operation(request);
}

static void all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request)
{
    static const char what[] = "all-reduce";
    const vt_nccl *nccl = state_of(group)->nccl;
    communicator *c = begin(group, what);
    ncclDataType_t kind = type == VT_SUM_FLOAT64 ? ncclFloat64 : ncclFloat32;
    size_t bytes = (size_t)count * (type == VT_SUM_FLOAT64 ? sizeof(double) : sizeof(float));
    bool is_host = group->backend == NULL;
    void *device = is_host ? take_room(group, what, bytes) : data;
    if (is_host) put(group, what, device, data, bytes);
    check(group, what, nccl->ncclAllReduce(device, device, (size_t)count, kind, ncclSum, c->comm, c->stream));
    finish(group, what, request);
    if (is_host) get(group, what, data, device, bytes, request);
}

static bool all_equal(const int64_t *counts, int size)
{
    for (int i = 1; i < size; i++)
        if (counts[i] != counts[0]) return false;
    return true;
}

/* Parts of different lengths: each rank's is reduced to it, all in one group of calls. */
static void reduce_scatter(vt_group *group, float *send, const int64_t *counts, float *receive, vt_request *request)
{
    static const char what[] = "reduce-scatter";
    const vt_nccl *nccl = state_of(group)->nccl;
    communicator *c = begin(group, what);
    VT_ASSERT(group->backend != NULL); /* figures are never scattered */
    if (all_equal(counts, group->size)) {
        check(group, what,
              nccl->ncclReduceScatter(send, receive, (size_t)counts[0], ncclFloat32, ncclSum, c->comm, c->stream));
    } else {
        check(group, what, nccl->ncclGroupStart());
        const float *part = send;
        for (int i = 0; i < group->size; i++) {
            if (counts[i] > 0)
                check(group, what,
                      nccl->ncclReduce(part, receive, (size_t)counts[i], ncclFloat32, ncclSum, i, c->comm, c->stream));
            part += counts[i];
        }
        check(group, what, nccl->ncclGroupEnd());
    }
    finish(group, what, request);
}

static void all_gather(vt_group *group, const void *send, const size_t *bytes, void *receive, vt_request *request)
{
    static const char what[] = "all-gather";
    const vt_nccl *nccl = state_of(group)->nccl;
    communicator *c = begin(group, what);
    size_t total = 0, before = 0;
    bool equal = true, is_host = group->backend == NULL;
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) before += bytes[i];
        total += bytes[i];
        equal = equal && bytes[i] == bytes[0];
    }
    char *whole = is_host ? take_room(group, what, total) : receive;
    const void *own = is_host ? whole + before : send;
    if (is_host && bytes[group->rank] > 0) put(group, what, whole + before, send, bytes[group->rank]);
    if (equal) {
        check(group, what, nccl->ncclAllGather(own, whole, bytes[0], ncclInt8, c->comm, c->stream));
    } else {
        check(group, what, nccl->ncclGroupStart());
        char *part = whole;
        for (int i = 0; i < group->size; i++) {
            if (bytes[i] > 0)
                check(group, what,
                      nccl->ncclBroadcast(i == group->rank ? own : part, part, bytes[i], ncclInt8, i, c->comm,
                                          c->stream));
            part += bytes[i];
        }
        check(group, what, nccl->ncclGroupEnd());
    }
    finish(group, what, request);
    if (is_host) get(group, what, receive, whole, total, request);
}

static void exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive, size_t receive_bytes,
                     int from, vt_request *request)
{
    static const char what[] = "exchange";
    const vt_nccl *nccl = state_of(group)->nccl;
    communicator *c = begin(group, what);
    VT_ASSERT(group->backend != NULL);
    check(group, what, nccl->ncclGroupStart());
    if (send_bytes > 0) check(group, what, nccl->ncclSend(send, send_bytes, ncclInt8, to, c->comm, c->stream));
    if (receive_bytes > 0)
        check(group, what, nccl->ncclRecv(receive, receive_bytes, ncclInt8, from, c->comm, c->stream));
    check(group, what, nccl->ncclGroupEnd());
    finish(group, what, request);
}

static void broadcast(vt_group *group, void *data, size_t bytes, int root, vt_request *request)
{
    static const char what[] = "broadcast";
    const vt_nccl *nccl = state_of(group)->nccl;
    communicator *c = begin(group, what);
    bool is_host = group->backend == NULL;
    void *device = is_host ? take_room(group, what, bytes) : data;
    if (is_host && group->rank == root) put(group, what, device, data, bytes);
    check(group, what, nccl->ncclBroadcast(device, device, bytes, ncclInt8, root, c->comm, c->stream));
    finish(group, what, request);
    if (is_host) get(group, what, data, device, bytes, request);
}

/* ---- requests ---- */

/* What the back end's stream is given from here on comes behind the operation. */
static void wait(vt_request *request)
{
    operation *one = request->state;
    check_cuda(request->group, "wait", cudaStreamWaitEvent(compute_stream(request->group), one->end, 0));
    close_operation(request);
}

/* While a step is recorded nothing is over: waiting now would put all that is computed next behind the operation. */
static bool test(vt_request *request)
{
    operation *one = request->state;
    if (is_capturing(request->group) || cudaEventQuery(one->end) == cudaErrorNotReady) return false;
    wait(request);
    return true;
}

/* The streams wait for one another, so that each rank gives all streams their operations in the same order, whenever
 * they end. */
static bool chain(vt_request *request, const vt_group *next)
{
    operation *one = request->state;
    const communicator *c = next->state;
    check_cuda(request->group, "wait", cudaStreamWaitEvent(c->stream, one->end, 0));
    close_operation(request);
    return true;
}

static void replayed(vt_engine *engine, const vt_backend *backend)
{
    nccl_state *state = engine->state;
    pthread_mutex_lock(&state->mutex);
    cudaError_t error = cudaEventRecord(state->replay_end, (cudaStream_t)backend->stream);
    state->replay_started = vt_clock_seconds();
    pthread_mutex_unlock(&state->mutex);
    if (error != cudaSuccess) vt_engine_abort(engine, "replaying a step: %s", cudaGetErrorString(error));
}

/* ---- the engine ---- */

static void abort_all(vt_engine *engine)
{
    nccl_state *state = engine->state;
    for (communicator *c = state->list; c != NULL; c = c->next) state->nccl->ncclCommAbort(c->comm);
}

static void close_engine(vt_engine *engine)
{
    nccl_state *state = engine->state;
    if (state == NULL) return;
    if (state->watching) {
        pthread_mutex_lock(&state->mutex);
        state->stop = true;
        pthread_mutex_unlock(&state->mutex);
        pthread_join(state->watch, NULL);
    }
    if (state->all != NULL) {
        state->nccl->ncclCommFinalize(state->all);
        if (settle(state, state->all, engine->timeout, "closing") == VT_OK)
            state->nccl->ncclCommDestroy(state->all);
        else
            state->nccl->ncclCommAbort(state->all);
        vt_error_clear();
    }
    if (state->replay_end != NULL) cudaEventDestroy(state->replay_end);
    pthread_mutex_destroy(&state->mutex);
    free(state);
    engine->state = NULL;
}

/* "GPU-…": two ranks of a host on one GPU can't be, NCCL would only say that something is invalid. */
static vt_status check_devices(const vt_nccl_options *options)
{
    vt_status status = VT_OK;
    enum { SIZE = VT_HOST_SIZE + 16 };
    struct cudaDeviceProp properties;
    char *all = vt_allocate((size_t)options->size, SIZE, "communication by NCCL");
    size_t *bytes = vt_allocate((size_t)options->size, sizeof *bytes, "communication by NCCL");
    char *own = all + options->rank * SIZE;
    int device = 0;
    VT_CHECK(cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&properties, device) == cudaSuccess,
             "no GPU for NCCL: %s", cudaGetErrorString(cudaGetLastError()));
    if (options->host == NULL) goto done; /* they can't be asked before NCCL is there */
    vt_host_name(own);
    memcpy(own + VT_HOST_SIZE, &properties.uuid, 16);
    for (int i = 0; i < options->size; i++) bytes[i] = SIZE;
    vt_group_all_gather(options->host, own, bytes, all, NULL);
    for (int i = 0; i < options->size; i++)
        VT_CHECK(i == options->rank || memcmp(all + i * SIZE, own, SIZE) != 0,
                 "ranks %d and %d share one GPU of %s, which NCCL can't: start one rank a GPU, or use --comm=mpi", i,
                 options->rank, own);
done:
    free(all);
    free(bytes);
    return status;
}

/* Rank 0's id, known to all: told over the host's group, or derived by NCCL from where rank 0 listens. */
static vt_status share_id(const vt_nccl *nccl, const vt_nccl_options *options, ncclUniqueId *id)
{
    vt_status status = VT_OK;
    char address[300];
    if (options->host == NULL) {
        snprintf(address, sizeof address, "%s:%d", options->address, options->port);
        setenv("NCCL_COMM_ID", address, 0);
    }
    if (options->host == NULL || options->rank == 0) {
        ncclResult_t result = nccl->ncclGetUniqueId(id);
        VT_CHECK(result == ncclSuccess, "NCCL: no id for the ranks to meet by (%s): %s",
                 options->host == NULL ? address : "on rank 0", nccl->ncclGetErrorString(result));
    }
    if (options->host != NULL) vt_group_broadcast(options->host, id, sizeof *id, 0, NULL);
done:
    return status;
}

vt_status vt_engine_open_nccl(const vt_nccl_options *options, vt_engine **result)
{
    vt_status status = VT_OK;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    int version = 0;
    vt_engine *engine = vt_allocate(1, sizeof *engine, "communication by NCCL");
    nccl_state *state = vt_allocate(1, sizeof *state, "communication by NCCL");
    *engine = (vt_engine){.rank = options->rank,
                          .size = options->size,
                          .timeout = options->timeout,
                          .device_memory = true,
                          .state = state,
                          .split = split,
                          .group_close = group_close,
                          .all_reduce = all_reduce,
                          .reduce_scatter = reduce_scatter,
                          .all_gather = all_gather,
                          .exchange = exchange,
                          .broadcast = broadcast,
                          .test = test,
                          .wait = wait,
                          .chain = chain,
                          .replayed = replayed,
                          .abort = abort_all,
                          .close = close_engine};
    state->engine = engine;
    pthread_mutex_init(&state->mutex, NULL);
    VT_TRY(vt_library_nccl(&state->nccl));
    VT_TRY(check_devices(options));
    VT_CHECK(cudaGetDevice(&state->device) == cudaSuccess &&
                 cudaEventCreateWithFlags(&state->replay_end, cudaEventDisableTiming) == cudaSuccess,
             "no GPU for NCCL: %s", cudaGetErrorString(cudaGetLastError()));
    state->nccl->ncclGetVersion(&version);
    snprintf(engine->name, sizeof engine->name, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    VT_TRY(share_id(state->nccl, options, &id));
    ncclResult_t opened = state->nccl->ncclCommInitRankConfig(&state->all, options->size, id, options->rank, &config);
    VT_CHECK(opened == ncclSuccess || opened == ncclInProgress, "NCCL: %s", state->nccl->ncclGetErrorString(opened));
    VT_TRY(settle(state, state->all, options->timeout, "meeting the other ranks"));
    VT_CHECK(pthread_create(&state->watch, NULL, watch, state) == 0, "no thread to watch over NCCL");
    state->watching = true;
done:
    if (status != VT_OK) vt_engine_close(&engine);
    *result = engine;
    return status;
}

#endif
