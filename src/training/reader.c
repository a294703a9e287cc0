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
                                 .unread = source->kind->reading != NULL ? vt_stage_unread(config, world, training) : 0,
                                 .skip_bad = config->skip_bad_samples,
                                 .indices_only = use.indices_only,
                                 .backend = pins ? backend : NULL};
    return vt_loader_open(&options, loader);
}

void vt_reader_log(const vt_config *config, const vt_world *world, const vt_source *training,
                   const vt_source *validation, const vt_source *test)
{
    const long long workers = (long long)vt_reader_workers(config, world);
    if (training->kind->log == NULL) return;
    char *threads = vt_text_format("%lld thread%s%s", workers, workers == 1 ? "" : "s",
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

/* The set is kept if it fits into *left, which becomes smaller. The system may still refuse. */
static bool keep(vt_source *source, double *left)
{
    const double bytes = vt_source_frame_bytes(source);
    if (bytes > *left) return false;
    if (source->kind->keep_frames(source) != VT_OK) {
        vt_error_clear();
        return false;
    }
    *left -= bytes;
    return true;
}

void vt_reader_open_cache(const vt_config *config, const vt_world *world, double needed, vt_source *training,
                          vt_source *validation)
{
    char sizes[3][VT_NUMBER_SIZE];
    if (config->cache != VT_CACHE_HOST || training->frame_count == 0) return;
    const double available = vt_memory_available();
    const double before = available < 0 ? INFINITY : available / vt_world_ranks_of_memory(world, NULL) - needed;
    double left = before; /* of this rank's share of what is free, beside what it will need */
    const bool first = keep(training, &left), second = keep(validation, &left);
    vt_text_bytes(vt_source_frame_bytes(training), sizes[0]);
    vt_text_bytes(vt_source_frame_bytes(validation), sizes[1]);
    vt_text_bytes(fmax(before, 0), sizes[2]);
    const char *rank = world->ranks > 1 ? " on each rank" : "";
    if (first && second)
        vt_log_info("cache: what was read stays in memory: %s for training and %s for validation%s; %s are free",
                    sizes[0], sizes[1], rank, sizes[2]);
    else
        vt_log_warning("cache: host asks for %s for training and %s for validation%s, but %s are free beside the run: "
                       "%s is kept in memory, the rest is read from the files each time",
                       sizes[0], sizes[1], rank, sizes[2],
                       first    ? "only the training set"
                       : second ? "only the validation set"
                                : "nothing");
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
