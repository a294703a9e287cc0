#include "parallel/link.h"

#include <stdio.h>

/* The other end. */
static int peer_of(const vt_link *link)
{
    return 1 - link->group->rank;
}

static vt_matrix room_of(const vt_link *link, vt_matrix like)
{
    vt_matrix room = vt_matrix_make(link->room, like.rows, like.columns);
    if (link->type == VT_FLOAT32) return room;
    room.half = link->room;
    room.type = link->type;
    return room;
}

vt_status vt_link_open(vt_group *group, vt_type type, int64_t elements, const char *contents, vt_link *link)
{
    vt_status status = VT_OK;
    vt_backend *backend = group->backend;
    *link = (vt_link){.contents = contents};
    if (group->size == 1) return VT_OK;
    VT_TRY(backend->allocate(backend, VT_MEMORY_ACTIVATIONS, (size_t)elements * vt_type_size(type), &link->room));
    link->type = type;
    link->elements = elements;
    link->group = group;
done:
    return status;
}

void vt_link_close(vt_link *link)
{
    if (link->group == NULL) return;
    vt_request_wait(&link->request);
    link->group->backend->release(link->group->backend, link->room);
    *link = (vt_link){0};
}

void vt_link_send(vt_link *link, vt_matrix matrix)
{
    vt_backend *backend = link->group->backend;
    vt_request_wait(&link->request);
    backend->convert(backend, matrix, room_of(link, matrix));
    vt_group_send(link->group, link->room, (size_t)(matrix.rows * matrix.columns) * vt_type_size(link->type),
                  peer_of(link), &link->request);
}

int64_t vt_link_next(const vt_link *link)
{
    return (link->count - link->expected) % link->cycle;
}

static void post(vt_link *link)
{
    snprintf(link->group->receiving, sizeof link->group->receiving, "receive of the %s of micro-batch %ld of step %ld",
             link->contents, vt_link_next(link), link->step);
    vt_group_receive(link->group, link->room, (size_t)link->elements * vt_type_size(link->type), peer_of(link),
                     &link->request);
}

void vt_link_expect(vt_link *link, int64_t step, int64_t count, int64_t cycle, int64_t elements)
{
    VT_ASSERT(link->expected == 0);
    link->expected = link->count = count;
    link->cycle = cycle;
    link->step = step;
    link->elements = elements;
    if (count > 0) post(link);
}

void vt_link_receive(vt_link *link, vt_matrix matrix)
{
    vt_backend *backend = link->group->backend;
    VT_ASSERT(link->expected > 0 && matrix.rows * matrix.columns == link->elements);
    vt_request_wait(&link->request);
    backend->convert(backend, room_of(link, matrix), matrix);
    if (--link->expected > 0) post(link);
}
