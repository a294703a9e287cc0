#include "training/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/profile.h"
#include "base/text.h"
#include "journal/run_directory.h"
#include "report/run_files.h"
#include "storage/output_file.h"
#include "training/run_inside.h"
#include "training/stop.h"

static vt_status open_data(vt_run *run)
{
    vt_status status = VT_OK;
    const vt_config *config = run->config;
    VT_TRY(vt_reader_open_source(config, run->world, VT_SET_TRAINING, &run->training));
    VT_TRY(vt_reader_open_source(config, run->world, VT_SET_VALIDATION, &run->validation));
    VT_TRY(vt_source_agree(run->training, run->validation));
    VT_TRY(vt_task_kind_of(config)->open(config, run->training, run->validation, &run->task));
    const int64_t samples = run->training->sample_count;
    VT_CHECK(vt_source_batches(run->training, samples, config->global_batch_size) > 0,
             "%s has %ld training samples, fewer than one batch (global_batch_size %ld); use a smaller batch",
             run->training->path, samples, config->global_batch_size);
done:
    return status;
}

/* Collective. */
static vt_status check_same_data(const vt_run *run)
{
    static const char *const names[VT_NORMALISING_FILES] = {
        "global_means_path", "global_stds_path", "time_diff_stds_path", "time_means_path", "climatology_path"};
    const vt_fields_about *about = run->task->about;
    const vt_source *const sets[] = {run->training, run->validation};
    vt_text sums = {0};
    for (int i = 0; about != NULL && i < VT_NORMALISING_FILES; i++)
        if (about->normalisation.checksums[i] >= 0)
            vt_text_append(&sums, "%s: crc32c %08x\n", names[i], (unsigned)about->normalisation.checksums[i]);
    const vt_status status = vt_source_check_same(run->world, sets, 2, sums.characters);
    vt_text_close(&sums);
    return status;
}

/* Epochs that have another length than those of the run that made the checkpoint. */
static void log_epoch_length(const vt_run *run)
{
    const vt_run_progress *progress = &run->loop.progress;
    const int64_t batch = run->config->global_batch_size, samples = run->training->sample_count;
    if (progress->batch == 0 || progress->training_samples == 0) return;
    const int64_t before = vt_source_batches(run->training, progress->training_samples, progress->batch),
                  now = vt_source_batches(run->training, samples, batch);
    if (before == now) return;
    vt_log_info("an epoch has %ld steps from here on, before it had %ld (global_batch_size %ld, was %ld; %ld "
                "training samples, were %ld): the learning rate goes on from where it was after %ld epoch%s, %ld "
                "steps, and the rest of its schedule is spread over the %ld steps that are left",
                now, before, batch, progress->batch, samples, progress->training_samples, progress->epoch,
                progress->epoch == 1 ? "" : "s", progress->step, run->loop.length.of_rate.run - progress->step);
}

/* How the ranks reach its memory, and whether the run fits into it; only then are the readers' rings taken. */
static vt_status open_device(vt_run *run)
{
    vt_status status = VT_OK;
    const vt_config *config = run->config;
    vt_plan_options planned = vt_plan_options_of(run->world, run->backend);
    const vt_source *const sets[] = {run->training, run->validation, run->test};
    for (int i = 0; i < 3; i++)
        if (sets[i] != NULL) planned.chunk_bytes += vt_chunk_cache_bytes(sets[i]->chunks);
    VT_TRY(vt_world_open_device(config, run->world, run->backend));
    VT_TRY(vt_plan_make(config, &planned, &run->plan));
    const double available =
        run->backend->available_memory(run->backend) / vt_world_ranks_of_memory(run->world, run->backend);
    VT_TRY(vt_budget_check(config, &planned, &run->plan, available, true));
    if (planned.device_memory)
        VT_TRY(vt_budget_check_host(config, &run->plan,
                                    vt_memory_available() / vt_world_ranks_of_memory(run->world, NULL)));
    const double cached =
        vt_reader_keep_sets(config, VT_CACHE_DEVICE, available < 0 ? INFINITY : available - vt_plan_total(&run->plan),
                            (vt_source *const[]){run->training, run->validation}, run->cached);
    run->settled = *config; /* its strings stay the configuration's */
    VT_TRY(vt_budget_keep_outputs(&run->settled, &planned, cached, available, &run->plan));
    config = run->config = &run->settled;
    VT_TRY(vt_reader_open_loader(config, run->world, run->backend,
                                 (vt_reader_use){.training = true, .indices_only = run->cached[0]}, run->training,
                                 &run->loop.training_loader));
    VT_TRY(vt_reader_open_loader(config, run->world, run->backend, (vt_reader_use){.indices_only = run->cached[1]},
                                 run->validation, &run->loop.validation_loader));
done:
    return status;
}

/* Reads the sets that stay in the device's memory. */
static vt_status open_caches(vt_run *run)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds();
    vt_device_cache **caches = run->loop.trainer->caches;
    vt_source *const sets[] = {run->training, run->validation};
    for (int i = 0; i < 2; i++)
        if (run->cached[i]) VT_TRY(vt_device_cache_open(run->backend, sets[i], &caches[i]));
    if (run->cached[0] || run->cached[1])
        vt_log_info("cache: the %s in the device's memory, read in %.1f s",
                    !run->cached[0]  ? "validation set is"
                    : run->cached[1] ? "training and validation sets are"
                                     : "training set is",
                    vt_clock_seconds() - begin);
done:
    return status;
}

/* What stays in the host's memory, beside what the run is going to take of it. */
static void keep_in_host(const vt_run *run)
{
    const double available = vt_memory_available(), ranks = vt_world_ranks_of_memory(run->world, NULL);
    const double needed = run->backend->shares_host_memory ? vt_plan_total(&run->plan) : (double)run->plan.ring_bytes;
    bool kept[2];
    (void)vt_reader_keep_sets(run->config, VT_CACHE_HOST, available < 0 ? INFINITY : available / ranks - needed,
                              (vt_source *const[]){run->training, run->validation}, kept);
}

/* What the run writes besides its log. Rank 0 writes for all. */
static vt_status open_output(vt_run *run)
{
    vt_status status = VT_OK;
    if (run->world->rank != 0) return VT_OK;
    char *saved = vt_text_format("%s/config.yaml", run->directory);
    VT_TRY(vt_config_save(run->config, saved));
    vt_record_options record = {.config = run->config,
                                .run_directory = run->directory,
                                .scores = &run->task->scores,
                                .steps = run->foreign ? 0 : run->loop.progress.step,
                                .epochs_done = run->foreign ? 0 : run->loop.progress.epoch,
                                .step_flops = run->plan.step.flops,
                                .epochs = run->loop.length.epochs,
                                .steps_per_epoch = run->loop.length.steps_per_epoch,
                                .parameters = run->loop.trainer->parameters->whole_count};
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++)
        record.bytes[i] = vt_plan_bytes(&run->plan, (vt_memory_category)i);
    VT_TRY(vt_record_open(&record, &run->loop.record));
done:
    free(saved);
    return status;
}

/* Collective. */
static vt_status open_trainer(vt_run *run)
{
    vt_status status = VT_OK;
    /* no steps yet: begin() sets the run's length, once it is known where the run continues */
    const vt_trainer_options options = {.world = run->world, .task = run->task};
    VT_TRY(vt_trainer_open(run->config, &options, run->backend, &run->loop.trainer));
    run->subject = vt_trainer_subject(run->loop.trainer);
    run->subject.training_samples = run->training->sample_count;
    run->subject.crossing_samples = run->training->crossing_samples;
    run->subject.validation_samples = run->validation->sample_count;
    if (run->config->resume == NULL) VT_TRY(vt_run_read_initial(run));
done:
    return status;
}

static vt_status open_trace(const vt_run *run)
{
    vt_status status = VT_OK;
    if (!run->config->comm_trace) return VT_OK;
    char *logs = vt_text_format("%s/logs", run->directory);
    char *path = vt_text_format("%s/comm-%d.csv", logs, run->world->rank);
    VT_TRY(vt_output_make_directory(logs));
    VT_TRY(vt_gradient_sync_trace(run->loop.trainer->sync, path));
done:
    free(logs);
    free(path);
    return status;
}

/* A run that is to be profiled, but where nothing can be recorded, says so before it takes its time. */
static void log_profiling(const vt_config *config)
{
    const char *script = getenv("ENABLE_PROFILING"), *asked = NULL, *obstacle = NULL;
    if (config->profile_graphs) asked = "--profile_graphs";
    if (config->profile_ranks == VT_PROFILE_ALL) asked = "--profile_ranks=all";
    if (config->enable_manual_profiling) asked = "--enable_manual_profiling";
    if (script != NULL && strcmp(script, "1") == 0) asked = "ENABLE_PROFILING=1";
    if (asked != NULL) obstacle = vt_profile_obstacle();
    if (obstacle != NULL) vt_log_warning("%s: no profile is recorded, because %s", asked, obstacle);
}

static void log_finished(const vt_run *run)
{
    const int64_t most = run->config->num_iters, step = run->loop.progress.step;
    if (most != VT_UNSET_INTEGER && most > step)
        vt_log_info("num_iters %ld: after %ld steps no whole epoch of %ld is left", most, step,
                    run->loop.length.steps_per_epoch);
    vt_log_info("the run is finished: %ld epoch%s done, %ld steps; nothing is left to do", run->loop.progress.epoch,
                run->loop.progress.epoch == 1 ? " is" : "s are", step);
}

/* Collective. Of a run whose steps are done: did it die behind its last checkpoint, before the end of its log? */
static bool lacks_its_end(const vt_run *run)
{
    const vt_run_progress *progress = &run->loop.progress;
    const bool ends_epoch = progress->epoch_steps == 0 && !isnan(progress->validation_loss);
    bool is_closed = true;
    if (run->world->rank == 0) free(vt_run_last_line(run->directory, &is_closed));
    return vt_world_any(run->world, run->resumes && !run->foreign && ends_epoch && !is_closed);
}

static void log_result(const vt_run *run, const vt_evaluation *last)
{
    const vt_score_names *scores = &run->task->scores;
    char number[VT_NUMBER_SIZE];
    vt_text line = {0};
    char *remark = run->task->kind->remark != NULL ? run->task->kind->remark(run->task, last->loss) : NULL;
    vt_text_append(&line, "validation loss %s", vt_text_float((float)last->loss, number));
    if (!isnan(last->baseline_loss))
        vt_text_append(&line, ", %s (%s) %s: %.3f of it", scores->baseline, scores->baseline_is,
                       vt_text_float((float)last->baseline_loss, number),
                       vt_text_plain_nan(last->loss / last->baseline_loss));
    vt_log_info("%s%s; run directory %s", line.characters, remark != NULL ? remark : "", run->directory);
    vt_text_close(&line);
    free(remark);
}

static void close_run(vt_run *run)
{
    vt_rows_close(&run->loop.sample_trace);
    vt_record_close(&run->loop.record);
    vt_checkpoint_saver_close(&run->loop.saver);
    vt_trainer_close(&run->loop.trainer);
    vt_task_close(&run->task);
    vt_loader_close(&run->loop.training_loader);
    vt_loader_close(&run->loop.validation_loader);
    vt_backend_close(&run->backend);
    vt_source_close(&run->training);
    vt_source_close(&run->validation);
    vt_source_close(&run->test);
    vt_checkpoint_store_close(&run->checkpoints);
    vt_run_directory_unlock(&run->lock);
    vt_run_directory_unlock(&run->lock_above);
    vt_text_close(&run->initial_lines);
    free(run->test_obstacle);
    free(run->directory);
    free(run->chosen);
    free(run->initial);
}

static vt_status train(vt_run *run)
{
    vt_status status = VT_OK;
    vt_evaluation last = {0};
    char *chunks = NULL;
    vt_loop loop = run->loop; /* which stays as it is if this fails: training may begin there again */
    VT_TRY(vt_loop_run(&loop, &last));
    run->loop.progress = loop.progress;
    chunks = vt_reader_chunks(run->world, run->training);
    if (chunks != NULL) vt_log_info("%s", chunks);
    vt_loader_close(&run->loop.validation_loader); /* its ring makes room for the test set's */
    VT_TRY(vt_run_score_test_set(run));
    log_result(run, &last);
done:
    /* a damaged moment of the optimizer shows only in the second step */
    run->failed_at_once = loop.diverged && loop.finite_steps < 2 && run->resumes && run->chosen == NULL;
    free(chunks);
    vt_evaluation_close(&last);
    return status;
}

/* Collective. What the run begins with or continues from, and what it writes. */
static vt_status begin(vt_run *run)
{
    vt_status status = VT_OK;
    vt_world *world = run->world;
    VT_TRY(vt_world_agree(world, vt_run_restore(run)));
    run->loop.length =
        vt_loop_length_of(run->config, vt_loader_batch_count(run->loop.training_loader), &run->loop.progress);
    if (run->loop.progress.epoch >= run->loop.length.epochs) {
        run->is_finished = !lacks_its_end(run);
        if (run->is_finished) {
            log_finished(run);
            return VT_OK;
        }
        vt_log_info("all steps are done, but the run died before the end of its log; writing it now");
        if (world->rank == 0) vt_checkpoint_store_remove_old(run->checkpoints);
    }
    log_epoch_length(run);
    vt_trainer_resume(run->loop.trainer, run->loop.progress.step, run->loop.length.of_rate);
    VT_TRY(vt_world_agree(world, vt_checkpoint_saver_open(&run->subject, run->checkpoints, &run->loop.saver)));
    VT_TRY(vt_world_agree(world, open_output(run)));
    if (run->config->sample_trace)
        VT_TRY(vt_world_agree(
            world, vt_sample_trace_open(world, run->directory, run->loop.progress.step, &run->loop.sample_trace)));
done:
    return status;
}

/* Collective, after training failed at once: the checkpoint that it continued from may be damaged without showing it.
 * Begins anew from an older one, if there is one; otherwise the failure stays. */
static vt_status step_back(vt_run *run)
{
    vt_status status = VT_OK;
    bool older = false;
    const vt_agreed_failure failure = vt_world_lift_failure(run->world);
    if (run->world->rank == 0)
        status = vt_checkpoint_store_step_back(run->checkpoints, run->loop.progress.step, &older);
    VT_TRY(vt_world_agree(run->world, status));
    older = vt_world_any(run->world, older);
    if (!older) {
        vt_world_restore_failure(run->world, &failure);
        return VT_ERROR;
    }
    vt_log_warning("%s; going back to an older checkpoint, once", failure.cause.text);
    vt_step_drop(run->loop.trainer);
    vt_rows_close(&run->loop.sample_trace);
    vt_record_close(&run->loop.record);
    vt_checkpoint_saver_close(&run->loop.saver);
    VT_TRY(begin(run));
done:
    return status;
}

/* All of a run that has ranks to talk to. Every phase ends with an agreement: an error on one rank is one on all. */
static vt_status run_phases(vt_run *run)
{
    vt_status status = VT_OK;
    vt_world *world = run->world;
    VT_TRY(vt_world_agree(world, open_data(run))); /* before the directory: a run that can't start leaves nothing */
    VT_TRY(check_same_data(run));
    vt_chunk_cache_share(run->training->chunks, world);
    vt_chunk_cache_share(run->validation->chunks, world);
    VT_TRY(vt_run_open_test_set(run));
    VT_TRY(vt_world_agree(world, vt_world_open_backend(run->config, world, &run->backend)));
    VT_TRY(vt_world_agree(world, open_device(run)));
    VT_TRY(vt_world_agree(world, open_trainer(run)));
    VT_TRY(vt_run_open_directory(run));
    VT_TRY(begin(run));
    if (run->is_finished) goto done;
    if (run->loop.progress.epoch < run->loop.length.epochs) VT_TRY(vt_world_agree(world, open_trace(run))); /* anew */
    VT_TRY(vt_world_agree(world, vt_run_log_opening(run)));
    vt_run_log_test_set(run);
    log_profiling(run->config);
    keep_in_host(run);
    VT_TRY(vt_world_agree(world, open_caches(run)));
    bool trains = true;
    if (run->config->enable_benchy) {
        VT_TRY(vt_run_benchy(run, &trains));
        vt_trainer_resume(run->loop.trainer, run->loop.progress.step,
                          run->loop.length.of_rate); /* its steps don't count */
    }
    if (trains) status = train(run);
    if (status == VT_ERROR && run->failed_at_once) {
        VT_TRY(step_back(run));
        status = train(run);
        if (status == VT_ERROR && run->failed_at_once)
            vt_log_warning("the same happens from the older checkpoint, so the one that was renamed may be good, and "
                           "the run's options or the machine at fault; --resume=DIR continues from that one");
    }
done:
    return status;
}

vt_status vt_run_training(const vt_config *config, const vt_launch *launch)
{
    vt_status status = VT_OK;
    vt_run run = {.config = config, .lock = -1, .lock_above = -1};
    vt_stop_watch(vt_config_max_seconds(config)); /* MPI_Init leaves the handlers alone, and may wait for long */
    VT_TRY(vt_world_open(config, launch, &run.world));
    vt_log_filter.muted = run.world->rank != 0;
    vt_log_filter.bare_scripts = !config->log_prefix;
    status = run_phases(&run);
done:
    if (status == VT_ERROR) vt_log_failure("%s", vt_error_text());
    close_run(&run);
    vt_stop_unwatch();
    if (vt_log_close() != VT_OK && status == VT_OK) status = VT_ERROR;
    if (status == VT_STOPPED && vt_error_text()[0] != '\0') { /* it can go on all the same, as its status says */
        fprintf(stderr, "vitrain: %s\n", vt_error_text());
        vt_error_clear();
    }
    vt_world_close(&run.world, status == VT_ERROR);
    return status;
}
