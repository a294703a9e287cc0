#include "training/reader.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/stages.h"
#include "model/model.h"
#include "source/sources.h"
#include "training/stop.h"
#include "training/trainer_inside.h"

enum { MOST_WORKERS = 16 }; /* of those that are chosen here: no memory keeps up with more */

vt_status vt_reader_open_source(const vt_config *config, const vt_world *world, vt_set set, vt_source **source)
{
    const vt_span rows = vt_model_part(config, &world->layout, world->rank);
    return vt_source_kind_of(config)->open(config, set, rows, source);
}

int64_t vt_reader_workers(const vt_config *config, const vt_world *world)
{
    if (config->num_data_workers != VT_UNSET_INTEGER) return config->num_data_workers;
    int64_t computing = config->num_threads != VT_UNSET_INTEGER ? config->num_threads : world->cores;
    int64_t spare = world->cores - computing;
    return spare < 1 ? 1 : spare > MOST_WORKERS ? MOST_WORKERS : spare;
}

int64_t vt_reader_batch(const vt_config *config, bool training)
{
    const int64_t own = training ? VT_UNSET_INTEGER : config->test_batch_size;
    return own != VT_UNSET_INTEGER ? own * config->data_parallel : config->global_batch_size;
}

vt_status vt_reader_open_loader(const vt_config *config, const vt_world *world, vt_backend *backend, vt_reader_use use,
                                vt_source *source, vt_loader **loader)
{
    const bool training = use.training;
    const bool pins = backend != NULL && !backend->shares_host_memory;
    vt_loader_options options = {.source = source,
                                 .global_batch_size = vt_reader_batch(config, training),
                                 .part = world->coordinate[VT_AXIS_DATA],
                                 .parts = world->layout.size[VT_AXIS_DATA],
                                 .drop_last = training && source->kind->blank == NULL,
                                 .fill = training && source->kind->blank != NULL,
                                 .shuffle = training && config->shuffle,
                                 .every = use.every,
                                 .seed = (uint64_t)config->seed,
                                 .prefetch = training ? config->prefetch : VT_VALIDATION_PREFETCH,
                                 .workers = vt_reader_workers(config, world),
                                 .rollout = training ? vt_config_rollout(config) : (vt_stages){0},
                                 .unread = vt_stage_unread(config, world, training),
                                 .skip_bad = config->skip_bad_samples,
                                 .indices_only = use.indices_only,
                                 .backend = pins ? backend : NULL};
    return vt_loader_open(&options, loader);
}

void vt_reader_log(const vt_config *config, const vt_world *world, const vt_source *training,
                   const vt_source *validation, const vt_source *test)
{
    const int64_t workers = vt_reader_workers(config, world);
    if (training->kind->log == NULL) return;
    char *threads = vt_text_format("%ld thread%s%s", workers, workers == 1 ? "" : "s",
                                   workers == 0 ? ": each step waits for its batch"
                                   : config->num_data_workers == VT_UNSET_INTEGER
                                       ? " (num_data_workers is not set: the cores to spare)"
                                       : "");
    training->kind->log(training, validation, test, threads);
    free(threads);
}

char *vt_reader_chunks(vt_world *world, vt_source *source)
{
    if (source->chunks == NULL) return NULL;
    const vt_chunk_counts *own = &source->chunks->counts;
    /* the loader's threads may already be at batches that nobody takes any more */
    double counts[] = {(double)__atomic_load_n(&own->decoded, __ATOMIC_RELAXED),
                       (double)__atomic_load_n(&own->bytes, __ATOMIC_RELAXED),
                       (double)__atomic_load_n(&own->found, __ATOMIC_RELAXED)};
    char size[VT_NUMBER_SIZE];
    vt_world_sum(world, counts, 3);
    if (counts[0] == 0) return NULL;
    return vt_text_format("chunks: %.0f were decoded, to %s; %.0f times a chunk was needed that was decoded already",
                          counts[0], vt_text_bytes(counts[1], size), counts[2]);
}

double vt_reader_keep_sets(const vt_config *config, vt_cache place, double room, vt_source *const sets[2], bool kept[2])
{
    const bool is_device = place == VT_CACHE_DEVICE;
    const char *rank = config->ranks > 1 ? " on each rank" : "";
    char size[2][VT_NUMBER_SIZE], left[VT_NUMBER_SIZE];
    double taken = 0;
    kept[0] = kept[1] = false;
    if ((int)place != config->cache || sets[0]->frame_count == 0) return 0;
    for (int i = 0; i < 2; i++) {
        const double bytes = vt_source_frame_bytes(sets[i]);
        kept[i] = taken + bytes <= room;
        if (kept[i] && !is_device && sets[i]->kind->keep_frames(sets[i]) != VT_OK) {
            vt_error_clear(); /* the system refused */
            kept[i] = false;
        }
        if (kept[i]) taken += bytes;
        vt_text_bytes(bytes, size[i]);
    }
    vt_text_bytes(fmax(room, 0), left);
    if (!kept[0] || !kept[1])
        vt_log_warning("cache: %s asks for %s for training and %s for validation%s, but %s%s are free beside the run: "
                       "%s is kept there, the rest is read each time",
                       is_device ? "device" : "host", size[0], size[1], rank, left,
                       is_device ? " of the device's memory" : "",
                       kept[0]   ? "only the training set"
                       : kept[1] ? "only the validation set"
                                 : "nothing");
    else if (!is_device)
        vt_log_info("cache: what was read stays in memory: %s for training and %s for validation%s; %s are free",
                    size[0], size[1], rank, left);
    return taken;
}

/* What any rank that has a part of a sample couldn't read is bad for all of them. */
static vt_status replace_bad(vt_world *world, vt_loader *loader, const vt_batch *batch, int64_t *replaced)
{
    vt_status status = VT_OK;
    const int64_t whole = vt_loader_options_of(loader)->global_batch_size;
    const size_t size = (size_t)whole;
    double *counts = vt_allocate(size, sizeof *counts, "a batch's bad samples");
    bool *bad = vt_allocate(size, sizeof *bad, "a batch's bad samples");
    for (int64_t i = 0; i < batch->sample_count; i++) counts[batch->first_in_batch + i] = batch->bad[i];
    vt_world_sum(world, counts, whole);
    for (size_t i = 0; i < size; i++) *replaced += counts[i] > 0;
    for (int64_t i = 0; i < batch->sample_count; i++) bad[i] = counts[batch->first_in_batch + i] > 0;
    status = vt_world_agree(world, vt_loader_replace_bad(loader, batch, bad));
    free(counts);
    free(bad);
    return status;
}

vt_status vt_reader_next(const vt_trainer *trainer, vt_loader *loader, const vt_batch **batch, int64_t *replaced)
{
    const vt_config *config = trainer->config;
    vt_world *world = trainer->world;
    vt_status status = vt_loader_next(loader, batch);
    VT_TRY(vt_world_agree(world, status));
    if (config->skip_bad_samples && *batch != NULL && (*batch)->bad != NULL)
        VT_TRY(replace_bad(world, loader, *batch, replaced));
done:
    return status;
}

/* ---- frames in the memory of a device ---- */

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
