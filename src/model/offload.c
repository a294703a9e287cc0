#include "model/offload.h"

#include <stdlib.h>

#include "base/memory.h"

enum { ROOMS = 2, STREAMS = 3 };

/* What backward of a block reads: the stream in front of it, and what it kept. */
typedef struct {
    bool is_away;
    char *host;
    size_t stream_bytes, kept_bytes;
} item;

struct vt_offload {
    vt_backend *backend;
    vt_span units, blocks;
    vt_arena kept[ROOMS], streams[STREAMS];
    char *host;
    size_t host_capacity, host_used, host_peak;
    item items[]; /* of the blocks */
};

size_t vt_offload_device_bytes(vt_offload_sizes sizes)
{
    return ROOMS * sizes.kept + STREAMS * sizes.stream;
}

vt_status vt_offload_open(vt_backend *backend, vt_span units, vt_span blocks, vt_offload_sizes sizes,
                          vt_offload **result)
{
    vt_status status = VT_OK;
    vt_offload *o = vt_allocate(1, sizeof *o + (size_t)blocks.count * sizeof o->items[0], "the model");
    void *host = NULL;
    o->backend = backend;
    o->units = units;
    o->blocks = blocks;
    o->host_capacity = sizes.host;
    for (int i = 0; i < ROOMS; i++) VT_TRY(vt_arena_open(backend, sizes.kept, &o->kept[i]));
    for (int i = 0; i < STREAMS; i++) VT_TRY(vt_arena_open(backend, sizes.stream, &o->streams[i]));
    if (sizes.host != SIZE_MAX) VT_TRY(backend->allocate_host(backend, sizes.host, &host));
    o->host = host;
done:
    if (status != VT_OK) vt_offload_close(&o);
    *result = o;
    return status;
}

void vt_offload_close(vt_offload **offload)
{
    vt_offload *o = *offload;
    if (o == NULL) return;
    for (int i = 0; i < ROOMS; i++) vt_arena_close(&o->kept[i]);
    for (int i = 0; i < STREAMS; i++) vt_arena_close(&o->streams[i]);
    if (o->host != NULL) o->backend->release_host(o->backend, o->host);
    free(o);
    *offload = NULL;
}

vt_offload_sizes vt_offload_needed(const vt_offload *o)
{
    vt_offload_sizes sizes = {.host = o->host_peak};
    for (int i = 0; i < ROOMS; i++)
        if (o->kept[i].peak > sizes.kept) sizes.kept = o->kept[i].peak;
    for (int i = 0; i < STREAMS; i++)
        if (o->streams[i].peak > sizes.stream) sizes.stream = o->streams[i].peak;
    return sizes;
}

vt_arena *vt_offload_kept(vt_offload *o, int64_t unit)
{
    vt_arena *arena = &o->kept[unit % ROOMS];
    vt_arena_pop(arena, 0);
    return arena;
}

vt_arena *vt_offload_stream(vt_offload *o, int64_t unit)
{
    vt_arena *arena = &o->streams[unit % STREAMS];
    vt_arena_pop(arena, 0);
    return arena;
}

/* NULL: it is no block. */
static item *item_of(vt_offload *o, int64_t unit)
{
    const int64_t index = unit - o->blocks.first;
    return index >= 0 && index < o->blocks.count ? &o->items[index] : NULL;
}

void vt_offload_begin_forward(vt_offload *o, int64_t unit)
{
    if (o == NULL) return;
    if (unit == o->units.first) {
        for (int64_t i = 0; i < o->blocks.count; i++) o->items[i].is_away = false;
        for (int i = 0; i < ROOMS; i++) vt_arena_pop(&o->kept[i], 0);
        for (int i = 0; i < STREAMS; i++) vt_arena_pop(&o->streams[i], 0);
        o->host_used = 0;
    }
    const item *before = item_of(o, unit - ROOMS);
    if (before != NULL && before->is_away) o->backend->copy_beside_end(o->backend, (int)(unit % VT_BESIDE));
}

/* Starts the copies of an item, in either direction. */
static void start(vt_offload *o, int64_t unit, const item *i, bool leaves)
{
    const struct {
        void *device;
        size_t bytes;
    } parts[] = {{o->streams[(unit + STREAMS - 1) % STREAMS].base, i->stream_bytes},
                 {o->kept[unit % ROOMS].base, i->kept_bytes}};
    char *host = i->host;
    for (int p = 0; p < 2; host += parts[p++].bytes) {
        if (parts[p].bytes == 0) continue;
        void *const to = leaves ? host : parts[p].device;
        const void *from = leaves ? parts[p].device : host;
        o->backend->copy_beside(o->backend, (int)(unit % VT_BESIDE), to, from, parts[p].bytes);
    }
}

void vt_offload_end_forward(vt_offload *o, int64_t unit)
{
    item *own = o != NULL ? item_of(o, unit) : NULL;
    if (own == NULL || item_of(o, unit + ROOMS) == NULL) return;
    own->is_away = true;
    own->stream_bytes = o->streams[(unit + STREAMS - 1) % STREAMS].used; /* 0: it came from another stage */
    own->kept_bytes = o->kept[unit % ROOMS].used;
    VT_ASSERT(own->stream_bytes + own->kept_bytes <= o->host_capacity - o->host_used);
    own->host = o->host != NULL ? o->host + o->host_used : NULL;
    o->host_used += own->stream_bytes + own->kept_bytes;
    if (o->host_used > o->host_peak) o->host_peak = o->host_used;
    start(o, unit, own, true);
}

void vt_offload_begin_backward(vt_offload *o, int64_t unit)
{
    if (o == NULL) return;
    const item *own = item_of(o, unit), *next = item_of(o, unit - 1);
    if (own != NULL && own->is_away) o->backend->copy_beside_end(o->backend, (int)(unit % VT_BESIDE));
    if (next != NULL && next->is_away) start(o, unit - 1, next, false);
}
