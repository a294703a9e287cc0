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
        const int code = kind == SEND          ? MPI_Isend(at, now, MPI_BYTE, peer, 0, comm, own)
                         : kind == RECEIVE     ? MPI_Irecv(at, now, MPI_BYTE, peer, 0, comm, own)
                         : kind == BROADCAST   ? MPI_Ibcast(at, now, MPI_BYTE, peer, comm, own)
                         : kind == SUM         ? MPI_Iallreduce(MPI_IN_PLACE, at, now, type, MPI_SUM, comm, own)
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

void vt_mpi_operations_fill(vt_engine *engine)
{
    engine->start = mpi_start;
    engine->test = mpi_test;
    engine->wait = mpi_wait;
    engine->advance = mpi_advance;
}

#endif
