#include <stdlib.h>

#include "base/memory.h"
#include "training/reader.h"
#include "training/stop.h"

struct vt_device_cache {
    vt_backend *backend;
    vt_source *source;
    char *frames;            /* [frame_count] of frame_bytes each */
    vt_sample_piece *pieces; /* of one sample */
};

vt_status vt_device_cache_open(vt_backend *backend, vt_source *source, vt_device_cache **result)
{
    vt_status status = VT_OK;
    vt_device_cache *cache = vt_allocate(1, sizeof *cache, "the device's cache");
    const size_t bytes = source->frame_bytes;
    void *memory = NULL, *room = NULL;
    *cache = (vt_device_cache){.backend = backend, .source = source};
    cache->pieces = vt_allocate((size_t)source->pieces_per_sample, sizeof *cache->pieces, "the device's cache");
    VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, (size_t)source->frame_count * bytes, &memory));
    cache->frames = memory;
    VT_TRY(backend->allocate_host(backend, bytes, &room));
    for (int64_t i = 0; i < source->frame_count; i++) {
        if (vt_stop_requested()) status = VT_STOPPED;
        if (status != VT_OK) goto done;
        VT_TRY(source->kind->read_frame(source, i, room));
        backend->copy_from_host(backend, cache->frames + (size_t)i * bytes, room, bytes);
        VT_TRY(backend->check(backend)); /* the room is free again */
    }
done:
    if (room != NULL) backend->release_host(backend, room);
    if (status != VT_OK) vt_device_cache_close(&cache);
    *result = cache;
    return status;
}

void vt_device_cache_close(vt_device_cache **cache)
{
    vt_device_cache *c = *cache;
    if (c == NULL) return;
    c->backend->release(c->backend, c->frames);
    free(c->pieces);
    free(c);
    *cache = NULL;
}

void vt_device_cache_batch(const vt_device_cache *cache, const vt_batch *batch, void *const *tensors)
{
    const vt_source *source = cache->source;
    char *places[VT_BATCH_TENSORS];
    for (int64_t sample = 0; batch->source == source && sample < batch->sample_count; sample++) {
        const int64_t count = source->kind->pieces(source, batch->samples[sample], batch->steps, cache->pieces);
        for (int t = 0; t < source->tensor_count; t++)
            places[t] = (char *)tensors[t] + (size_t)sample * vt_tensor_bytes(&source->specs[t]);
        for (int64_t i = 0; i < count; i++) {
            const vt_sample_piece *piece = &cache->pieces[i];
            const char *from = cache->frames + (size_t)piece->frame * source->frame_bytes + piece->offset;
            cache->backend->copy(cache->backend, places[piece->tensor], from, piece->bytes);
            places[piece->tensor] += piece->bytes;
        }
    }
}
