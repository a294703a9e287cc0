/* NCCL: one GPU for each rank. Loaded on first use, like all CUDA libraries (cuda/libraries.h). Each group has its own
 * communicator and stream: an operation starts after the work submitted so far to the back end's stream, and waiting
 * for it makes that stream wait, not the host. A thread watches all communicators: an error, or an operation that takes
 * longer than engine->timeout seconds, ends the job.
 * Groups over host memory (figures, agreements) use a small buffer of device memory, and the host does wait. */
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

vt_status vt_engine_open_nccl(const vt_launch *launch, vt_group *host, double timeout, vt_engine **engine)
{
    (void)launch, (void)host, (void)timeout;
    *engine = NULL;
    return vt_error_note(__FILE__, __LINE__,
                         "this vitrain was built without NCCL, because make found no nccl.h beside CUDA; --comm=mpi "
                         "moves data between GPUs through the host");
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads.h"
#include "parallel/nccl_inside.h"

static const double SHORT = 1e-4; /* seconds: most calls are over by then */

void vt_nccl_rest(double since)
{
    const struct timespec pause = {.tv_nsec = 200000};
    if (vt_clock_seconds() - since > SHORT) nanosleep(&pause, NULL);
}

/* Waits until a communicator that was opened without blocking is ready. */
static vt_status settle(const vt_nccl_state *state, ncclComm_t comm, double timeout, const char *what)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds();
    ncclResult_t result = ncclInProgress;
    while (state->nccl->ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress) {
        VT_CHECK(vt_clock_seconds() < begin + timeout,
                 "NCCL: %s was not over after %g s (comm_timeout): not all ranks have come, or they can't reach one "
                 "another",
                 what, timeout);
        vt_nccl_rest(begin);
    }
    VT_CHECK(result == ncclSuccess, "NCCL: %s: %s (%s)", what, state->nccl->ncclGetErrorString(result),
             state->nccl->ncclGetLastError(comm));
done:
    return status;
}

static void close_communicator(const vt_nccl_state *state, ncclComm_t comm, const char *what)
{
    state->nccl->ncclCommFinalize(comm);
    if (settle(state, comm, state->engine->timeout, what) == VT_OK)
        state->nccl->ncclCommDestroy(comm);
    else
        state->nccl->ncclCommAbort(comm);
    vt_error_clear();
}

/* ---- the watching thread ---- */

static void look_after(vt_nccl_state *state, vt_nccl_communicator *c)
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

/* Recorded operations have no event of a communicator to query: only the whole replay has one. */
static void look_after_replay(vt_nccl_state *state)
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
    vt_nccl_state *state = argument;
    cudaSetDevice(state->device);
    vt_threads_roam();
    enum cudaStreamCaptureMode mode =
        cudaStreamCaptureModeRelaxed; /* querying events must not become part of a capture */
    cudaThreadExchangeStreamCaptureMode(&mode);
    for (;;) {
        pthread_mutex_lock(&state->mutex);
        for (vt_nccl_communicator *c = state->list; c != NULL && !state->stop; c = c->next) look_after(state, c);
        if (!state->stop) look_after_replay(state);
        bool stop = state->stop;
        pthread_mutex_unlock(&state->mutex);
        if (stop) return NULL;
        for (int i = 0; i < 250; i++) vt_nccl_rest(0);
    }
}

/* ---- groups ---- */

static vt_status split(vt_engine *engine, int color, int key, vt_group *group)
{
    vt_status status = VT_OK;
    vt_nccl_state *state = engine->state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    vt_nccl_communicator *c = vt_allocate(1, sizeof *c, "communication by NCCL");
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
    vt_nccl_state *state = vt_nccl_state_of(group);
    vt_nccl_communicator *c = group->state;
    cudaStreamSynchronize(c->stream); /* until now the watching thread covers it */
    pthread_mutex_lock(&state->mutex);
    vt_nccl_communicator **place = &state->list;
    while (*place != c) place = &(*place)->next;
    *place = c->next;
    pthread_mutex_unlock(&state->mutex);
    close_communicator(state, c->comm, "closing a group");
    cudaEventDestroy(c->begin);
    cudaEventDestroy(c->end);
    cudaStreamDestroy(c->stream);
    cudaFree(c->room);
    free(c);
    group->state = NULL;
}

/* ---- the engine ---- */

static void replayed(vt_engine *engine, const vt_backend *backend)
{
    vt_nccl_state *state = engine->state;
    pthread_mutex_lock(&state->mutex);
    cudaError_t error = cudaEventRecord(state->replay_end, (cudaStream_t)backend->stream);
    state->replay_started = vt_clock_seconds();
    pthread_mutex_unlock(&state->mutex);
    if (error != cudaSuccess) vt_engine_abort(engine, "replaying a step: %s", cudaGetErrorString(error));
}

static void abort_all(vt_engine *engine)
{
    vt_nccl_state *state = engine->state;
    for (vt_nccl_communicator *c = state->list; c != NULL; c = c->next) state->nccl->ncclCommAbort(c->comm);
}

static void close_engine(vt_engine *engine)
{
    vt_nccl_state *state = engine->state;
    if (state == NULL) return;
    if (state->watching) {
        pthread_mutex_lock(&state->mutex);
        state->stop = true;
        pthread_mutex_unlock(&state->mutex);
        pthread_join(state->watch, NULL);
    }
    if (state->all != NULL) close_communicator(state, state->all, "closing");
    if (state->replay_end != NULL) cudaEventDestroy(state->replay_end);
    pthread_mutex_destroy(&state->mutex);
    free(state);
    engine->state = NULL;
}

/* "GPU-…". Two ranks of a host must not share a GPU; NCCL would only report an invalid argument. */
static vt_status check_devices(const vt_launch *launch, vt_group *host)
{
    vt_status status = VT_OK;
    enum { SIZE = VT_HOST_SIZE + 16 };
    struct cudaDeviceProp properties;
    char *all = vt_allocate((size_t)launch->world_size, SIZE, "communication by NCCL");
    char *own = all + launch->rank * SIZE;
    int device = 0;
    VT_CHECK(cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&properties, device) == cudaSuccess,
             "no GPU for NCCL: %s", cudaGetErrorString(cudaGetLastError()));
    if (host == NULL) goto done; /* they can't be asked before NCCL is open */
    vt_host_name(own);
    memcpy(own + VT_HOST_SIZE, &properties.uuid, 16);
    vt_group_all_gather_equal(host, own, SIZE, all);
    for (int i = 0; i < launch->world_size; i++)
        VT_CHECK(i == launch->rank || memcmp(all + i * SIZE, own, SIZE) != 0,
                 "ranks %d and %d share one GPU of %s, which NCCL can't: start one rank a GPU, or use --comm=mpi", i,
                 launch->rank, own);
done:
    free(all);
    return status;
}

/* Rank 0's id, known to all ranks: sent over the host's group, or derived by NCCL from the address where rank 0
 * listens. */
static vt_status share_id(const vt_nccl *nccl, const vt_launch *launch, vt_group *host, ncclUniqueId *id)
{
    vt_status status = VT_OK;
    char address[300];
    if (host == NULL) {
        snprintf(address, sizeof address, "%s:%d", launch->address, launch->port);
        setenv("NCCL_COMM_ID", address, 0);
    }
    if (host == NULL || launch->rank == 0) {
        ncclResult_t result = nccl->ncclGetUniqueId(id);
        VT_CHECK(result == ncclSuccess, "NCCL: no id for the ranks to meet by (%s): %s",
                 host == NULL ? address : "on rank 0", nccl->ncclGetErrorString(result));
    }
    if (host != NULL) vt_group_broadcast(host, id, sizeof *id, 0);
done:
    return status;
}

vt_status vt_engine_open_nccl(const vt_launch *launch, vt_group *host, double timeout, vt_engine **result)
{
    vt_status status = VT_OK;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    int version = 0;
    vt_engine *engine = vt_allocate(1, sizeof *engine, "communication by NCCL");
    vt_nccl_state *state = vt_allocate(1, sizeof *state, "communication by NCCL");
    *engine = (vt_engine){.rank = launch->rank,
                          .size = launch->world_size,
                          .timeout = timeout,
                          .device_memory = true,
                          .state = state,
                          .split = split,
                          .group_close = group_close,
                          .replayed = replayed,
                          .abort = abort_all,
                          .close = close_engine};
    vt_nccl_operations_fill(engine);
    state->engine = engine;
    pthread_mutex_init(&state->mutex, NULL);
    VT_TRY(vt_library_nccl(&state->nccl));
    VT_TRY(check_devices(launch, host));
    VT_CHECK(cudaGetDevice(&state->device) == cudaSuccess &&
                 cudaEventCreateWithFlags(&state->replay_end, cudaEventDisableTiming) == cudaSuccess,
             "no GPU for NCCL: %s", cudaGetErrorString(cudaGetLastError()));
    state->nccl->ncclGetVersion(&version);
    snprintf(engine->name, sizeof engine->name, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    VT_TRY(share_id(state->nccl, launch, host, &id));
    ncclResult_t opened =
        state->nccl->ncclCommInitRankConfig(&state->all, launch->world_size, id, launch->rank, &config);
    VT_CHECK(opened == ncclSuccess || opened == ncclInProgress, "NCCL: %s", state->nccl->ncclGetErrorString(opened));
    VT_TRY(settle(state, state->all, timeout, "meeting the other ranks"));
    VT_CHECK(pthread_create(&state->watch, NULL, watch, state) == 0, "no thread to watch over NCCL");
    state->watching = true;
done:
    if (status != VT_OK) vt_engine_close(&engine);
    *result = engine;
    return status;
}

#endif
