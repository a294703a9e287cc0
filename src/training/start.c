/* Where a run begins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/find.h"
#include "journal/run_directory.h"
#include "storage/output_file.h"
#include "training/run_inside.h"

/* Locks the directory, so that from here on no other run can begin or continue in it, and chooses which checkpoint the
 * run continues from, if any. Rank 0 does it for all. */
static vt_status lock_and_choose(vt_run *run)
{
    vt_status status = VT_OK;
    const vt_config *config = run->config;
    bool any = false;
    VT_TRY(vt_run_directory_lock_above(run->directory, &run->lock_above));
    VT_TRY(vt_run_directory_lock(run->directory, false, &run->lock));
    if (config->resume == NULL) return VT_OK;
    VT_TRY(vt_checkpoint_store_has_any(run->checkpoints, &any));
    const bool is_named = strcmp(config->resume, VT_SWITCH_ON) != 0 && !(config->resume_newest && any);
    run->resumes = is_named || any;
    if (is_named) VT_TRY(vt_checkpoint_find(config->resume, VT_CHECKPOINT_TO_RESUME, &run->chosen));
    run->foreign = is_named && !vt_checkpoint_store_owns(run->checkpoints, run->chosen);
done:
    return status;
}

/* The run directory and its log: those of the run that is resumed, else new ones. Rank 0 does it for all. */
static vt_status make_directory(vt_run *run)
{
    vt_status status = VT_OK;
    const bool goes_on = run->resumes && !run->foreign;
    char *renamed = NULL, *log = vt_text_format("%s/out.log", run->directory);
    if (goes_on)
        VT_TRY(vt_output_make_directory(run->directory));
    else
        VT_TRY(vt_run_directory_make(run->directory, &renamed));
    vt_run_directory_unlock(&run->lock); /* of what stood there before; the one above is still held */
    VT_TRY(vt_run_directory_lock(run->directory, false, &run->lock));
    VT_TRY(vt_log_open(log, goes_on));
    if (renamed != NULL) vt_log_info("an earlier run with this tag is now %s", renamed);
    if (run->config->resume != NULL && !run->resumes)
        vt_log_info("--resume: there is no checkpoint in %s/checkpoints, so the run starts afresh", run->directory);
done:
    vt_run_directory_unlock(&run->lock_above);
    free(renamed);
    free(log);
    return status;
}

/* Reads the checkpoint of another run. If it can't be used, what stands in the directory stays there. */
static vt_status read_foreign(vt_run *run)
{
    vt_status status = VT_OK;
    bool damaged = false;
    vt_run_progress *progress = &run->loop.progress;
    VT_TRY(vt_world_agree(run->world, vt_checkpoint_read(run->chosen, &run->subject, progress, &damaged)));
    const int64_t batches = vt_loader_batch_count(run->loop.training_loader);
    const int64_t epochs = vt_loop_length_of(run->config, batches, progress).epochs;
    VT_CHECK(progress->epoch < epochs,
             "--resume=%s: after its %ld epochs (%ld steps) nothing is left to do of the %ld that this run is to "
             "have; give more by --num_epochs or --num_iters, or begin anew with its weights by --init_from",
             run->chosen, progress->epoch, progress->step, epochs);
done:
    return status;
}

vt_status vt_run_open_directory(vt_run *run)
{
    vt_status status = VT_OK;
    const vt_config *config = run->config;
    vt_world *world = run->world;
    const bool is_first = world->rank == 0;
    run->directory = vt_run_directory_path(config, !run->backend->shares_host_memory);
    VT_TRY(vt_checkpoint_store_open(run->directory, config->keep_last, &run->checkpoints));
    VT_TRY(vt_world_agree(world, is_first ? lock_and_choose(run) : VT_OK));
    run->resumes = vt_world_any(world, run->resumes);
    run->foreign = vt_world_any(world, run->foreign);
    vt_world_broadcast_text(world, &run->chosen);
    if (run->foreign) VT_TRY(vt_world_agree(world, read_foreign(run)));
    VT_TRY(vt_world_agree(world, is_first ? make_directory(run) : VT_OK));
done:
    return status;
}

vt_status vt_run_read_initial(vt_run *run)
{
    vt_status status = VT_OK;
    vt_world *world = run->world;
    const char *path = run->config->init_from;
    if (path == NULL) return VT_OK;
    VT_TRY(vt_world_agree(world,
                          world->rank == 0 ? vt_checkpoint_find(path, VT_CHECKPOINT_TO_BEGIN, &run->initial) : VT_OK));
    vt_world_broadcast_text(world, &run->initial);
    vt_text_append(&run->initial_lines, "the parameters begin as those of %s", run->initial);
    VT_TRY(vt_checkpoint_read_parameters(run->initial, &run->subject, &run->initial_lines));
done:
    return status;
}

vt_status vt_run_restore(vt_run *run)
{
    vt_status status = VT_OK;
    vt_run_progress *progress = &run->loop.progress;
    if (run->foreign) {
        progress->best_loss = INFINITY; /* of this run's validations, of which there is none yet */
        progress->persistence_loss = NAN;
        vt_checkpoint_log_resumed(run->chosen, progress);
        return VT_OK;
    }
    *progress = vt_run_progress_start;
    if (run->resumes) return vt_checkpoint_store_restore(run->checkpoints, run->chosen, &run->subject, progress);
    if (run->config->resume != NULL) VT_TRY(vt_run_read_initial(run)); /* not known to be needed before */
    vt_log_lines(run->initial_lines.characters);
done:
    return status;
}
