/* The operations over a group: each is one nonblocking MPI operation, or several if a count would exceed int. */
#include "parallel/group.h"

#ifdef VT_HAS_MPI

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/mpi_inside.h"

static MPI_Comm communicator(const vt_group *group)
{
    return *(const MPI_Comm *)group->state;
}

static vt_mpi_operation *operation_begin(const char *name, size_t volume, vt_request *request)
{
    vt_mpi_operation *work = vt_allocate(1, sizeof *work, "communication over MPI");
    work->name = name;
    work->volume = volume;
    request->state = work;
    return work;
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

static int part(int64_t left, int64_t largest)
{
    return (int)(left < largest ? left : largest);
}

static const vt_mpi_state *state_of(const vt_group *group)
{
    return group->engine->state;
}

static void mpi_all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request)
{
    size_t size = type == VT_SUM_FLOAT64 ? sizeof(double) : sizeof(float);
    vt_mpi_operation *work = operation_begin("all-reduce", (size_t)count * size, request);
    for (int64_t done = 0; done < count;) {
        int now = part(count - done, state_of(group)->largest_count);
        int code =
            MPI_Iallreduce(MPI_IN_PLACE, (char *)data + (size_t)done * size, now,
                           type == VT_SUM_FLOAT64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, communicator(group), next(work));
        vt_mpi_check(group->engine, code, work->name, group->name);
        done += now;
    }
}

/* Too large for one call: a reduction to each rank. */
static void reduce_to_each(vt_group *group, vt_mpi_operation *work, float *data, const int64_t *counts)
{
    for (int root = 0; root < group->size; data += counts[root++]) {
        for (int64_t done = 0; done < counts[root];) {
            int now = part(counts[root] - done, state_of(group)->largest_count);
            float *own = data + done;
            const bool receives = root == group->rank;
            int code = MPI_Ireduce(receives ? MPI_IN_PLACE : own, receives ? own : NULL, now, MPI_FLOAT, MPI_SUM, root,
                                   communicator(group), next(work));
            vt_mpi_check(group->engine, code, work->name, group->name);
            done += now;
        }
    }
}

static void mpi_reduce_scatter(vt_group *group, float *data, const int64_t *counts, vt_request *request)
{
    int64_t total = 0, before = 0;
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) before += counts[i];
        total += counts[i];
    }
    vt_mpi_operation *work = operation_begin("reduce-scatter", (size_t)total * sizeof *data, request);
    if (total > state_of(group)->largest_count) {
        reduce_to_each(group, work, data, counts);
        return;
    }
    work->counts = vt_allocate((size_t)group->size, sizeof *work->counts, "communication over MPI");
    for (int i = 0; i < group->size; i++) work->counts[i] = (int)counts[i];
    work->to = data + before;
    work->from = data;
    work->bytes = (size_t)counts[group->rank] * sizeof *data;
    int code =
        MPI_Ireduce_scatter(MPI_IN_PLACE, data, work->counts, MPI_FLOAT, MPI_SUM, communicator(group), next(work));
    vt_mpi_check(group->engine, code, work->name, group->name);
}

/* Transfers of bytes, in parts where they are too large for one call. */
typedef enum { SEND, RECEIVE, BROADCAST } transfer;

static void transfer_parts(vt_group *group, vt_mpi_operation *work, transfer kind, void *data, size_t bytes, int peer)
{
    const MPI_Comm comm = communicator(group);
    for (size_t done = 0; done < bytes;) {
        char *from = (char *)data + done;
        const int now = part((int64_t)(bytes - done), state_of(group)->largest_bytes);
        const int code = kind == SEND      ? MPI_Isend(from, now, MPI_BYTE, peer, 0, comm, next(work))
                         : kind == RECEIVE ? MPI_Irecv(from, now, MPI_BYTE, peer, 0, comm, next(work))
                                           : MPI_Ibcast(from, now, MPI_BYTE, peer, comm, next(work));
        vt_mpi_check(group->engine, code, work->name, group->name);
        done += (size_t)now;
    }
}

static void mpi_all_gather(vt_group *group, void *data, const size_t *bytes, vt_request *request)
{
    size_t total = 0;
    for (int i = 0; i < group->size; i++) total += bytes[i];
    vt_mpi_operation *work = operation_begin("all-gather", total, request);
    if (total > (size_t)state_of(group)->largest_bytes) {
        char *place = data;
        for (int root = 0; root < group->size; place += bytes[root++])
            transfer_parts(group, work, BROADCAST, place, bytes[root], root);
        return;
    }
    work->counts = vt_allocate(2 * (size_t)group->size, sizeof *work->counts, "communication over MPI");
    int *offsets = work->counts + group->size;
    for (int i = 0, offset = 0; i < group->size; offset += work->counts[i++]) {
        work->counts[i] = (int)bytes[i];
        offsets[i] = offset;
    }
    int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, work->counts, offsets, MPI_BYTE, communicator(group),
                               next(work));
    vt_mpi_check(group->engine, code, work->name, group->name);
}

static void mpi_exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive,
                         size_t receive_bytes, int from, vt_request *request)
{
    const bool is_receive = send_bytes == 0 && group->receiving[0] != '\0';
    vt_mpi_operation *work =
        operation_begin(is_receive ? group->receiving : "exchange", send_bytes + receive_bytes, request);
    work->is_receive = is_receive;
    transfer_parts(group, work, RECEIVE, receive, receive_bytes, from);
    transfer_parts(group, work, SEND, (void *)(uintptr_t)send, send_bytes, to);
}

static void mpi_broadcast(vt_group *group, void *data, size_t bytes, int root, vt_request *request)
{
    transfer_parts(group, operation_begin("broadcast", bytes, request), BROADCAST, data, bytes, root);
}

static void finish(vt_request *request)
{
    vt_mpi_operation *work = request->state;
    if (work->to != NULL) memmove(work->to, work->from, work->bytes);
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

void vt_mpi_operations_fill(vt_engine *engine)
{
    engine->all_reduce = mpi_all_reduce;
    engine->reduce_scatter = mpi_reduce_scatter;
    engine->all_gather = mpi_all_gather;
    engine->exchange = mpi_exchange;
    engine->broadcast = mpi_broadcast;
    engine->test = mpi_test;
    engine->wait = mpi_wait;
    engine->advance = mpi_advance;
}

#endif
