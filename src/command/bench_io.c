#include "command/command.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "data/loader.h"
#include "data/source.h"
#include "parallel/world.h"
#include "source/sources.h"
#include "training/reader.h"

enum { ROUNDS = 5, LEAST_BATCHES = 8, CACHE_LINE = 64 };
#define BYTES_OF_A_ROUND 4e9            /* about a second */
#define STORED_BYTES (INT64_C(1) << 29) /* bytes of gzip data that are kept in memory */

/* What the reader takes from a file at once, and where in the ring a plain read puts it. */
typedef struct {
    vt_file_extent extent;
    int64_t place;
    unsigned char *stored; /* the gzip data in memory; NULL: not kept */
} piece;

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_source *source;
    vt_loader *loader;
    int64_t batches; /* of a round */
    int64_t threads; /* of the plain reads: at least one */
    int64_t sample_bytes;
    char *ring; /* as much memory as the reader fills in turn, and at least as large as any piece */
    int64_t ring_bytes;

    /* Plain reads of the same batches. */
    vt_read_plan **plans; /* [batches]; they keep the files open */
    piece *pieces;        /* [piece_count] */
    int64_t piece_count, bytes, inflated, largest, next_place;
    bool through_library;
    int64_t stored_count, stored_inflated; /* of the first pieces, if all are gzip data */
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

/* Its pages are touched before anything is measured. */
static vt_status allocate_ring(bench *b, int64_t bytes)
{
    vt_status status = VT_OK;
    free(b->ring);
    b->ring_bytes = bytes;
    b->ring = vt_allocate_large((size_t)bytes);
    VT_CHECK(b->ring != NULL, "bench io: out of memory for %ld bytes", bytes);
    memset(b->ring, 0, (size_t)bytes);
done:
    return status;
}

/* Bytes, rounded up to whole cache lines. */
static int64_t cache_lines(int64_t bytes)
{
    return vt_quotient_up(bytes, CACHE_LINE) * CACHE_LINE;
}

/* Its place is behind that of the one before, round the ring. */
static void add_piece(bench *b, vt_file_extent extent)
{
    const int64_t needed = extent.inflated > extent.bytes ? extent.inflated : extent.bytes;
    b->through_library = b->through_library || extent.descriptor < 0;
    if (extent.descriptor < 0 || extent.bytes == 0) return;
    if (b->next_place + needed > b->ring_bytes) b->next_place = 0;
    b->pieces = vt_grow(b->pieces, (size_t)b->piece_count, sizeof *b->pieces, "bench io");
    b->pieces[b->piece_count++] = (piece){.extent = extent, .place = b->next_place};
    b->next_place += cache_lines(needed);
    if (needed > b->largest) b->largest = needed;
    b->bytes += extent.bytes;
    b->inflated += extent.inflated;
}

static vt_status add_batch(bench *b, vt_read_plan *plan, const vt_batch *batch, int64_t steps)
{
    vt_status status = VT_OK;
    const vt_reading *reading = vt_source_reading(b->source);
    char *place = b->ring;
    void *tensors[VT_BATCH_TENSORS];
    for (int t = 0; t < b->source->tensor_count; t++) {
        tensors[t] = place;
        place += (size_t)batch->sample_count * vt_tensor_bytes(&b->source->specs[t]);
    }
    plan->steps = steps;
    VT_TRY(reading->make(plan, batch->samples, batch->sample_count, tensors));
    for (int64_t i = 0; i < plan->item_count && reading->extent != NULL; i++) {
        vt_file_extent extent;
        for (int64_t k = 0; (extent = reading->extent(plan, i, k)).bytes >= 0; k++) add_piece(b, extent);
    }
done:
    return status;
}

static vt_status plan_plain(bench *b)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = vt_loader_options_of(b->loader);
    vt_sampler *sampler = vt_sampler_open(options);
    const int64_t of_epoch = vt_sampler_batch_count(sampler);
    const int64_t batch_bytes = b->sample_bytes * b->config->global_batch_size;
    b->plans = vt_allocate((size_t)b->batches, sizeof *b->plans, "bench io");
    VT_TRY(allocate_ring(b, batch_bytes * (options->workers > 0 ? options->prefetch + 1 : 1)));
    for (int64_t i = 0; i < b->batches; i++) {
        const vt_batch batch = vt_sampler_batch(sampler, i / of_epoch, i % of_epoch);
        b->plans[i] = vt_source_reading(b->source)->open(b->source);
        VT_TRY(add_batch(b, b->plans[i], &batch, (int64_t)vt_stages_at(&options->rollout, i / of_epoch)));
    }
    if (b->largest > b->ring_bytes) VT_TRY(allocate_ring(b, b->largest));
done:
    vt_sampler_close(&sampler);
    return status;
}

static void close_comparison(bench *b)
{
    for (int64_t i = 0; b->plans != NULL && i < b->batches; i++) {
        const vt_reading *reading = vt_source_reading(b->source);
        if (b->plans[i] == NULL) continue;
        if (reading->release != NULL) reading->release(b->plans[i]);
        reading->close(b->plans[i]);
    }
    for (int64_t i = 0; i < b->piece_count; i++) free(b->pieces[i].stored);
    free(b->plans);
    free(b->pieces);
    free(b->ring);
}

static bool read_plainly(const vt_file_extent *extent, void *to)
{
    return vt_file_read_at(extent->descriptor, to, extent->bytes, extent->offset) == extent->bytes;
}

static vt_status plain_round(const bench *b, double *seconds)
{
    vt_status status = VT_OK;
    bool failed = false;
    const double begin = vt_clock_seconds();
#pragma omp parallel for num_threads((int)b->threads) schedule(dynamic) reduction(|| : failed)
    for (int64_t i = 0; i < b->piece_count; i++)
        failed = !read_plainly(&b->pieces[i].extent, b->ring + b->pieces[i].place) || failed;
    *seconds = vt_clock_seconds() - begin;
    VT_CHECK(!failed, "bench io: plain preads of the files failed");
done:
    return status;
}

/* ---- inflating alone ---- */

/* Nothing unless everything that is read is gzip data. */
static vt_status load_stored(bench *b)
{
    vt_status status = VT_OK;
    int64_t bytes = 0;
    for (int64_t i = 0; i < b->piece_count; i++)
        if (b->pieces[i].extent.inflated == 0) return VT_OK;
    for (piece *next = b->pieces; b->stored_count < b->piece_count && bytes < STORED_BYTES; next++) {
        next->stored = vt_allocate((size_t)next->extent.bytes, 1, "bench io");
        VT_CHECK(read_plainly(&next->extent, next->stored), "bench io: plain preads of the files failed");
        bytes += next->extent.bytes;
        b->stored_inflated += next->extent.inflated;
        b->stored_count++;
    }
done:
    return status;
}

/* Each thread inflates into a part of its own of the ring. */
static int64_t ring_share(const bench *b)
{
    return b->ring_bytes / b->threads / CACHE_LINE * CACHE_LINE;
}

/* to_ring: into the ring, as reading does, if no chunk is larger than a thread's share; otherwise into memory of one
 * chunk, which stays in a cache. */
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
        unsigned char *part = (unsigned char *)b->ring + omp_get_thread_num() * share;
        int64_t used = 0;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < b->stored_count; i++) {
            const vt_file_extent *from = &b->pieces[i].extent;
            if (used + from->inflated > share) used = 0;
            unsigned char *to = part + used;
            used += cache_lines(from->inflated);
            if (!to_ring) failed = vt_decoder_reserve(&decoder.box, (size_t)from->inflated, &to) != VT_OK || failed;
            failed = failed || vt_decode(&decoder, &gzip, 0, b->pieces[i].stored, (size_t)from->bytes,
                                         (size_t)from->inflated, to) != VT_OK;
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

static void print_inflating(const bench *b, double *rounds, double samples, double reader, const char *where)
{
    const double seconds = vt_median(rounds, ROUNDS) * (double)b->inflated / (double)b->stored_inflated;
    print_rate("inflating", seconds, samples, (double)b->inflated);
    vt_print("%-12s %10.3f of the samples/s of inflating alone%s, by as many threads\n", "ratio", seconds / reader,
             where);
}

static void print_reader(const bench *b, double seconds)
{
    const double samples = (double)(b->batches * b->config->global_batch_size);
    const int64_t ranks = b->world->ranks, workers = vt_reader_workers(b->config, b->world);
    vt_print("%ld batches of %ld samples of %.3f MB, %ld reader thread%s%s, %ld batches ahead; medians of %d rounds\n",
             b->batches, b->config->global_batch_size, 1e-6 * (double)b->sample_bytes, workers, workers == 1 ? "" : "s",
             ranks > 1 ? " on each rank" : "", b->config->prefetch, ROUNDS);
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
    const bool inflated = b->stored_count > 0, placed = inflated && b->largest <= ring_share(b);
    for (int i = 0; i < ROUNDS; i++) {
        VT_TRY(read_round(b, &reader[i]));
        if (compared) VT_TRY(plain_round(b, &preads[i]));
        if (inflated) VT_TRY(inflate_round(b, false, &inflates[i]));
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
    if (inflated) print_inflating(b, inflates, samples, middle, "");
    if (placed) print_inflating(b, places, samples, middle, " into as much memory as the reader fills");
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
    const int64_t workers = vt_reader_workers(b->config, b->world);
    b->threads = workers > 0 ? workers : 1;
    b->batches = (int64_t)(BYTES_OF_A_ROUND / (double)(b->sample_bytes * b->config->global_batch_size));
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
    return status;
}
