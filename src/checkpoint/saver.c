/* Saves a run's checkpoints, at once or beside its steps. */
#define _GNU_SOURCE /* gettid */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/choices.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "checkpoint/inside.h"
#include "checkpoint/store.h"

/* What is under way. */
typedef enum { NOTHING, SHARDS, INDEX } stage;

struct vt_checkpoint_saver {
    const vt_checkpoint_subject *subject;
    vt_checkpoint_store *store;
    bool copies; /* else checkpoints are written at once */
    void *copy;  /* NULL: this rank writes nothing */
    /* the one under way */
    stage stage;
    vt_checkpoint_work work; /* in a directory whose name says that it is unfinished */
    bool is_best, has_index;
    double blocked, begin; /* seconds: of training, and when writing began */
    pthread_t thread;
    bool has_thread;
    atomic_bool done;
    vt_status status; /* of the thread, once it is done; with its error */
    vt_error error;
};

static bool is_first(const vt_checkpoint_saver *saver)
{
    return saver->subject->world->rank == 0;
}

vt_status vt_checkpoint_saver_open(const vt_checkpoint_subject *subject, vt_checkpoint_store *store,
                                   vt_checkpoint_saver **result)
{
    vt_status status = VT_OK;
    vt_checkpoint_saver *saver = vt_allocate(1, sizeof *saver, "the checkpoints");
    vt_backend *backend = subject->backend;
    saver->subject = subject;
    saver->store = store;
    saver->copies = subject->config->async_checkpoint;
    const size_t bytes = saver->copies ? vt_checkpoint_copy_bytes(subject) : 0;
    if (bytes > 0)
        VT_TRY(backend->shares_host_memory ? backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &saver->copy)
                                           : backend->allocate_host(backend, bytes, &saver->copy));
done:
    if (status != VT_OK) vt_checkpoint_saver_close(&saver);
    *result = saver;
    return status;
}

static void join(vt_checkpoint_saver *saver)
{
    if (saver->has_thread) pthread_join(saver->thread, NULL);
    saver->has_thread = false;
}

static void forget(vt_checkpoint_saver *saver)
{
    vt_checkpoint_work *work = &saver->work;
    free(work->directory);
    free(work->choices);
    free(work->own);
    free(work->all);
    free(work->shard_bytes);
    free(work->shard_checksums);
    *work = (vt_checkpoint_work){0};
    saver->stage = NOTHING;
    saver->has_index = false;
}

void vt_checkpoint_saver_close(vt_checkpoint_saver **saver)
{
    vt_checkpoint_saver *s = *saver;
    if (s == NULL) return;
    vt_backend *backend = s->subject->backend;
    join(s);
    if (s->stage != NOTHING) forget(s);
    if (s->copy != NULL && backend->shares_host_memory) backend->release(backend, s->copy);
    if (s->copy != NULL && !backend->shares_host_memory) backend->release_host(backend, s->copy);
    free(s);
    *saver = NULL;
}

/* ---- what threads do ---- */

static vt_status write_index(vt_checkpoint_saver *saver)
{
    vt_status status = VT_OK;
    const vt_checkpoint_work *work = &saver->work;
    VT_TRY(vt_checkpoint_work_index(work));
    saver->has_index = true;
    VT_TRY(vt_checkpoint_store_settle(saver->store, work->directory, work->progress.step, saver->is_best));
done:
    return status;
}

static void write_stage(vt_checkpoint_saver *saver)
{
    saver->status = saver->stage == SHARDS ? vt_checkpoint_work_shard(&saver->work) : write_index(saver);
    vt_error_move_out(&saver->error);
    atomic_store(&saver->done, true);
}

/* Behind the threads that train, where they want the same cores. */
static void *run_thread(void *context)
{
    enum { NICE = 10 };
    vt_checkpoint_saver *saver = context;
    vt_threads_roam();
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, 0) + NICE);
    write_stage(saver);
    return NULL;
}

/* If no thread is wanted, or none can be had, the stage is written before this returns. */
static void start_stage(vt_checkpoint_saver *saver, stage next)
{
    const bool takes_part = next == SHARDS || is_first(saver);
    saver->stage = next;
    saver->status = VT_OK;
    atomic_store(&saver->done, !takes_part);
    if (!takes_part) return;
    saver->has_thread = saver->copies && pthread_create(&saver->thread, NULL, run_thread, saver) == 0;
    if (!saver->has_thread) write_stage(saver);
}

/* ---- what ranks do together ---- */

static vt_status choose_id(char id[33])
{
    vt_status status = VT_OK;
    unsigned char random[16];
    VT_CHECK(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random, "no random bits for a checkpoint's id: %s",
             strerror(errno));
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", random[i]);
done:
    return status;
}

/* Collective. Fills saver->work with what the checkpoint will hold. With a copy, the model may change afterwards. */
static vt_status begin_work(vt_checkpoint_saver *saver, const vt_run_progress *progress)
{
    vt_status status = VT_OK;
    const vt_checkpoint_subject *subject = saver->subject;
    vt_world *world = subject->world;
    vt_backend *backend = subject->backend;
    vt_checkpoint_work *work = &saver->work;
    work->subject = subject;
    work->progress = *progress;
    work->progress.batch = subject->config->global_batch_size;
    work->progress.training_samples = subject->training_samples;
    work->progress.validation_samples = subject->validation_samples;
    work->optimizer = vt_optimizer_progress_of(subject->optimizer);
    if (backend->choices != NULL) work->choices = vt_choices_text(backend->choices);
    work->copy = saver->copy;
    work->shard_bytes = vt_allocate((size_t)world->ranks, sizeof *work->shard_bytes, "a checkpoint");
    work->shard_checksums = vt_allocate((size_t)world->ranks, sizeof *work->shard_checksums, "a checkpoint");
    VT_TRY(vt_world_agree(world, is_first(saver) ? choose_id(work->id) : VT_OK));
    vt_group_broadcast(world->everyone, work->id, sizeof work->id, 0);
    vt_stored_own_boxes(subject, &work->own, &work->own_count);
    if (saver->copies) { /* also on a rank that writes nothing, and so has no memory for a copy */
        vt_checkpoint_work_copy(work);
        VT_TRY(vt_world_agree(world, backend->check(backend)));
    }
done:
    return status;
}

/* Collective. The stage is over on all ranks: the next one begins, or the checkpoint is whole. */
static vt_status end_stage(vt_checkpoint_saver *saver)
{
    vt_status status = VT_OK;
    vt_world *world = saver->subject->world;
    vt_checkpoint_work *work = &saver->work;
    const int64_t step = work->progress.step;
    join(saver);
    if (saver->status == VT_ERROR) vt_error_move_in(&saver->error);
    VT_TRY(vt_world_agree(world, saver->status));
    if (saver->stage == SHARDS) {
        vt_group_all_gather_equal(world->everyone, &work->own_bytes, sizeof work->own_bytes, work->shard_bytes);
        vt_group_all_gather_equal(world->everyone, &work->own_checksum, sizeof work->own_checksum,
                                  work->shard_checksums);
        vt_stored_all_boxes(world, work->own, work->own_count, &work->all, &work->all_count);
        start_stage(saver, INDEX);
        return VT_OK;
    }
    if (saver->copies)
        vt_log_info("checkpoint step %ld: %.3f s blocked, %.2f s writing", step, saver->blocked,
                    vt_clock_seconds() - saver->begin);
done:
    if (status != VT_OK) {
        vt_error_context("checkpoint of step %ld", step);
        /* with an index the directory may bear its final name already */
        if (is_first(saver) && !saver->has_index) vt_checkpoint_remove(work->directory);
    }
    forget(saver);
    return status;
}

int64_t vt_checkpoint_saver_busy(const vt_checkpoint_saver *saver)
{
    return saver->stage != NOTHING ? saver->work.progress.step : -1;
}

vt_status vt_checkpoint_saver_look(vt_checkpoint_saver *saver)
{
    if (saver->stage == NOTHING) return VT_OK;
    return vt_world_any(saver->subject->world, !atomic_load(&saver->done)) ? VT_OK : end_stage(saver);
}

vt_status vt_checkpoint_saver_wait(vt_checkpoint_saver *saver)
{
    vt_status status = VT_OK;
    while (saver->stage != NOTHING) VT_TRY(end_stage(saver));
done:
    return status;
}

vt_status vt_checkpoint_saver_save(vt_checkpoint_saver *saver, vt_run_progress *progress, double begin)
{
    vt_status status = VT_OK;
    vt_world *world = saver->subject->world;
    char **directory = &saver->work.directory;
    const int64_t before = vt_checkpoint_saver_busy(saver);
    double waits = vt_clock_seconds();
    VT_TRY(vt_checkpoint_saver_wait(saver));
    waits = vt_clock_seconds() - waits;
    if (before >= 0)
        vt_log_info("checkpoint step %ld: waited %.2f s for that of step %ld", progress->step, waits, before);
    saver->is_best = progress->validation_loss < progress->best_loss;
    if (saver->is_best) progress->best_loss = progress->validation_loss;
    if (is_first(saver)) status = vt_checkpoint_store_begin(saver->store, progress->step, directory);
    VT_TRY(vt_world_agree(world, status));
    vt_world_broadcast_text(world, directory);
    VT_TRY(begin_work(saver, progress));
    saver->begin = vt_clock_seconds();
    saver->blocked = saver->begin - begin - waits;
    start_stage(saver, SHARDS);
    if (!saver->copies) status = vt_checkpoint_saver_wait(saver);
done:
    if (status != VT_OK && *directory != NULL && is_first(saver)) vt_checkpoint_remove(*directory);
    if (status != VT_OK) forget(saver);
    return status;
}
