/* What all engines have in common: counting, groups of one rank, and staging of device memory through the host; and the
 * engines of a rank that talks to no other. */
#include "parallel/group.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

const char *const vt_group_operation_names[] = {"all-reduce", "reduce-scatter", "all-gather", "exchange", "broadcast"};

void vt_volume_add(vt_volume *sum, const vt_volume *more, int64_t factor)
{
    sum->operations += factor * more->operations;
    sum->bytes += (double)factor * more->bytes;
    sum->padding += (double)factor * more->padding;
    sum->seconds += (double)factor * more->seconds;
}

size_t vt_sum_type_size(vt_sum_type type)
{
    return type == VT_SUM_FLOAT64 ? sizeof(double) : sizeof(float);
}

static bool is_device_memory(const vt_group *group)
{
    return group->backend != NULL && !group->backend->shares_host_memory;
}

static bool stages(const vt_group *group)
{
    return is_device_memory(group) && !group->engine->device_memory;
}

/* to = from, both the group's kind of memory; they may be the same. */
static void move(vt_group *group, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0) return;
    if (is_device_memory(group))
        group->backend->copy(group->backend, to, from, bytes);
    else
        memmove(to, from, bytes);
}

static void count_operation(vt_group *group, double bytes)
{
    if (group->size == 1) return;
    group->volume.operations++;
    group->volume.bytes += bytes;
}

/* For an engine that only counts: MPI keeps copies of a sum until it has been waited for. Those of reduce-scatters come
 * and go, and may leave a hole in the heap that is too small for the next one: none, or up to the size of the largest.
 * Half of that is counted. The request's state is how many bytes they are. */
static void note_copies(vt_group *group, size_t bytes, bool scatters, vt_request *request)
{
    vt_engine *engine = group->engine;
    if (group->size == 1 || !engine->counts_only) return;
    if (scatters && bytes / 2 > engine->hole) engine->hole = bytes / 2;
    engine->copies += bytes;
    if (engine->copies > engine->most_copies) engine->most_copies = engine->copies;
    if (request != NULL)
        request->state = (void *)(uintptr_t)bytes;
    else
        engine->copies -= bytes;
}

static double ring_share(const vt_group *group, const vt_group_operation *operation)
{
    return (double)operation->block.count * (group->size - 1) / group->size;
}

vt_group_operation vt_group_operation_on(const vt_group_operation *operation, char *copy)
{
    vt_group_operation moved = *operation;
    const char *block = operation->block.at;
    moved.block.at = block != NULL ? copy : NULL;
    moved.send.at = copy + (block != NULL ? operation->send.at - block : 0);
    moved.receive.at = copy + (block != NULL ? (size_t)(operation->receive.at - block) : operation->send.count);
    return moved;
}

/* The same on a copy in the host's memory. */
static vt_group_operation stage(vt_request *request, const vt_group_operation *operation)
{
    vt_group *group = request->group;
    request->copy = malloc(operation->block.count);
    if (request->copy == NULL)
        vt_engine_abort(group->engine, "no memory for %zu bytes on their way through the host (%s)",
                        operation->block.count, group->name);
    const vt_group_operation staged = vt_group_operation_on(operation, request->copy);
    request->received = staged.receive;
    request->to = operation->receive.at;
    if (staged.send.count > 0)
        group->backend->copy_to_host(group->backend, staged.send.at, operation->send.at, staged.send.count);
    return staged;
}

static void unstage(vt_request *request)
{
    vt_backend *backend = request->group->backend;
    const vt_group_bytes received = request->received;
    if (request->copy == NULL) return;
    if (received.count > 0) backend->copy_from_host(backend, request->to, received.at, received.count);
    free(request->copy);
    request->copy = NULL;
}

/* Nothing has to be sent where the engine only counts or the group has one rank. */
static void start(vt_group *group, vt_group_operation operation, vt_request *request)
{
    vt_request own = {0}, *used = request != NULL ? request : &own;
    VT_ASSERT(used->state == NULL); /* the one before is over */
    used->group = group;
    if (group->size == 1 || group->engine->counts_only || operation.block.count == 0) return;
    if (stages(group)) operation = stage(used, &operation);
    group->engine->start(group, &operation, used);
    if (request == NULL) vt_request_wait(used);
}

static vt_group_operation on_block(vt_group_operation_kind kind, void *data, size_t bytes)
{
    const vt_group_bytes all = {data, bytes};
    return (vt_group_operation){.kind = kind, .block = all, .send = all, .receive = all};
}

void vt_group_all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request)
{
    vt_group_operation operation = on_block(VT_ALL_REDUCE, data, (size_t)count * vt_sum_type_size(type));
    operation.type = type;
    count_operation(group, 2 * ring_share(group, &operation));
    start(group, operation, request);
    note_copies(group, operation.block.count, false, request); /* Open MPI's libnbc keeps one */
}

static vt_group_operation on_parts(const vt_group *group, vt_group_operation_kind kind, char *data, const size_t *parts)
{
    vt_group_bytes own = {data, parts[group->rank]};
    size_t total = 0;
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) own.at += parts[i];
        total += parts[i];
    }
    vt_group_operation operation = on_block(kind, data, total);
    operation.parts = parts;
    *(kind == VT_ALL_GATHER ? &operation.send : &operation.receive) = own;
    return operation;
}

void vt_group_reduce_scatter(vt_group *group, float *data, const int64_t *counts, vt_request *request)
{
    size_t parts[group->size], copies = group->size > 2 ? 2 : 1; /* that MPI makes */
    for (int i = 0; i < group->size; i++) parts[i] = (size_t)counts[i] * sizeof *data;
    const vt_group_operation operation = on_parts(group, VT_REDUCE_SCATTER, (char *)data, parts);
    count_operation(group, ring_share(group, &operation));
    start(group, operation, request);
    note_copies(group, copies * operation.block.count, true, request);
}

void vt_group_all_gather(vt_group *group, void *data, const size_t *bytes, vt_request *request)
{
    const vt_group_operation operation = on_parts(group, VT_ALL_GATHER, data, bytes);
    count_operation(group, ring_share(group, &operation));
    start(group, operation, request);
}

void vt_group_all_gather_equal(vt_group *group, const void *send, size_t bytes, void *receive)
{
    size_t each[group->size];
    for (int i = 0; i < group->size; i++) each[i] = bytes;
    if (!group->engine->counts_only) move(group, (char *)receive + (size_t)group->rank * bytes, send, bytes);
    vt_group_all_gather(group, receive, each, NULL);
}

/* send or receive NULL: one half alone. */
static vt_group_operation exchange(const void *send, size_t send_bytes, int to, void *receive, size_t receive_bytes,
                                   int from)
{
    return (vt_group_operation){.kind = VT_EXCHANGE,
                                .block.count = send_bytes + receive_bytes,
                                .send = {(char *)(uintptr_t)send, send_bytes},
                                .receive = {receive, receive_bytes},
                                .to = to,
                                .from = from};
}

void vt_group_exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive,
                       size_t receive_bytes, int from, vt_request *request)
{
    count_operation(group, (double)send_bytes);
    start(group, exchange(send, send_bytes, to, receive, receive_bytes, from), request);
    if (group->size == 1 && !group->engine->counts_only) move(group, receive, send, receive_bytes);
}

void vt_group_send(vt_group *group, const void *send, size_t bytes, int to, vt_request *request)
{
    count_operation(group, (double)bytes);
    start(group, exchange(send, bytes, to, NULL, 0, to), request);
}

void vt_group_receive(vt_group *group, void *receive, size_t bytes, int from, vt_request *request)
{
    start(group, exchange(NULL, 0, from, receive, bytes, from), request);
}

void vt_group_broadcast(vt_group *group, void *data, size_t bytes, int root)
{
    vt_group_operation operation = on_block(VT_BROADCAST, data, bytes);
    operation.from = root;
    (group->rank == root ? &operation.receive : &operation.send)->count = 0;
    count_operation(group, (double)bytes);
    start(group, operation, NULL);
}

/* ---- requests ---- */

bool vt_request_test(vt_request *request)
{
    if (request->state == NULL) return true;
    if (request->group->engine->counts_only) return false; /* until it is waited for */
    if (!request->group->engine->test(request)) return false;
    unstage(request);
    return true;
}

void vt_request_wait(vt_request *request)
{
    if (request->state == NULL) return;
    if (request->group->engine->counts_only) {
        request->group->engine->copies -= (uintptr_t)request->state;
        request->state = NULL;
        return;
    }
    double start = vt_clock_seconds();
    request->group->engine->wait(request);
    unstage(request);
    request->group->volume.seconds += vt_clock_seconds() - start;
}

bool vt_request_chain(vt_request *request, const vt_group *next)
{
    if (request->state == NULL) return true;
    const vt_engine *engine = request->group->engine;
    return engine->chain != NULL && engine == next->engine && engine->chain(request, next);
}

/* ---- groups ---- */

vt_status vt_group_open(vt_engine *engine, const char *name, const int *members, int size, int rank, int color,
                        vt_backend *backend, vt_group **result)
{
    vt_status status = VT_OK;
    vt_group *group = vt_allocate(1, sizeof *group, "a group of ranks");
    snprintf(group->name, sizeof group->name, "%s", name);
    group->size = size;
    group->rank = rank;
    group->members = vt_copy(members, (size_t)size, sizeof *members, "a group of ranks");
    group->backend = backend;
    group->engine = engine;
    if (engine->split != NULL) VT_TRY(engine->split(engine, color, rank, group));
done:
    if (status != VT_OK) vt_group_close(&group);
    *result = group;
    return status;
}

void vt_group_close(vt_group **group)
{
    if (*group == NULL) return;
    if ((*group)->state != NULL) (*group)->engine->group_close(*group);
    free((*group)->members);
    free(*group);
    *group = NULL;
}

const char *vt_group_text(const vt_group *group, char text[VT_GROUP_TEXT_SIZE])
{
    enum { SHOWN = 16 };
    size_t length = (size_t)snprintf(text, VT_GROUP_TEXT_SIZE, "%s [", group->name);
    for (int i = 0; i < group->size && i < SHOWN; i++)
        length += (size_t)snprintf(text + length, VT_GROUP_TEXT_SIZE - length, i > 0 ? " %d" : "%d", group->members[i]);
    if (group->size > SHOWN)
        snprintf(text + length, VT_GROUP_TEXT_SIZE - length, " … %d ranks]", group->size);
    else
        snprintf(text + length, VT_GROUP_TEXT_SIZE - length, "]");
    return text;
}

/* ---- engines ---- */

vt_engine *vt_engine_open_alone(int rank, int size, bool counts_only)
{
    VT_ASSERT(rank >= 0 && rank < size && (size == 1 || counts_only));
    vt_engine *engine = vt_allocate(1, sizeof *engine, "an engine");
    engine->rank = rank;
    engine->size = size;
    engine->counts_only = counts_only;
    snprintf(engine->name, sizeof engine->name, "%s", counts_only ? "dry" : "one rank");
    return engine;
}

void vt_engine_close(vt_engine **engine)
{
    if (*engine == NULL) return;
    if ((*engine)->close != NULL) (*engine)->close(*engine);
    free(*engine);
    *engine = NULL;
}

void vt_host_name(char name[VT_HOST_SIZE])
{
    if (gethostname(name, VT_HOST_SIZE) != 0) snprintf(name, VT_HOST_SIZE, "unknown host");
    name[VT_HOST_SIZE - 1] = '\0';
}

void vt_engine_abort(vt_engine *engine, const char *format, ...)
{
    char sentence[2048], line[2304], host[VT_HOST_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    vt_host_name(host);
    if (engine->size > 1)
        snprintf(line, sizeof line, "vitrain: rank %d on %s: %s\n", engine->rank, host, sentence);
    else
        snprintf(line, sizeof line, "vitrain: %s\n", sentence);
    fflush(stdout);
    fputs(line, stderr);
    fflush(stderr);
    signal(SIGALRM, SIG_DFL); /* should the launcher or a device not answer, this ends the rank */
    alarm(10);
    if (engine->abort != NULL) engine->abort(engine);
    _exit(EXIT_FAILURE);
}
