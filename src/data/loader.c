#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/sampler.h"

/* Which batch: they follow one another through the epochs without end. */
typedef struct {
    int64_t epoch, batch;
} position;

/* A place of the ring. */
typedef struct {
    float *memory; /* input, then target */
    int64_t *samples;
    position position;
    vt_batch batch;
    bool failed;
    vt_error error;
} ring_slot;

/* The ring has prefetch + 1 slots: first_ready … first_ready + ready_count - 1 are read and wait, the one before
 * first_ready is the consumer's, and the reader fills the one after the last. Without a thread there is one slot. */
struct vt_loader {
    vt_loader_options options;
    vt_sampler *sampler; /* of the reader: the thread when there is one */
    int64_t batch_count;
    int64_t slot_count;
    ring_slot *slots;
    position next; /* what vt_loader_next hands out next */

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; /* guards all below, and the slots' change of hands */
    pthread_cond_t filled, wanted;
    bool stop, begun;
    uint64_t generation; /* raised when what was read ahead is dropped */
    position reading;    /* what the reader reads now, or will next */
    bool failed;         /* the reader met an error, and waits until another position is asked for */
    int64_t first_ready, ready_count;
};

static position position_after(const vt_loader *loader, position here)
{
    here.batch++;
    return here.batch < loader->batch_count ? here : (position){here.epoch + 1, 0};
}

static bool same_position(position a, position b)
{
    return a.epoch == b.epoch && a.batch == b.batch;
}

static int64_t sample_floats(int64_t channels, const vt_dataset_options *sizes)
{
    return channels * sizes->rows * sizes->width;
}

/* Samples that one batch of this part has at most. */
static int64_t slice_size(const vt_loader *loader)
{
    return loader->options.global_batch_size / loader->options.parts;
}

/* The target starts on a cache line of its own. */
static int64_t target_offset(const vt_loader *loader)
{
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    return (slice_size(loader) * sample_floats(sizes->in_channels, sizes) + 15) / 16 * 16;
}

static vt_status read_batch(vt_loader *loader, position wanted, ring_slot *slot)
{
    vt_status status = VT_OK;
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    float *input = slot->memory, *target = slot->memory + target_offset(loader);
    const vt_sampler_slice slice = vt_sampler_batch(loader->sampler, wanted.epoch, wanted.batch);
    memcpy(slot->samples, slice.samples, (size_t)slice.count * sizeof *slice.samples);
    for (int64_t i = 0; i < slice.count; i++)
        VT_TRY(vt_dataset_read(loader->options.dataset, slice.samples[i],
                               input + i * sample_floats(sizes->in_channels, sizes),
                               target + i * sample_floats(sizes->out_channels, sizes)));
    slot->batch = (vt_batch){.sample_count = slice.count,
                             .first_sample = wanted.batch * loader->options.global_batch_size + slice.first_in_batch,
                             .first_in_batch = slice.first_in_batch,
                             .global_count = slice.global_count,
                             .input = slice.count > 0 ? input : NULL,
                             .target = slice.count > 0 ? target : NULL,
                             .samples = slot->samples};
done:
    slot->position = wanted;
    slot->failed = status != VT_OK;
    if (slot->failed) vt_error_move_out(&slot->error);
    return status;
}

/* The reader: fills the slot after the last ready one, whenever there is room. */
static void *read_ahead(void *context)
{
    vt_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop && (!loader->begun || loader->failed || loader->ready_count == loader->options.prefetch))
            pthread_cond_wait(&loader->wanted, &loader->lock);
        if (loader->stop) break;
        uint64_t generation = loader->generation;
        position wanted = loader->reading;
        ring_slot *slot = &loader->slots[(loader->first_ready + loader->ready_count) % loader->slot_count];
        pthread_mutex_unlock(&loader->lock);
        vt_status status = read_batch(loader, wanted, slot);
        pthread_mutex_lock(&loader->lock);
        if (generation != loader->generation) continue; /* dropped in the meantime */
        loader->failed = status != VT_OK;
        loader->reading = position_after(loader, wanted);
        loader->ready_count++;
        pthread_cond_signal(&loader->filled);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static vt_status allocate_ring(vt_loader *loader)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = &loader->options;
    const vt_dataset_options *sizes = vt_dataset_options_of(options->dataset);
    size_t bytes = sizeof(float) *
                   (size_t)(target_offset(loader) + slice_size(loader) * sample_floats(sizes->out_channels, sizes));
    bytes = (bytes + 63) / 64 * 64;
    loader->slot_count = options->read_ahead ? options->prefetch + 1 : 1;
    loader->slots = calloc((size_t)loader->slot_count, sizeof *loader->slots);
    VT_CHECK(loader->slots != NULL, "out of memory for a ring of %lld batches", (long long)loader->slot_count);
    for (int64_t i = 0; i < loader->slot_count; i++) {
        ring_slot *slot = &loader->slots[i];
        slot->memory =
            options->allocate != NULL ? options->allocate(bytes, options->context) : aligned_alloc(64, bytes);
        slot->samples = malloc((size_t)slice_size(loader) * sizeof *slot->samples);
        VT_CHECK(slot->memory != NULL && slot->samples != NULL,
                 "out of memory for batches read ahead: %lld of %.1f MB each; lower --prefetch or --global_batch_size",
                 (long long)loader->slot_count, (double)bytes * 1e-6);
    }
done:
    return status;
}

/* Signals are for the main thread. */
static vt_status start_thread(vt_loader *loader)
{
    vt_status status = VT_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&loader->thread, NULL, read_ahead, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    VT_CHECK(error == 0, "can't start a reader thread: %s", strerror(error));
    loader->thread_runs = true;
done:
    return status;
}

vt_status vt_loader_open(const vt_loader_options *options, vt_loader **result)
{
    vt_status status = VT_OK;
    vt_loader *loader = calloc(1, sizeof *loader);
    *result = NULL;
    VT_CHECK(loader != NULL, "out of memory");
    VT_ASSERT(options->global_batch_size > 0 && (!options->read_ahead || options->prefetch > 0));
    loader->options = *options;
    if (options->parts == 0) loader->options.parts = 1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled, NULL);
    pthread_cond_init(&loader->wanted, NULL);
    vt_sampler_options order = {.sample_count = vt_dataset_sample_count(options->dataset),
                                .global_batch_size = options->global_batch_size,
                                .part = options->part,
                                .parts = options->parts,
                                .drop_last = options->drop_last,
                                .shuffle = options->shuffle,
                                .seed = options->seed};
    VT_TRY(vt_sampler_open(&order, &loader->sampler));
    loader->batch_count = vt_sampler_batch_count(loader->sampler);
    VT_CHECK(loader->batch_count > 0, "%s '%s' has %lld samples, fewer than one batch of %lld; lower the batch size",
             vt_dataset_options_of(options->dataset)->option_name, vt_dataset_options_of(options->dataset)->directory,
             (long long)order.sample_count, (long long)options->global_batch_size);
    VT_TRY(allocate_ring(loader));
    if (options->read_ahead) VT_TRY(start_thread(loader));
    *result = loader;
    loader = NULL;
done:
    vt_loader_close(&loader);
    return status;
}

static void stop_thread(vt_loader *loader)
{
    if (!loader->thread_runs) return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_signal(&loader->wanted);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
}

void vt_loader_close(vt_loader **pointer)
{
    vt_loader *loader = *pointer;
    if (loader == NULL) return;
    *pointer = NULL;
    stop_thread(loader);
    for (int64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        ring_slot *slot = &loader->slots[i];
        if (slot->memory != NULL && loader->options.release != NULL)
            loader->options.release(slot->memory, loader->options.context);
        else
            free(slot->memory);
        free(slot->samples);
    }
    free(loader->slots);
    vt_sampler_close(&loader->sampler);
    pthread_cond_destroy(&loader->wanted);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}

const vt_loader_options *vt_loader_options_of(const vt_loader *loader)
{
    return &loader->options;
}

int64_t vt_loader_batch_count(const vt_loader *loader)
{
    return loader->batch_count;
}

vt_status vt_loader_begin(vt_loader *loader, int64_t epoch, int64_t first_batch)
{
    VT_ASSERT(epoch >= 0 && first_batch >= 0 && first_batch <= loader->batch_count);
    loader->next = (position){epoch, first_batch};
    position wanted = first_batch < loader->batch_count ? loader->next : (position){epoch + 1, 0};
    pthread_mutex_lock(&loader->lock);
    position coming = loader->ready_count > 0 ? loader->slots[loader->first_ready].position : loader->reading;
    if (!loader->begun || loader->failed || !same_position(coming, wanted)) {
        loader->generation++;
        loader->ready_count = 0;
        loader->reading = wanted;
        loader->failed = false;
        loader->begun = true;
        pthread_cond_signal(&loader->wanted);
    }
    pthread_mutex_unlock(&loader->lock);
    return VT_OK;
}

/* Waits for the first ready slot and takes it out of the ring, unless it holds an error. */
static ring_slot *take_ready(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    while (loader->ready_count == 0) pthread_cond_wait(&loader->filled, &loader->lock);
    ring_slot *slot = &loader->slots[loader->first_ready];
    if (!slot->failed) {
        loader->first_ready = (loader->first_ready + 1) % loader->slot_count;
        loader->ready_count--;
        pthread_cond_signal(&loader->wanted);
    }
    pthread_mutex_unlock(&loader->lock);
    return slot;
}

vt_status vt_loader_next(vt_loader *loader, const vt_batch **batch, double *waited_seconds)
{
    vt_status status = VT_OK;
    *batch = NULL;
    VT_ASSERT(loader->begun);
    if (loader->next.batch == loader->batch_count) goto done;
    double start = vt_clock_seconds();
    ring_slot *slot = loader->slots;
    if (loader->options.read_ahead)
        slot = take_ready(loader);
    else
        read_batch(loader, loader->next, slot);
    *waited_seconds += vt_clock_seconds() - start;
    if (slot->failed) {
        vt_error_move_in(&slot->error);
        status = VT_ERROR;
        goto done;
    }
    VT_ASSERT(same_position(slot->position, loader->next));
    loader->next.batch++;
    *batch = &slot->batch;
done:
    return status;
}
