/* The operations over a group, on its own stream, and the waits for them. Groups over host memory use a small buffer of
 * device memory, and the host waits. */
#include "parallel/group.h"

#ifdef VT_HAS_NCCL

#include "base/clock.h"
#include "parallel/nccl_inside.h"

static const char *const late =
    "not finished in time (comm_timeout): one of these ranks is stopped, dead or far behind";

static void fail(vt_group *group, const char *what, const char *why)
{
    char text[VT_GROUP_TEXT_SIZE];
    vt_engine_abort(group->engine, "the %s over %s: %s", what, vt_group_text(group, text), why);
}

static void check(vt_group *group, const char *what, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        fail(group, what, vt_nccl_state_of(group)->nccl->ncclGetErrorString(result));
}

static void check_cuda(vt_group *group, const char *what, cudaError_t error)
{
    if (error != cudaSuccess) fail(group, what, cudaGetErrorString(error));
}

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

/* The operation's stream waits for the work on the back end's stream so far. */
static vt_nccl_communicator *begin(vt_group *group, const char *what)
{
    vt_nccl_communicator *c = group->state;
    if (group->backend == NULL) return c;
    check_cuda(group, what, cudaEventRecord(c->begin, compute_stream(group)));
    check_cuda(group, what, cudaStreamWaitEvent(c->stream, c->begin, 0));
    return c;
}

static void finish(vt_group *group, const char *what, vt_request *request)
{
    vt_nccl_communicator *c = group->state;
    vt_nccl_state *state = vt_nccl_state_of(group);
    const double begin = vt_clock_seconds();
    ncclResult_t result =
        ncclInProgress; /* a nonblocking call may continue in the background: it connects to its peers */
    while (state->nccl->ncclCommGetAsyncError(c->comm, &result) == ncclSuccess && result == ncclInProgress) {
        if (vt_clock_seconds() > begin + group->engine->timeout) fail(group, what, late);
        vt_nccl_rest(begin);
    }
    check(group, what, result);
    cudaEvent_t end = NULL; /* what a request's state is: recorded after its operation */
    check_cuda(group, what, cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    check_cuda(group, what, cudaEventRecord(end, c->stream));
    request->state = end;
    if (is_capturing(group)) return; /* it will run with the graph, which is not watched from here */
    pthread_mutex_lock(&state->mutex);
    check_cuda(group, what, cudaEventRecord(c->end, c->stream));
    c->started = vt_clock_seconds();
    c->what = what;
    pthread_mutex_unlock(&state->mutex);
}

static void close_operation(vt_request *request)
{
    cudaEventDestroy(request->state);
    request->state = NULL;
}

/* The memory that NCCL works on: the group's own; or of a host group a room of its communicator, with the bytes from
 * `first` on that this rank gives copied there. */
static char *enter(vt_group *group, const char *what, void *memory, size_t bytes, size_t first, size_t given)
{
    vt_nccl_communicator *c = group->state;
    if (group->backend != NULL) return memory;
    if (bytes > c->room_bytes) {
        cudaFree(c->room);
        check_cuda(group, what, cudaMalloc(&c->room, bytes));
        c->room_bytes = bytes;
    }
    char *room = c->room;
    if (given > 0)
        check_cuda(
            group, what,
            cudaMemcpyAsync(room + first, (const char *)memory + first, given, cudaMemcpyHostToDevice, c->stream));
    return room;
}

/* Ends the submitting. Of a host group the host waits, up to the time-out, and copies back what came. */
static void leave(vt_group *group, const char *what, void *memory, const void *device, size_t bytes,
                  vt_request *request)
{
    finish(group, what, request);
    if (group->backend != NULL) return;
    const double begin = vt_clock_seconds();
    while (cudaEventQuery(request->state) == cudaErrorNotReady) {
        if (vt_clock_seconds() > begin + group->engine->timeout) fail(group, what, late);
        vt_nccl_rest(begin);
    }
    check_cuda(group, what, cudaMemcpy(memory, device, bytes, cudaMemcpyDeviceToHost));
    close_operation(request);
}

static void all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request)
{
    static const char what[] = "all-reduce";
    vt_nccl_communicator *c = begin(group, what);
    ncclDataType_t kind = type == VT_SUM_FLOAT64 ? ncclFloat64 : ncclFloat32;
    size_t bytes = (size_t)count * (type == VT_SUM_FLOAT64 ? sizeof(double) : sizeof(float));
    char *device = enter(group, what, data, bytes, 0, bytes);
    check(
        group, what,
        vt_nccl_state_of(group)->nccl->ncclAllReduce(device, device, (size_t)count, kind, ncclSum, c->comm, c->stream));
    leave(group, what, data, device, bytes, request);
}

static bool all_equal(const int64_t *counts, int size)
{
    for (int i = 1; i < size; i++)
        if (counts[i] != counts[0]) return false;
    return true;
}

/* Parts of different lengths: each rank's is reduced to it, all in one group of calls. */
static void reduce_scatter(vt_group *group, float *data, const int64_t *counts, vt_request *request)
{
    static const char what[] = "reduce-scatter";
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    vt_nccl_communicator *c = begin(group, what);
    VT_ASSERT(group->backend != NULL); /* figures are never scattered */
    if (all_equal(counts, group->size)) {
        check(group, what,
              nccl->ncclReduceScatter(data, data + group->rank * counts[0], (size_t)counts[0], ncclFloat32, ncclSum,
                                      c->comm, c->stream));
    } else {
        check(group, what, nccl->ncclGroupStart());
        float *part = data;
        for (int i = 0; i < group->size; i++) {
            if (counts[i] > 0)
                check(group, what,
                      nccl->ncclReduce(part, part, (size_t)counts[i], ncclFloat32, ncclSum, i, c->comm, c->stream));
            part += counts[i];
        }
        check(group, what, nccl->ncclGroupEnd());
    }
    finish(group, what, request);
}

static void all_gather(vt_group *group, void *data, const size_t *bytes, vt_request *request)
{
    static const char what[] = "all-gather";
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    vt_nccl_communicator *c = begin(group, what);
    size_t total = 0, before = 0;
    bool equal = true;
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) before += bytes[i];
        total += bytes[i];
        equal = equal && bytes[i] == bytes[0];
    }
    char *whole = enter(group, what, data, total, before, bytes[group->rank]);
    if (equal) {
        check(group, what, nccl->ncclAllGather(whole + before, whole, bytes[0], ncclInt8, c->comm, c->stream));
    } else {
        check(group, what, nccl->ncclGroupStart());
        char *part = whole;
        for (int i = 0; i < group->size; i++) {
            if (bytes[i] > 0)
                check(group, what, nccl->ncclBroadcast(part, part, bytes[i], ncclInt8, i, c->comm, c->stream));
            part += bytes[i];
        }
        check(group, what, nccl->ncclGroupEnd());
    }
    leave(group, what, data, whole, total, request);
}

static void exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive, size_t receive_bytes,
                     int from, vt_request *request)
{
    static const char what[] = "exchange";
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    vt_nccl_communicator *c = begin(group, what);
    const bool is_host = group->backend == NULL; /* what comes lies behind what is sent */
    char *room = enter(group, what, (void *)(uintptr_t)send, send_bytes + receive_bytes, 0, send_bytes);
    void *in = is_host ? room + send_bytes : receive;
    check(group, what, nccl->ncclGroupStart());
    if (send_bytes > 0) check(group, what, nccl->ncclSend(room, send_bytes, ncclInt8, to, c->comm, c->stream));
    if (receive_bytes > 0) check(group, what, nccl->ncclRecv(in, receive_bytes, ncclInt8, from, c->comm, c->stream));
    check(group, what, nccl->ncclGroupEnd());
    leave(group, what, receive, in, receive_bytes, request);
}

static void broadcast(vt_group *group, void *data, size_t bytes, int root, vt_request *request)
{
    static const char what[] = "broadcast";
    vt_nccl_communicator *c = begin(group, what);
    char *device = enter(group, what, data, bytes, 0, group->rank == root ? bytes : 0);
    check(group, what,
          vt_nccl_state_of(group)->nccl->ncclBroadcast(device, device, bytes, ncclInt8, root, c->comm, c->stream));
    leave(group, what, data, device, bytes, request);
}

/* ---- requests ---- */

/* Work submitted to the back end's stream from here on runs after the operation. */
static void wait(vt_request *request)
{
    check_cuda(request->group, "wait", cudaStreamWaitEvent(compute_stream(request->group), request->state, 0));
    close_operation(request);
}

/* While a step is recorded no operation counts as finished: waiting now would order all later computation after it. */
static bool test(vt_request *request)
{
    if (is_capturing(request->group) || cudaEventQuery(request->state) == cudaErrorNotReady) return false;
    wait(request);
    return true;
}

/* The streams wait for one another, so that every rank submits operations to all streams in the same order, whenever
 * they finish. */
static bool chain(vt_request *request, const vt_group *next)
{
    const vt_nccl_communicator *c = next->state;
    check_cuda(request->group, "wait", cudaStreamWaitEvent(c->stream, request->state, 0));
    close_operation(request);
    return true;
}

void vt_nccl_operations_fill(vt_engine *engine)
{
    engine->all_reduce = all_reduce;
    engine->reduce_scatter = reduce_scatter;
    engine->all_gather = all_gather;
    engine->exchange = exchange;
    engine->broadcast = broadcast;
    engine->test = test;
    engine->wait = wait;
    engine->chain = chain;
}

#endif
