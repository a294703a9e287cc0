#include "training/device_cache.h"

#include <stdlib.h>

#include "base/memory.h"
#include "training/stop.h"

struct vt_device_cache {
    vt_backend *backend;
    vt_dataset *dataset;
    float *frames;            /* [frame_count, channels, rows, width] */
    int64_t floats;           /* of a frame */
    int64_t history;          /* times of an input besides the newest */
    int64_t input_part;       /* floats of one time of an input: the first of its frame */
    int64_t target_part;      /* and of a target */
    int64_t *frames_of_batch; /* [history + 2] of one sample */
};

vt_status vt_device_cache_open(vt_backend *backend, vt_dataset *dataset, vt_device_cache **result)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = vt_dataset_options_of(dataset);
    vt_device_cache *cache = vt_allocate(1, sizeof *cache, "the device's cache");
    const int64_t count = vt_dataset_frame_count(dataset), plane = options->rows * options->width;
    void *memory = NULL, *room = NULL;
    *cache = (vt_device_cache){.backend = backend,
                               .dataset = dataset,
                               .floats = vt_dataset_frame_channels(dataset) * plane,
                               .history = options->history,
                               .input_part = options->in_channels / (options->history + 1) * plane,
                               .target_part = options->out_channels * plane};
    cache->frames_of_batch = vt_allocate((size_t)options->history + 2, sizeof(int64_t), "the device's cache");
    const size_t bytes = (size_t)cache->floats * sizeof(float);
    VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, (size_t)count * bytes, &memory));
    cache->frames = memory;
    VT_TRY(backend->allocate_host(backend, bytes, &room));
    for (int64_t i = 0; i < count; i++) {
        if (vt_stop_requested()) status = VT_STOPPED;
        if (status != VT_OK) goto done;
        VT_TRY(vt_dataset_read_frame(dataset, i, room));
        backend->copy_from_host(backend, cache->frames + i * cache->floats, room, bytes);
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
    free(c->frames_of_batch);
    free(c);
    *cache = NULL;
}

const vt_dataset *vt_device_cache_dataset(const vt_device_cache *cache)
{
    return cache->dataset;
}

void vt_device_cache_batch(const vt_device_cache *cache, const vt_batch *batch, float *input, float *target)
{
    vt_backend *backend = cache->backend;
    for (int64_t sample = 0; sample < batch->sample_count; sample++) {
        vt_dataset_frames(cache->dataset, batch->samples[sample], cache->frames_of_batch);
        for (int64_t i = 0; i < cache->history + 2; i++) {
            const bool is_target = i == cache->history + 1;
            const int64_t part = is_target ? cache->target_part : cache->input_part;
            const float *from = cache->frames + cache->frames_of_batch[i] * cache->floats;
            backend->copy(backend, is_target ? target : input, from, (size_t)part * sizeof(float));
            if (is_target)
                target += part;
            else
                input += part;
        }
    }
}
