#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "data/sampler.h"

/* Which batch: they follow one another through the epochs without end. */
typedef struct {
    int64_t epoch, batch;
} position;

/* A place of the ring. */
typedef struct {
    float *memory; /* input, then target */
    int64_t *samples;
    bool *bad;
    position position;
    vt_batch batch;
    vt_read_plan *plan;
    bool planned; /* the dataset holds its files for it */
    /* guarded by the loader's lock */
    int64_t items, next_item, done_items;
    bool failed;
    int64_t failed_item; /* the lowest one; -1: making the plan failed */
    vt_error error;
} ring_slot;

/* The ring has prefetch + 1 slots: the one before `first` is the consumer's; first … first + filled - 1 are planned,
 * and the readers do their items, from the first slot on; then they plan the next. So all of them work on the batch
 * that is needed next. Without threads there is one slot. */
struct vt_loader {
    vt_loader_options options;
    vt_sampler *sampler; /* of who plans: one thread at a time */
    int64_t batch_count;
    int64_t slot_count;
    ring_slot *slots;
    position next;      /* what vt_loader_next hands out next */
    vt_decoder decoder; /* without threads */
    float *last_good;   /* input and target of a sample, for vt_loader_replace_bad */
    bool has_last_good;

    pthread_t *threads; /* [workers] */
    int64_t thread_count;
    pthread_mutex_t lock; /* guards all below, and the slots' change of hands */
    pthread_cond_t filled_one, wanted, idle;
    bool stop, begun, halted; /* halted: the readers take nothing up, as all is about to be dropped */
    bool planning;            /* a thread makes the plan of the slot after the last */
    int64_t busy;             /* threads with an item or a plan in hand */
    position reading;         /* what is planned next */
    bool failed;              /* there was an error: nothing is planned until another position is asked for */
    int64_t first, filled;
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

static bool is_synthetic(const vt_loader *loader)
{
    return vt_dataset_options_of(loader->options.dataset)->synthetic;
}

/* The target starts on a cache line of its own. */
static int64_t target_offset(const vt_loader *loader)
{
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    return (slice_size(loader) * sample_floats(sizes->in_channels, sizes) + 15) / 16 * 16;
}

/* ---- reading ---- */

/* Which samples the batch has, and the items that bring them. One thread at a time. */
static vt_status plan_batch(vt_loader *loader, position wanted, ring_slot *slot)
{
    vt_status status = VT_OK;
    float *input = slot->memory, *target = input != NULL ? input + target_offset(loader) : NULL;
    const vt_sampler_slice slice = vt_sampler_batch(loader->sampler, wanted.epoch, wanted.batch);
    memcpy(slot->samples, slice.samples, (size_t)slice.count * sizeof *slice.samples);
    memset(slot->bad, 0, (size_t)slice_size(loader) * sizeof *slot->bad);
    slot->batch = (vt_batch){.sample_count = slice.count,
                             .first_sample = wanted.batch * loader->options.global_batch_size + slice.first_in_batch,
                             .first_in_batch = slice.first_in_batch,
                             .global_count = slice.global_count,
                             .input = slice.count > 0 && !loader->options.indices_only ? input : NULL,
                             .target = slice.count > 0 && !loader->options.indices_only ? target : NULL,
                             .dataset = loader->options.dataset,
                             .samples = slot->samples,
                             .bad = loader->options.skip_bad ? slot->bad : NULL};
    slot->position = wanted;
    slot->items = slot->next_item = slot->done_items = 0;
    slot->failed = false;
    if (is_synthetic(loader) || loader->options.indices_only) goto done;
    if (slot->planned) vt_dataset_release(loader->options.dataset, slot->plan);
    slot->planned = false;
    VT_TRY(vt_dataset_plan(loader->options.dataset, slot->samples, slice.count, input, target, slot->plan));
    slot->planned = true;
    slot->items = vt_read_plan_items(slot->plan);
done:
    if (status != VT_OK) {
        slot->failed = true;
        slot->failed_item = -1;
        vt_error_move_out(&slot->error);
    }
    return status;
}

/* With skip_bad: several threads may find the same sample bad. */
static void mark_bad(int64_t sample, void *context)
{
    ring_slot *slot = context;
    __atomic_store_n(&slot->bad[sample], true, __ATOMIC_RELAXED);
}

/* Does an item; *error is set when it fails. */
static vt_status do_item(const vt_loader *loader, ring_slot *slot, int64_t item, vt_decoder *decoder, vt_error *error)
{
    vt_status status = vt_read_plan_run(slot->plan, item, decoder);
    if (status == VT_OK) return VT_OK;
    if (loader->options.skip_bad) {
        vt_log_warning("skipped: %s", vt_error_text());
        vt_error_clear();
        vt_read_plan_retry(slot->plan, item, decoder, mark_bad, slot);
        return VT_OK;
    }
    vt_error_move_out(error);
    return status;
}

/* The lowest item's error is the batch's, whichever came first. With the lock held. */
static void note_failure(ring_slot *slot, int64_t item, const vt_error *error)
{
    if (slot->failed && slot->failed_item <= item) return;
    slot->failed = true;
    slot->failed_item = item;
    slot->error = *error;
}

/* Without threads: all of a batch. */
static void read_batch(vt_loader *loader, position wanted, ring_slot *slot)
{
    vt_error error;
    if (plan_batch(loader, wanted, slot) != VT_OK) return;
    for (int64_t item = 0; item < slot->items && !slot->failed; item++)
        if (do_item(loader, slot, item, &loader->decoder, &error) != VT_OK) note_failure(slot, item, &error);
}

static bool is_ready(const ring_slot *slot)
{
    return slot->done_items == slot->items;
}

/* The first slot with an item that nobody has taken up; NULL when there is none. */
static ring_slot *find_work(vt_loader *loader)
{
    for (int64_t i = 0; i < loader->filled; i++) {
        ring_slot *slot = &loader->slots[(loader->first + i) % loader->slot_count];
        if (slot->next_item < slot->items) return slot;
    }
    return NULL;
}

/* With the lock held, which is given up meanwhile. */
static void work_on(vt_loader *loader, ring_slot *slot, vt_decoder *decoder)
{
    vt_error error;
    int64_t item = slot->next_item++;
    pthread_mutex_unlock(&loader->lock);
    vt_status status = do_item(loader, slot, item, decoder, &error);
    pthread_mutex_lock(&loader->lock);
    if (status != VT_OK) {
        note_failure(slot, item, &error);
        loader->failed = true;
    }
    slot->done_items++;
    if (is_ready(slot)) pthread_cond_signal(&loader->filled_one);
}

/* Likewise. */
static void plan_next(vt_loader *loader)
{
    ring_slot *slot = &loader->slots[(loader->first + loader->filled) % loader->slot_count];
    position wanted = loader->reading;
    loader->planning = true;
    pthread_mutex_unlock(&loader->lock);
    vt_status status = plan_batch(loader, wanted, slot);
    pthread_mutex_lock(&loader->lock);
    loader->planning = false;
    loader->failed = loader->failed || status != VT_OK;
    loader->reading = position_after(loader, wanted);
    loader->filled++;
    if (is_ready(slot)) pthread_cond_signal(&loader->filled_one);
    pthread_cond_broadcast(&loader->wanted);
}

static void *read_ahead(void *context)
{
    vt_loader *loader = context;
    vt_decoder decoder = {0};
    vt_threads_roam();
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        ring_slot *slot = loader->halted ? NULL : find_work(loader);
        bool may_plan = loader->begun && !loader->halted && !loader->failed && !loader->planning &&
                        loader->filled < loader->options.prefetch;
        if (slot == NULL && !may_plan) {
            pthread_cond_wait(&loader->wanted, &loader->lock);
            continue;
        }
        loader->busy++;
        if (slot != NULL)
            work_on(loader, slot, &decoder);
        else
            plan_next(loader);
        if (--loader->busy == 0) pthread_cond_signal(&loader->idle);
    }
    pthread_mutex_unlock(&loader->lock);
    vt_decoder_close(&decoder);
    return NULL;
}

/* ---- opening ---- */

static vt_status allocate_ring(vt_loader *loader)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = &loader->options;
    const vt_dataset_options *sizes = vt_dataset_options_of(options->dataset);
    size_t bytes = sizeof(float) *
                   (size_t)(target_offset(loader) + slice_size(loader) * sample_floats(sizes->out_channels, sizes));
    loader->slot_count = options->workers > 0 ? options->prefetch + 1 : 1;
    loader->slots = calloc((size_t)loader->slot_count, sizeof *loader->slots);
    VT_CHECK(loader->slots != NULL, "out of memory for a ring of %lld batches", (long long)loader->slot_count);
    for (int64_t i = 0; i < loader->slot_count; i++) {
        ring_slot *slot = &loader->slots[i];
        if (!options->indices_only)
            slot->memory =
                options->allocate != NULL ? options->allocate(bytes, options->context) : vt_allocate_large(bytes);
        slot->samples = malloc((size_t)slice_size(loader) * sizeof *slot->samples);
        slot->bad = malloc((size_t)slice_size(loader) * sizeof *slot->bad);
        VT_TRY(vt_read_plan_open(&slot->plan));
        VT_CHECK((slot->memory != NULL || options->indices_only) && slot->samples != NULL && slot->bad != NULL,
                 "out of memory for batches read ahead: %lld of %.1f MB each; lower --prefetch or --global_batch_size",
                 (long long)loader->slot_count, (double)bytes * 1e-6);
    }
done:
    return status;
}

/* Signals are for the main thread. */
static vt_status start_threads(vt_loader *loader)
{
    vt_status status = VT_OK;
    sigset_t all, before;
    int error = 0;
    loader->threads = calloc((size_t)loader->options.workers, sizeof *loader->threads);
    VT_CHECK(loader->threads != NULL, "out of memory for %lld reader threads", (long long)loader->options.workers);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (loader->thread_count < loader->options.workers && error == 0) {
        error = pthread_create(&loader->threads[loader->thread_count], NULL, read_ahead, loader);
        loader->thread_count += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    VT_CHECK(error == 0, "can't start reader thread %lld of %lld: %s; lower --num_data_workers",
             (long long)loader->thread_count + 1, (long long)loader->options.workers, strerror(error));
done:
    return status;
}

/* The one batch of a synthetic set. */
static void fill_synthetic(vt_loader *loader)
{
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    ring_slot *slot = loader->slots;
    for (int64_t i = 0; i < slice_size(loader); i++)
        vt_dataset_fill(loader->options.dataset, loader->options.part * slice_size(loader) + i,
                        slot->memory + i * sample_floats(sizes->in_channels, sizes),
                        slot->memory + target_offset(loader) + i * sample_floats(sizes->out_channels, sizes));
}

vt_status vt_loader_open(const vt_loader_options *options, vt_loader **result)
{
    vt_status status = VT_OK;
    vt_loader *loader = calloc(1, sizeof *loader);
    *result = NULL;
    VT_CHECK(loader != NULL, "out of memory");
    VT_ASSERT(options->global_batch_size > 0 && (options->workers == 0 || options->prefetch > 0));
    loader->options = *options;
    if (is_synthetic(loader)) loader->options.workers = 0;
    if (options->parts == 0) loader->options.parts = 1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled_one, NULL);
    pthread_cond_init(&loader->wanted, NULL);
    pthread_cond_init(&loader->idle, NULL);
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
    if (is_synthetic(loader) && !options->indices_only) fill_synthetic(loader);
    VT_TRY(start_threads(loader));
    *result = loader;
    loader = NULL;
done:
    vt_loader_close(&loader);
    return status;
}

static void stop_threads(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->wanted);
    pthread_mutex_unlock(&loader->lock);
    for (int64_t i = 0; i < loader->thread_count; i++) pthread_join(loader->threads[i], NULL);
    free(loader->threads);
}

void vt_loader_close(vt_loader **pointer)
{
    vt_loader *loader = *pointer;
    if (loader == NULL) return;
    *pointer = NULL;
    stop_threads(loader);
    for (int64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        ring_slot *slot = &loader->slots[i];
        if (slot->memory != NULL && loader->options.release != NULL)
            loader->options.release(slot->memory, loader->options.context);
        else
            free(slot->memory);
        free(slot->samples);
        free(slot->bad);
        if (slot->planned) vt_dataset_release(loader->options.dataset, slot->plan);
        vt_read_plan_close(&slot->plan);
    }
    free(loader->slots);
    vt_sampler_close(&loader->sampler);
    vt_decoder_close(&loader->decoder);
    free(loader->last_good);
    pthread_cond_destroy(&loader->idle);
    pthread_cond_destroy(&loader->wanted);
    pthread_cond_destroy(&loader->filled_one);
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
    position coming = loader->filled > 0 ? loader->slots[loader->first].position : loader->reading;
    if (!loader->begun || loader->failed || !same_position(coming, wanted)) {
        loader->halted = true;
        while (loader->busy > 0) pthread_cond_wait(&loader->idle, &loader->lock);
        loader->halted = false;
        loader->filled = 0;
        loader->reading = wanted;
        loader->failed = false;
        loader->begun = true;
        pthread_cond_broadcast(&loader->wanted);
    }
    pthread_mutex_unlock(&loader->lock);
    return VT_OK;
}

void vt_loader_rest(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->halted = true;
    while (loader->busy > 0) pthread_cond_wait(&loader->idle, &loader->lock);
    loader->halted = loader->begun = false;
    loader->filled = 0;
    pthread_mutex_unlock(&loader->lock);
}

/* Waits for the first slot and takes it out of the ring, unless it holds an error. */
static ring_slot *take_ready(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    ring_slot *slot = &loader->slots[loader->first];
    while (loader->filled == 0 || !is_ready(slot)) pthread_cond_wait(&loader->filled_one, &loader->lock);
    if (!slot->failed) {
        loader->first = (loader->first + 1) % loader->slot_count;
        loader->filled--;
        pthread_cond_broadcast(&loader->wanted);
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
    if (loader->options.workers > 0)
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

/* Copies fields of one sample to another place of the ring, or to or from last_good. */
static void copy_sample(const vt_loader *loader, const float *input, const float *target, float *input_copy,
                        float *target_copy)
{
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    memcpy(input_copy, input, (size_t)sample_floats(sizes->in_channels, sizes) * sizeof(float));
    memcpy(target_copy, target, (size_t)sample_floats(sizes->out_channels, sizes) * sizeof(float));
}

vt_status vt_loader_replace_bad(vt_loader *loader, const vt_batch *batch, const bool *bad)
{
    vt_status status = VT_OK;
    const vt_dataset_options *sizes = vt_dataset_options_of(loader->options.dataset);
    const int64_t in = sample_floats(sizes->in_channels, sizes), out = sample_floats(sizes->out_channels, sizes);
    const int64_t count = batch->sample_count;
    float *input = (float *)batch->input, *target = (float *)batch->target; /* the ring's, which is ours */
    int64_t good = 0;
    if (loader->last_good == NULL) loader->last_good = malloc((size_t)(in + out) * sizeof(float));
    VT_CHECK(loader->last_good != NULL, "out of memory for a sample");
    while (good < count && bad[good]) good++;
    if (good < count) {
        copy_sample(loader, input + good * in, target + good * out, loader->last_good, loader->last_good + in);
        loader->has_last_good = true;
    }
    for (int64_t i = 0; i < count; i++) {
        if (!bad[i]) continue;
        int64_t other = i;
        while (good < count && bad[other]) other = (other + 1) % count;
        VT_CHECK(good < count || loader->has_last_good,
                 "%s '%s': none of the samples of the first batch can be read, so skip_bad_samples has nothing to put "
                 "in their place",
                 sizes->option_name, sizes->directory);
        copy_sample(loader, good < count ? input + other * in : loader->last_good,
                    good < count ? target + other * out : loader->last_good + in, input + i * in, target + i * out);
    }
done:
    return status;
}
