#include "command/command.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/loader.h"
#include "data/source.h"
#include "parallel/world.h"
#include "source/sources.h"
#include "training/reader.h"

enum { ROUNDS = 5, LEAST_BATCHES = 8 };
#define BYTES_OF_A_ROUND 4e9            /* about a second */
#define STORED_BYTES (INT64_C(1) << 29) /* bytes of gzip data that are kept in memory */

typedef struct {
    vt_file_extent extent;
    int64_t batch, place; /* its first byte's place in the batch */
} piece;

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_source *source;
    vt_loader *loader;
    int64_t batches; /* batches in a round */
    int64_t threads; /* threads of the plain reads: at least one */
    int64_t batch_floats, sample_bytes;
    float *ring; /* [prefetch + 1 batches]: as much memory as the reader fills in turn */
    int64_t ring_batches;

    /* The bytes that the reader takes from the files for the same batches. */
    vt_read_plan **plans; /* [batches]; they keep the files open */
    piece *pieces;        /* [piece_count] */
    int64_t piece_count, bytes, largest_batch;
    bool through_library;

    /* The gzip data of the first batches, in memory. */
    unsigned char **stored; /* [stored_count] */
    int64_t stored_count, stored_batches, inflated_bytes, largest_chunk;
} bench;

/* ---- the reader ---- */

/* Collective. */
static vt_status read_round(bench *b, double *seconds)
{
    vt_status status = VT_OK;
    const int64_t of_epoch = vt_loader_batch_count(b->loader);
    const vt_batch *batch = NULL;
    vt_loader_begin(b->loader, 0, 0);
    double begin = vt_clock_seconds();
    for (int64_t i = 0; i < b->batches; i++) {
        if (i > 0 && i % of_epoch == 0) vt_loader_begin(b->loader, i / of_epoch, 0);
        VT_TRY(vt_world_agree(b->world, vt_loader_next(b->loader, &batch)));
    }
    *seconds = vt_world_most(b->world, vt_clock_seconds() - begin);
    vt_loader_rest(b->loader); /* only the next batch is read ahead */
done:
    return status;
}

/* ---- plain pread ---- */

static size_t ring_bytes(const bench *b)
{
    return (size_t)(b->ring_batches * b->batch_floats) * sizeof(float);
}

static vt_status add_batch(bench *b, int64_t index, const vt_batch *batch)
{
    vt_status status = VT_OK;
    const vt_reading *reading = vt_source_reading(b->source);
    char *place = (char *)b->ring;
    void *tensors[VT_BATCH_TENSORS];
    int64_t bytes = 0;
    for (int t = 0; t < b->source->tensor_count; t++) {
        tensors[t] = place;
        place += (size_t)batch->sample_count * vt_tensor_bytes(&b->source->specs[t]);
    }
    b->plans[index] = reading->open(b->source);
    VT_TRY(reading->make(b->plans[index], batch->samples, batch->sample_count, tensors));
    for (int64_t i = 0; i < b->plans[index]->item_count && reading->extent != NULL; i++) {
        for (int64_t k = 0;; k++) {
            vt_file_extent extent = reading->extent(b->plans[index], i, k);
            if (extent.bytes < 0) break;
            b->through_library = b->through_library || extent.descriptor < 0;
            if (extent.descriptor < 0 || extent.bytes == 0) continue;
            b->pieces = vt_grow(b->pieces, (size_t)b->piece_count, sizeof *b->pieces, "bench io");
            b->pieces[b->piece_count++] = (piece){extent, index, bytes};
            bytes += extent.bytes;
        }
    }
    b->bytes += bytes;
    if (bytes > b->largest_batch) b->largest_batch = bytes;
done:
    return status;
}

/* Allocated like the reader's own ring; its pages are touched before anything is measured. */
static vt_status allocate_ring(bench *b)
{
    vt_status status = VT_OK;
    const size_t bytes = ring_bytes(b);
    b->ring = vt_allocate_large(bytes);
    VT_CHECK(b->ring != NULL, "bench io: out of memory for %lld batches", (long long)b->ring_batches);
    memset(b->ring, 0, bytes);
done:
    return status;
}

static vt_status plan_plain(bench *b)
{
    vt_status status = VT_OK;
    vt_loader_options order = {.source = b->source,
                               .global_batch_size = b->config->global_batch_size,
                               .drop_last = true,
                               .shuffle = b->config->shuffle,
                               .seed = (uint64_t)b->config->seed};
    vt_sampler *sampler = vt_sampler_open(&order);
    b->plans = vt_allocate((size_t)b->batches, sizeof *b->plans, "bench io");
    const int64_t of_epoch = vt_sampler_batch_count(sampler);
    for (int64_t i = 0; i < b->batches; i++) {
        const vt_batch batch = vt_sampler_batch(sampler, i / of_epoch, i % of_epoch);
        VT_TRY(add_batch(b, i, &batch));
    }
    if (b->largest_batch > b->batch_floats * (int64_t)sizeof(float)) { /* windows that are read as whole rows */
        free(b->ring);
        b->batch_floats = b->largest_batch / (int64_t)sizeof(float) + 1;
        VT_TRY(allocate_ring(b));
    }
done:
    vt_sampler_close(&sampler);
    return status;
}

/* What plan_plain and load_stored made. */
static void close_comparison(bench *b)
{
    for (int64_t i = 0; b->plans != NULL && i < b->batches; i++) {
        const vt_reading *reading = vt_source_reading(b->source);
        if (b->plans[i] == NULL) continue;
        reading->release(b->plans[i]);
        reading->close(b->plans[i]);
    }
    for (int64_t i = 0; b->stored != NULL && b->stored[i] != NULL; i++) free(b->stored[i]);
    free(b->stored);
    free(b->plans);
    free(b->pieces);
}

static vt_status plain_round(const bench *b, double *seconds)
{
    vt_status status = VT_OK;
    bool failed = false;
    const double begin = vt_clock_seconds();
#pragma omp parallel for num_threads((int)b->threads) schedule(dynamic) reduction(|| : failed)
    for (int64_t i = 0; i < b->piece_count; i++) {
        const vt_file_extent *extent = &b->pieces[i].extent;
        float *ring = b->ring + b->pieces[i].batch % b->ring_batches * b->batch_floats;
        char *memory = (char *)ring + b->pieces[i].place;
        failed = vt_file_read_at(extent->descriptor, memory, extent->bytes, extent->offset) != extent->bytes || failed;
    }
    *seconds = vt_clock_seconds() - begin;
    VT_CHECK(!failed, "bench io: plain preads of the files failed");
done:
    return status;
}

/* ---- inflating alone ---- */

/* Empty unless everything that is read is gzip data. */
static vt_status load_stored(bench *b)
{
    vt_status status = VT_OK;
    int64_t bytes = 0, whole = 0; /* extents of whole batches */
    for (int64_t i = 0; i < b->piece_count; i++)
        if (b->pieces[i].extent.inflated == 0) return VT_OK;
    b->stored = vt_allocate((size_t)b->piece_count + 1, sizeof *b->stored, "bench io");
    while (whole < b->piece_count && (whole == 0 || bytes < STORED_BYTES)) {
        for (const int64_t batch = b->pieces[whole].batch; whole < b->piece_count && b->pieces[whole].batch == batch;
             whole++)
            bytes += b->pieces[whole].extent.bytes;
        b->stored_batches++;
    }
    for (; b->stored_count < whole; b->stored_count++) {
        const vt_file_extent *extent = &b->pieces[b->stored_count].extent;
        b->stored[b->stored_count] = vt_allocate((size_t)extent->bytes, 1, "bench io");
        VT_CHECK(vt_file_read_at(extent->descriptor, b->stored[b->stored_count], extent->bytes, extent->offset) ==
                     extent->bytes,
                 "bench io: plain preads of the files failed");
        b->inflated_bytes += extent->inflated;
        if (extent->inflated > b->largest_chunk) b->largest_chunk = extent->inflated;
    }
done:
    return status;
}

/* Bytes of the ring for each thread: whole cache lines. */
static int64_t ring_share(const bench *b)
{
    return (int64_t)ring_bytes(b) / b->threads / 64 * 64;
}

/* to_ring: into the thread's part of the ring, as reading does; otherwise into memory of one chunk. */
static vt_status inflate_round(const bench *b, bool to_ring, double *seconds)
{
    static const vt_pipeline gzip = {.count = 1, .filters = {VT_FILTER_DEFLATE}};
    vt_status status = VT_OK;
    const int64_t share = ring_share(b);
    bool failed = false;
    const double begin = vt_clock_seconds();
#pragma omp parallel num_threads((int)b->threads) reduction(|| : failed)
    {
        vt_decoder decoder = {0};
        unsigned char *ring = (unsigned char *)b->ring + omp_get_thread_num() * share, *result = NULL;
        int64_t used = 0;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < b->stored_count; i++) {
            const vt_file_extent *extent = &b->pieces[i].extent;
            if (used + extent->inflated > share) used = 0;
            failed = vt_decode(&decoder, &gzip, 0, b->stored[i], (size_t)extent->bytes, (size_t)extent->inflated,
                               to_ring ? ring + used : NULL, &result) != VT_OK ||
                     failed;
            used += (extent->inflated + 63) / 64 * 64;
        }
        vt_decoder_close(&decoder);
    }
    *seconds = vt_clock_seconds() - begin;
    VT_CHECK(!failed, "bench io: inflating what the files hold failed");
done:
    return status;
}

/* ---- all ---- */

static void print_rate(const char *name, double seconds, double samples, double bytes)
{
    vt_print("%-12s %10.1f samples/s %8.3f GB/s\n", name, samples / seconds, 1e-9 * bytes / seconds);
}

static void print_inflating(const bench *b, double *rounds, double reader, const char *where)
{
    const double seconds = vt_median(rounds, ROUNDS) / (double)b->stored_batches;
    print_rate("inflating", seconds, (double)b->config->global_batch_size,
               (double)b->inflated_bytes / (double)b->stored_batches);
    vt_print("%-12s %10.3f of the samples/s of inflating alone%s, by as many threads\n", "ratio",
             seconds * (double)b->batches / reader, where);
}

static void print_reader(const bench *b, double seconds)
{
    const double samples = (double)(b->batches * b->config->global_batch_size);
    const long long ranks = b->world->ranks, workers = (long long)vt_reader_workers(b->config, b->world);
    vt_print(
        "%lld batches of %lld samples of %.3f MB, %lld reader thread%s%s, %lld batches ahead; medians of %d rounds\n",
        (long long)b->batches, (long long)b->config->global_batch_size, 1e-6 * (double)b->sample_bytes, workers,
        workers == 1 ? "" : "s", ranks > 1 ? " on each rank" : "", (long long)b->config->prefetch, ROUNDS);
    print_rate("reader", seconds, samples, samples * (double)b->sample_bytes);
}

/* Of several ranks, which may share samples, only the reader is measured. */
static vt_status measure(bench *b)
{
    vt_status status = VT_OK;
    double reader[ROUNDS], preads[ROUNDS], inflates[ROUNDS], places[ROUNDS], seconds = 0;
    const double samples = (double)(b->batches * b->config->global_batch_size);
    const bool alone = b->world->ranks == 1, speaks = b->world->rank == 0;
    char *chunks = NULL;
    if (alone) VT_TRY(plan_plain(b));
    VT_TRY(read_round(b, &seconds)); /* brings the files into the page cache and the ring's pages into memory */
    const bool compared = b->piece_count > 0 && !b->through_library;
    if (compared) VT_TRY(plain_round(b, &seconds));
    if (compared) VT_TRY(load_stored(b));
    const bool placed = b->stored_count > 0 && b->largest_chunk <= ring_share(b);
    for (int i = 0; i < ROUNDS; i++) {
        VT_TRY(read_round(b, &reader[i]));
        if (compared) VT_TRY(plain_round(b, &preads[i]));
        if (b->stored_count > 0) VT_TRY(inflate_round(b, false, &inflates[i]));
        if (placed) VT_TRY(inflate_round(b, true, &places[i]));
    }
    const double middle = vt_median(reader, ROUNDS), delivered = samples * (double)b->sample_bytes;
    if (speaks) print_reader(b, middle);
    if (!alone) {
        chunks = vt_reader_chunks(b->world, b->source);
        if (speaks && chunks != NULL) vt_print("%s\n", chunks);
        goto done;
    }
    if (!compared) {
        const char *obstacle = b->source->obstacle;
        vt_print("no plain pread beside it: a library reads%s%s\n", obstacle != NULL ? ", as " : "",
                 obstacle != NULL ? obstacle : "");
        goto done;
    }
    const double plain_middle = vt_median(preads, ROUNDS);
    print_rate("plain pread", plain_middle, samples, (double)b->bytes);
    vt_print("%-12s %10.3f of the plain preads' samples/s; the files hold %.3f of the bytes delivered\n", "ratio",
             plain_middle / middle, (double)b->bytes / delivered);
    if (b->stored_count == 0) goto done;
    print_inflating(b, inflates, middle, "");
    if (placed) print_inflating(b, places, middle, " into as much memory as the reader fills");
done:
    free(chunks);
    return status;
}

static vt_status open_bench(bench *b, const vt_call *call)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_open(call->option_count, call->options, call->launch.world_size, &b->config));
    VT_TRY(vt_source_complete(b->config));
    VT_CHECK(b->config->data_loader_config != VT_LOADER_SYNTHETIC, "bench io: the synthetic reader reads nothing");
    VT_TRY(vt_world_open(b->config, &call->launch, &b->world));
    VT_TRY(vt_world_agree(b->world, vt_reader_open_source(b->config, b->world, VT_SET_TRAINING, &b->source)));
    vt_chunk_cache_share(b->source->chunks, b->world);
    VT_TRY(vt_reader_open_loader(b->config, b->world, NULL, (vt_reader_use){.training = true}, b->source, &b->loader));
    for (int t = 0; t < b->source->tensor_count; t++) b->sample_bytes += (int64_t)vt_tensor_bytes(&b->source->specs[t]);
    b->batch_floats = b->sample_bytes / (int64_t)sizeof(float) * b->config->global_batch_size;
    int64_t workers = vt_reader_workers(b->config, b->world);
    b->threads = workers > 0 ? workers : 1;
    b->ring_batches = workers > 0 ? b->config->prefetch + 1 : 1;
    VT_TRY(allocate_ring(b));
    b->batches = (int64_t)(BYTES_OF_A_ROUND / (double)(b->batch_floats * 4));
    if (b->batches < LEAST_BATCHES) b->batches = LEAST_BATCHES;
    if (b->batches > 4096) b->batches = 4096;
    if (b->config->origin[VT_OPTION_num_iters] == VT_FROM_COMMAND_LINE) b->batches = b->config->num_iters;
done:
    return status;
}

vt_status vt_command_bench_io(const vt_call *call)
{
    vt_status status = VT_OK;
    bench b = {0};
    VT_TRY(open_bench(&b, call));
    VT_TRY(measure(&b));
done:
    close_comparison(&b);
    vt_loader_close(&b.loader);
    vt_source_close(&b.source);
    vt_world_close(&b.world, status == VT_ERROR);
    vt_config_close(&b.config);
    free(b.ring);
    return status;
}
