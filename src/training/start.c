#include "training/start.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/find.h"
#include "journal/run_directory.h"
#include "storage/output_file.h"
#include "training/loop.h"

const vt_run_start vt_run_start_none = {.lock = -1, .lock_above = -1};

/* Which checkpoint the run continues from, if any. */
static vt_status choose_checkpoint(const vt_config *config, vt_run_start *start)
{
    vt_status status = VT_OK;
    bool any = false;
    if (config->resume == NULL) return VT_OK;
    VT_TRY(vt_checkpoint_store_has_any(start->checkpoints, &any));
    const bool is_named = strcmp(config->resume, VT_SWITCH_ON) != 0 && !(config->resume_newest && any);
    start->resumes = is_named || any;
    if (is_named) VT_TRY(vt_checkpoint_find(config->resume, VT_CHECKPOINT_TO_RESUME, &start->chosen));
    start->foreign = is_named && !vt_checkpoint_store_owns(start->checkpoints, start->chosen);
done:
    return status;
}

/* From here on no other run can begin or continue in the directory. Rank 0 does it for all. */
static vt_status lock_directory(const vt_config *config, bool on_gpu, vt_run_start *start)
{
    vt_status status = VT_OK;
    VT_TRY(vt_run_directory_lock_above(config, on_gpu, &start->lock_above));
    VT_TRY(vt_run_directory_lock(start->directory, false, &start->lock));
    VT_TRY(choose_checkpoint(config, start));
done:
    return status;
}

/* The run directory and its log: those of the run that is resumed, else new ones. Rank 0 does it for all. */
static vt_status make_directory(const vt_config *config, bool on_gpu, vt_run_start *start)
{
    vt_status status = VT_OK;
    const bool goes_on = start->resumes && !start->foreign;
    char *renamed = NULL, *made = NULL, *log = vt_text_format("%s/out.log", start->directory);
    if (goes_on)
        VT_TRY(vt_output_make_directory(start->directory));
    else
        VT_TRY(vt_run_directory_make(config, on_gpu, &made, &renamed));
    vt_run_directory_unlock(&start->lock); /* of what stood there before; the one above is still held */
    VT_TRY(vt_run_directory_lock(start->directory, false, &start->lock));
    VT_TRY(vt_log_open(log, goes_on));
    if (renamed != NULL) vt_log_info("an earlier run with this tag is now %s", renamed);
    if (config->resume != NULL && !start->resumes)
        vt_log_info("--resume: there is no checkpoint in %s/checkpoints, so the run starts afresh", start->directory);
done:
    vt_run_directory_unlock(&start->lock_above);
    free(made);
    free(renamed);
    free(log);
    return status;
}

/* Reads the checkpoint of another run. If it can't be used, what stands in the directory stays there. */
static vt_status read_foreign(const vt_checkpoint_subject *subject, int64_t batches, vt_run_start *start)
{
    vt_status status = VT_OK;
    bool damaged = false;
    vt_run_progress *progress = &start->progress;
    VT_TRY(vt_world_agree(subject->world, vt_checkpoint_read(start->chosen, subject, progress, &damaged)));
    const int64_t epochs = vt_loop_length_of(subject->config, batches, progress).epochs;
    VT_CHECK(progress->epoch < epochs,
             "--resume=%s: after its %lld epochs (%lld steps) nothing is left to do of the %lld that this run is to "
             "have; give more by --num_epochs or --num_iters, or begin anew with its weights by --init_from",
             start->chosen, (long long)progress->epoch, (long long)progress->step, (long long)epochs);
done:
    return status;
}

vt_status vt_start_open(const vt_checkpoint_subject *subject, bool on_gpu, int64_t batches, vt_run_start *start)
{
    vt_status status = VT_OK;
    const vt_config *config = subject->config;
    vt_world *world = subject->world;
    const bool is_first = vt_world_rank(world) == 0;
    start->directory = vt_run_directory_path(config, on_gpu);
    VT_TRY(vt_checkpoint_store_open(start->directory, config->keep_last, &start->checkpoints));
    VT_TRY(vt_world_agree(world, is_first ? lock_directory(config, on_gpu, start) : VT_OK));
    start->resumes = vt_world_any(world, start->resumes);
    start->foreign = vt_world_any(world, start->foreign);
    vt_world_broadcast_text(world, &start->chosen);
    if (start->foreign) VT_TRY(vt_world_agree(world, read_foreign(subject, batches, start)));
    VT_TRY(vt_world_agree(world, is_first ? make_directory(config, on_gpu, start) : VT_OK));
done:
    return status;
}

void vt_start_close(vt_run_start *start)
{
    vt_checkpoint_store_close(&start->checkpoints);
    free(start->directory);
    free(start->chosen);
    free(start->initial);
    vt_text_close(&start->initial_lines);
    vt_run_directory_unlock(&start->lock);
    vt_run_directory_unlock(&start->lock_above);
}

vt_status vt_start_read_initial(const vt_checkpoint_subject *subject, vt_run_start *start)
{
    vt_status status = VT_OK;
    vt_world *world = subject->world;
    const char *path = subject->config->init_from;
    if (path == NULL) return VT_OK;
    VT_TRY(vt_world_agree(
        world, vt_world_rank(world) == 0 ? vt_checkpoint_find(path, VT_CHECKPOINT_TO_BEGIN, &start->initial) : VT_OK));
    vt_world_broadcast_text(world, &start->initial);
    vt_text_append(&start->initial_lines, "the parameters begin as those of %s", start->initial);
    VT_TRY(vt_checkpoint_read_parameters(start->initial, subject, &start->initial_lines));
done:
    return status;
}

vt_status vt_start_restore(const vt_checkpoint_subject *subject, vt_run_start *start)
{
    vt_status status = VT_OK;
    const vt_config *config = subject->config;
    if (start->foreign) {
        start->progress.best_loss = INFINITY; /* of this run's validations, of which there is none yet */
        start->progress.persistence_loss = NAN;
        vt_checkpoint_log_resumed(start->chosen, &start->progress);
        return VT_OK;
    }
    start->progress = vt_run_progress_start;
    if (start->resumes) {
        VT_TRY(vt_checkpoint_store_restore(start->checkpoints, start->chosen, subject, &start->progress));
        return VT_OK;
    }
    if (config->resume != NULL) VT_TRY(vt_start_read_initial(subject, start)); /* not known to be needed before */
    vt_log_lines(start->initial_lines.characters);
done:
    return status;
}
