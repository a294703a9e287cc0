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

/* A host group's operation, in a room of its communicator, where what this rank gives is copied. */
static vt_group_operation enter_room(vt_group *group, const char *what, const vt_group_operation *operation)
{
    vt_nccl_communicator *c = group->state;
    if (operation->block.count > c->room_bytes) {
        cudaFree(c->room);
        check_cuda(group, what, cudaMalloc(&c->room, operation->block.count));
        c->room_bytes = operation->block.count;
    }
    const vt_group_operation moved = vt_group_operation_on(operation, c->room);
    if (moved.send.count > 0)
        check_cuda(
            group, what,
            cudaMemcpyAsync(moved.send.at, operation->send.at, moved.send.count, cudaMemcpyHostToDevice, c->stream));
    return moved;
}

/* The host waits, up to the time-out, and copies back what came. */
static void leave_room(vt_group *group, const char *what, const vt_group_operation *operation, const char *received,
                       vt_request *request)
{
    const double begin = vt_clock_seconds();
    while (cudaEventQuery(request->state) == cudaErrorNotReady) {
        if (vt_clock_seconds() > begin + group->engine->timeout) fail(group, what, late);
        vt_nccl_rest(begin);
    }
    check_cuda(group, what,
               cudaMemcpy(operation->receive.at, received, operation->receive.count, cudaMemcpyDeviceToHost));
    close_operation(request);
}

static bool all_equal(const size_t *parts, int size)
{
    for (int i = 1; i < size; i++)
        if (parts[i] != parts[0]) return false;
    return true;
}

/* Parts of different lengths: one call for each, all in one group of calls. */
static void submit_parts(vt_group *group, const char *what, const vt_group_operation *o)
{
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    const vt_nccl_communicator *c = group->state;
    char *part = o->block.at;
    check(group, what, nccl->ncclGroupStart());
    for (int i = 0; i < group->size; part += o->parts[i++]) {
        if (o->parts[i] == 0) continue;
        check(group, what,
              o->kind == VT_ALL_GATHER ? nccl->ncclBroadcast(part, part, o->parts[i], ncclInt8, i, c->comm, c->stream)
                                       : nccl->ncclReduce(part, part, o->parts[i] / sizeof(float), ncclFloat32, ncclSum,
                                                          i, c->comm, c->stream));
    }
    check(group, what, nccl->ncclGroupEnd());
}

static void submit_exchange(vt_group *group, const char *what, const vt_group_operation *o)
{
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    const vt_nccl_communicator *c = group->state;
    check(group, what, nccl->ncclGroupStart());
    if (o->send.count > 0)
        check(group, what, nccl->ncclSend(o->send.at, o->send.count, ncclInt8, o->to, c->comm, c->stream));
    if (o->receive.count > 0)
        check(group, what, nccl->ncclRecv(o->receive.at, o->receive.count, ncclInt8, o->from, c->comm, c->stream));
    check(group, what, nccl->ncclGroupEnd());
}

static void submit(vt_group *group, const char *what, const vt_group_operation *o)
{
    const vt_nccl *nccl = vt_nccl_state_of(group)->nccl;
    const vt_nccl_communicator *c = group->state;
    const ncclDataType_t type = o->type == VT_SUM_FLOAT64 ? ncclFloat64 : ncclFloat32;
    const size_t size = vt_sum_type_size(o->type);
    ncclResult_t result = ncclSuccess;
    if (o->kind == VT_EXCHANGE)
        submit_exchange(group, what, o);
    else if (o->kind == VT_ALL_REDUCE)
        result =
            nccl->ncclAllReduce(o->send.at, o->receive.at, o->block.count / size, type, ncclSum, c->comm, c->stream);
    else if (o->kind == VT_BROADCAST)
        result = nccl->ncclBroadcast(o->block.at, o->block.at, o->block.count, ncclInt8, o->from, c->comm, c->stream);
    else if (!all_equal(o->parts, group->size))
        submit_parts(group, what, o);
    else if (o->kind == VT_ALL_GATHER)
        result = nccl->ncclAllGather(o->send.at, o->receive.at, o->send.count, ncclInt8, c->comm, c->stream);
    else
        result = nccl->ncclReduceScatter(o->send.at, o->receive.at, o->receive.count / size, type, ncclSum, c->comm,
                                         c->stream);
    check(group, what, result);
}

static void start(vt_group *group, const vt_group_operation *operation, vt_request *request)
{
    const char *what = vt_group_operation_names[operation->kind];
    const bool is_host = group->backend == NULL;
    const vt_nccl_communicator *c = group->state;
    if (!is_host) { /* it comes after the work on the back end's stream so far */
        check_cuda(group, what, cudaEventRecord(c->begin, compute_stream(group)));
        check_cuda(group, what, cudaStreamWaitEvent(c->stream, c->begin, 0));
    }
    const vt_group_operation here = is_host ? enter_room(group, what, operation) : *operation;
    submit(group, what, &here);
    finish(group, what, request);
    if (is_host) leave_room(group, what, operation, here.receive.at, request);
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
    engine->start = start;
    engine->test = test;
    engine->wait = wait;
    engine->chain = chain;
}

#endif
