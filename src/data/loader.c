#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads.h"
#include "data/slot.h"

/* Batches are numbered through all epochs: batch b of epoch e is e · batch_count + b. The ring has prefetch + 1 slots:
 * the one before `first` is the consumer's; first … first + filled - 1 are planned. The readers do their items,
 * beginning with the first slot, and then plan the next one. So all of them work on the batch that is needed next, if
 * it has items for them: a volume is one. Without threads there is one slot, and the consumer does the same when it
 * asks for a batch. */
struct vt_loader {
    vt_loader_options options;
    vt_sampler *sampler; /* used by whoever plans: one thread at a time */
    int64_t batch_count;
    int64_t slot_count;
    vt_slot *slots;
    int64_t next, end;  /* the batch that vt_loader_next hands out next, and the first of the next epoch */
    vt_decoder decoder; /* the consumer's, without threads */
    char *last_good;    /* the tensors of a sample, one behind another, for vt_loader_replace_bad; NULL: none yet */

    pthread_t *threads; /* [workers] */
    int64_t thread_count;
    pthread_mutex_t lock; /* guards all below, and handing over the slots */
    pthread_cond_t filled_one, wanted, idle;
    bool stop, begun, halted; /* halted: the readers start nothing, as everything is about to be dropped */
    bool planning;            /* a thread makes the plan of the slot after the last */
    int64_t busy;             /* threads that do an item or make a plan */
    int64_t reading;          /* the batch that is planned next: `filled` batches behind the one in slot `first` */
    bool failed;              /* there was an error: nothing is planned until another position is asked for */
    int64_t first, filled;
};

/* ---- reading ---- */

/* Which samples the batch has, and the items that read them. One thread at a time. */
static vt_status plan_batch(vt_loader *loader, int64_t number, vt_slot *slot)
{
    const int64_t epoch = number / loader->batch_count;
    vt_batch batch = vt_sampler_batch(loader->sampler, epoch, number % loader->batch_count);
    batch.steps = (int64_t)vt_stages_at(&loader->options.rollout, epoch);
    return vt_slot_plan(slot, &batch);
}

static vt_slot *slot_at(vt_loader *loader, int64_t place)
{
    return &loader->slots[(loader->first + place) % loader->slot_count];
}

/* The first slot with an item that no thread has taken; NULL when there is none. */
static vt_slot *find_work(vt_loader *loader)
{
    for (int64_t i = 0; i < loader->filled; i++) {
        vt_slot *slot = slot_at(loader, i);
        if (slot->next_item < slot->items) return slot;
    }
    return NULL;
}

/* With the lock held; it is released while the thread works. */
static void work_on(vt_loader *loader, vt_slot *slot, vt_decoder *decoder)
{
    int64_t item = slot->next_item++;
    pthread_mutex_unlock(&loader->lock);
    vt_status status = vt_slot_run(slot, item, decoder);
    pthread_mutex_lock(&loader->lock);
    if (status != VT_OK) {
        vt_slot_note_failure(slot, item);
        loader->failed = true;
    }
    slot->done_items++;
    if (vt_slot_is_ready(slot)) pthread_cond_signal(&loader->filled_one);
}

/* Likewise. */
static void plan_next(vt_loader *loader)
{
    vt_slot *slot = slot_at(loader, loader->filled);
    const int64_t number = loader->reading;
    loader->planning = true;
    pthread_mutex_unlock(&loader->lock);
    vt_status status = plan_batch(loader, number, slot);
    pthread_mutex_lock(&loader->lock);
    loader->planning = false;
    loader->failed = loader->failed || status != VT_OK;
    loader->reading++;
    loader->filled++;
    if (vt_slot_is_ready(slot)) pthread_cond_signal(&loader->filled_one);
    pthread_cond_broadcast(&loader->wanted);
}

/* Likewise, one of both; false: there is nothing to do. */
static bool read_on(vt_loader *loader, vt_decoder *decoder)
{
    vt_slot *slot = loader->halted ? NULL : find_work(loader);
    const bool may_plan = loader->begun && !loader->halted && !loader->failed && !loader->planning &&
                          loader->filled < loader->options.prefetch;
    if (slot == NULL && !may_plan) return false;
    loader->busy++;
    if (slot != NULL)
        work_on(loader, slot, decoder);
    else
        plan_next(loader);
    if (--loader->busy == 0) pthread_cond_signal(&loader->idle);
    return true;
}

static void *read_ahead(void *context)
{
    vt_loader *loader = context;
    vt_decoder decoder = {0};
    vt_threads_roam();
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop)
        if (!read_on(loader, &decoder)) pthread_cond_wait(&loader->wanted, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    vt_decoder_close(&decoder);
    return NULL;
}

/* ---- opening ---- */

static vt_status open_ring(vt_loader *loader)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = &loader->options;
    loader->slot_count = options->workers > 0 ? options->prefetch + 1 : 1;
    loader->slots = vt_allocate((size_t)loader->slot_count, sizeof *loader->slots, "the ring of batches");
    for (int64_t i = 0; i < loader->slot_count; i++)
        VT_TRY(vt_slot_open(&loader->slots[i], options, loader->slot_count));
    if (options->source->is_constant && !options->indices_only) VT_TRY(vt_slot_read_constant(loader->slots));
done:
    return status;
}

/* Signals are for the main thread. */
static vt_status start_threads(vt_loader *loader)
{
    vt_status status = VT_OK;
    sigset_t all, before;
    int error = 0;
    loader->threads = vt_allocate((size_t)loader->options.workers, sizeof *loader->threads, "the reader threads");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (loader->thread_count < loader->options.workers && error == 0) {
        error = pthread_create(&loader->threads[loader->thread_count], NULL, read_ahead, loader);
        loader->thread_count += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    VT_CHECK(error == 0, "can't start reader thread %ld of %ld: %s; lower --num_data_workers", loader->thread_count + 1,
             loader->options.workers, strerror(error));
done:
    return status;
}

vt_status vt_loader_open(const vt_loader_options *options, vt_loader **result)
{
    vt_status status = VT_OK;
    vt_loader *loader = vt_allocate(1, sizeof *loader, "a loader");
    const vt_source *source = options->source;
    *result = NULL;
    VT_ASSERT(options->global_batch_size > 0 && (options->workers == 0 || options->prefetch > 0));
    loader->options = *options;
    if (source->is_constant) loader->options.workers = 0;
    if (loader->options.workers == 0) loader->options.prefetch = 1;
    if (options->parts == 0) loader->options.parts = 1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled_one, NULL);
    pthread_cond_init(&loader->wanted, NULL);
    pthread_cond_init(&loader->idle, NULL);
    loader->sampler = vt_sampler_open(&loader->options);
    loader->batch_count = vt_sampler_batch_count(loader->sampler);
    VT_CHECK(loader->batch_count > 0, "%s '%s' has %ld samples, fewer than one batch of %ld; lower the batch size",
             source->option_name, source->path, source->sample_count, options->global_batch_size);
    VT_TRY(open_ring(loader));
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
    for (int64_t i = 0; i < loader->slot_count; i++) vt_slot_close(&loader->slots[i]);
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

/* With the lock held: drops what was read ahead, once no thread works. */
static void drop(vt_loader *loader)
{
    loader->halted = true;
    while (loader->busy > 0) pthread_cond_wait(&loader->idle, &loader->lock);
    loader->halted = loader->begun = false;
    loader->filled = 0;
}

void vt_loader_begin(vt_loader *loader, int64_t epoch, int64_t first_batch)
{
    VT_ASSERT(epoch >= 0 && first_batch >= 0 && first_batch <= loader->batch_count);
    loader->next = epoch * loader->batch_count + first_batch;
    loader->end = (epoch + 1) * loader->batch_count;
    pthread_mutex_lock(&loader->lock);
    if (!loader->begun || loader->failed || loader->reading - loader->filled != loader->next) {
        drop(loader);
        loader->reading = loader->next;
        loader->failed = false;
        loader->begun = true;
        pthread_cond_broadcast(&loader->wanted);
    }
    pthread_mutex_unlock(&loader->lock);
}

void vt_loader_rest(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    drop(loader);
    pthread_mutex_unlock(&loader->lock);
}

/* Waits for the first slot, or fills it, and takes it out of the ring, unless it holds an error. */
static vt_slot *take_ready(vt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    vt_slot *slot = slot_at(loader, 0);
    while (loader->filled == 0 || !vt_slot_is_ready(slot))
        if (loader->thread_count > 0 || !read_on(loader, &loader->decoder))
            pthread_cond_wait(&loader->filled_one, &loader->lock);
    VT_ASSERT(loader->reading - loader->filled == loader->next);
    if (!slot->failed) {
        loader->first = (loader->first + 1) % loader->slot_count;
        loader->filled--;
        pthread_cond_broadcast(&loader->wanted);
    }
    pthread_mutex_unlock(&loader->lock);
    return slot;
}

vt_status vt_loader_next(vt_loader *loader, const vt_batch **batch)
{
    *batch = NULL;
    VT_ASSERT(loader->begun);
    if (loader->next == loader->end) return VT_OK;
    const double start = vt_clock_seconds();
    vt_slot *slot = take_ready(loader);
    slot->batch.waited = vt_clock_seconds() - start;
    if (slot->failed) {
        vt_error_move_in(&slot->error);
        return VT_ERROR;
    }
    loader->next++;
    *batch = &slot->batch;
    return VT_OK;
}

/* ---- bad samples ---- */

/* Copies the tensors of sample `from` of a batch into those of sample `to`; -1 is the last good sample. */
static void copy_sample(const vt_loader *loader, const vt_batch *batch, int64_t from, int64_t to)
{
    const vt_source *source = loader->options.source;
    char *saved = loader->last_good;
    for (int t = 0; t < source->tensor_count; t++) {
        const size_t bytes = vt_tensor_bytes(&source->specs[t]);
        if (batch->tensors[t] == NULL) continue;
        /* the ring's memory, which is ours */
        char *place = to >= 0 ? (char *)vt_batch_tensor(batch, source->specs, t, to) : saved;
        memcpy(place, from >= 0 ? vt_batch_tensor(batch, source->specs, t, from) : saved, bytes);
        saved += bytes;
    }
}

static void save_sample(vt_loader *loader, const vt_batch *batch, int64_t sample)
{
    const vt_source *source = loader->options.source;
    size_t bytes = 0;
    for (int t = 0; t < source->tensor_count; t++) bytes += vt_tensor_bytes(&source->specs[t]);
    if (loader->last_good == NULL) loader->last_good = vt_allocate(1, bytes, "a sample");
    copy_sample(loader, batch, sample, -1);
}

vt_status vt_loader_replace_bad(vt_loader *loader, const vt_batch *batch, const bool *bad)
{
    vt_status status = VT_OK;
    const vt_source *source = loader->options.source;
    const int64_t count = batch->sample_count;
    int64_t good = 0;
    while (good < count && bad[good]) good++;
    if (good < count) save_sample(loader, batch, good);
    for (int64_t i = 0; i < count; i++) {
        if (!bad[i]) continue;
        int64_t other = i;
        while (good < count && bad[other]) other = (other + 1) % count;
        VT_CHECK(loader->last_good != NULL,
                 "%s '%s': none of the samples of the first batch can be read, so skip_bad_samples has nothing to put "
                 "in their place",
                 source->option_name, source->path);
        copy_sample(loader, batch, good < count ? other : -1, i);
    }
done:
    return status;
}
