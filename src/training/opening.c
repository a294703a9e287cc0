/* What the log says before a run's first step. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "config/stages.h"
#include "journal/record.h"
#include "model/split.h"
#include "training/run_inside.h"

/* ---- the lines for people ---- */

static void log_configuration_name(const vt_config *config)
{
    char *flags = vt_config_flags_text(config);
    vt_log_info("configuration: '%s'%s%s%s%s", config->config, config->yaml_config != NULL ? " of " : "",
                config->yaml_config != NULL ? config->yaml_config : "", flags[0] != '\0' ? ", with" : "", flags);
    free(flags);
}

static void log_samples(const vt_run *run)
{
    const vt_config *config = run->config;
    const vt_loop_length *length = &run->loop.length;
    const int64_t batches = vt_loader_batch_count(run->loop.training_loader); /* of a whole epoch */
    vt_log_info("samples: %ld for training, %ld for validation; %ld epoch%s of %ld steps", run->training->sample_count,
                run->validation->sample_count, length->epochs, length->epochs == 1 ? "" : "s", length->steps_per_epoch);
    if (length->steps_per_epoch < batches)
        vt_log_info("num_iters %ld is less than an epoch of %ld steps: training for %ld steps", config->num_iters,
                    batches, config->num_iters);
    else if (config->num_iters != VT_UNSET_INTEGER && length->steps != config->num_iters)
        vt_log_info("num_iters %ld makes %ld whole epoch%s, %ld steps", config->num_iters, length->epochs,
                    length->epochs == 1 ? "" : "s", length->steps);
}

static void log_model(const vt_run *run)
{
    const vt_parameters *parameters = run->loop.trainer->parameters;
    const int64_t frozen = parameters->frozen_count;
    char *sizes = vt_model_kind_of(run->config)->describe(run->config);
    char *note = vt_text_format(frozen > 0 ? ", %ld of them frozen" : "", frozen);
    vt_log_info("model: %ld parameters%s: %s", parameters->whole_count, note, sizes);
    free(note);
    free(sizes);
}

static void log_training(const vt_config *config)
{
    static const char *const schedules[] = {[VT_SCHEDULE_COSINE] = "falls to 0 as a cosine",
                                            [VT_SCHEDULE_NONE] = "constant",
                                            [VT_SCHEDULE_PARTS] = "falls as a cosine"};
    const int64_t warmup = vt_config_warmup(config);
    char *optimizer = vt_config_value_text(config, "optimizer"), *precision = vt_config_value_text(config, "amp_mode");
    vt_text line = {0};
    vt_text_append(&line, "training: batches of %ld, %s, learning rate %.4g (%s", config->global_batch_size, optimizer,
                   vt_config_learning_rate(config), schedules[config->lr_schedule]);
    if (warmup > 0) vt_text_append(&line, " after a warm-up of %ld steps", warmup);
    vt_text_append(&line, ")");
    if (config->weight_decay > 0) vt_text_append(&line, ", weight decay %.4g", config->weight_decay);
    if (config->dropout > 0) vt_text_append(&line, ", dropout %.4g", config->dropout);
    if (!isnan(config->ema_decay)) vt_text_append(&line, ", averaged weights (ema_decay %.7g)", config->ema_decay);
    vt_log_info("%s, %s", line.characters, config->amp_mode == VT_AMP_NONE ? "float32" : precision);
    vt_text_close(&line);
    free(optimizer);
    free(precision);
}

static void log_layout(const vt_config *config, const vt_world *world)
{
    const int *size = world->layout.size;
    if (world->ranks == 1) return;
    char *stages = vt_text_format(size[VT_AXIS_PIPELINE] > 1 ? " × pipeline %d" : "", size[VT_AXIS_PIPELINE]);
    vt_log_info("ranks: %d, started by %s, communicating through %s; tensor %d × context %d%s × data %d, order %s",
                world->ranks, vt_launch_name(world->launch.launcher), world->engine->name, size[VT_AXIS_TENSOR],
                size[VT_AXIS_CONTEXT], stages, size[VT_AXIS_DATA], config->parallel_order);
    free(stages);
}

/* Per cent, with so many micro-batches and steps of forecast. */
static double idle_with(const vt_config *config, int64_t parts, int64_t rollout)
{
    vt_step_shape shape = vt_schedule_shape(config, 0, rollout);
    shape.micro_batches = parts;
    return 100 * vt_schedule_idle(&shape);
}

static void log_pipeline(const vt_config *config)
{
    const int64_t stages = config->pipeline_parallel, parts = config->grad_accumulation;
    const int64_t local = config->global_batch_size / config->data_parallel;
    const int64_t enough = vt_plan_divisor(local, stages); /* keeps all stages busy for a while */
    const int64_t rollout = vt_config_longest_rollout(config);
    if (stages == 1) return;
    const double idle = idle_with(config, parts, 1);
    char *schedule = vt_config_value_text(config, "pipeline_schedule");
    char *longest = vt_text_format(rollout > 1 ? "; %.1f %% in rollouts of %ld steps" : "",
                                   idle_with(config, parts, rollout), rollout);
    vt_log_info("pipeline: %ld stages, %ld micro-batch%s of %ld sample%s, %s, idle %.1f %% by (p - 1)/(m + p - 1)%s",
                stages, parts, parts == 1 ? "" : "es", vt_trainer_micro_batch(config),
                vt_trainer_micro_batch(config) == 1 ? "" : "s", schedule, idle, longest);
    char *remedy = enough > 0
                       ? vt_text_format("--grad_accumulation=%ld leaves %.1f %%", enough, idle_with(config, enough, 1))
                       : vt_text_format("a rank's batch of %ld samples can't be cut into as many parts as there are "
                                        "stages",
                                        local);
    if (parts < stages)
        vt_log_warning("%ld micro-batch%s (grad_accumulation) for %ld stages: each stage idles %.1f %% of the time; "
                       "%s",
                       parts, parts == 1 ? "" : "es", stages, idle, remedy);
    free(remedy);
    free(longest);
    free(schedule);
}

static void log_memory(const vt_plan *plan)
{
    char total[VT_NUMBER_SIZE], parts[256];
    vt_plan_describe(plan, parts, sizeof parts);
    vt_log_info("memory the run needs: %s (%s); %.4g GFLOP a step", vt_text_bytes(vt_plan_total(plan), total), parts,
                1e-9 * plan->step.flops);
    if (plan->pinned_bytes > 0)
        vt_log_info("host memory pinned for the GPU's copies: %s", vt_text_bytes((double)plan->pinned_bytes, total));
}

/* Which part of the activations waits in the host's memory. */
static void log_offload(const vt_run *run)
{
    const vt_config *config = run->config;
    const vt_offload_sizes *sizes = &run->plan.offload;
    const int64_t blocks = vt_model_blocks(run->loop.trainer->model).count;
    char bytes[2][VT_NUMBER_SIZE];
    if (config->offload_activations == VT_OFFLOAD_NONE) return;
    if (blocks <= 2)
        vt_log_warning("offload_activations has no effect: this rank has %ld block%s, and the last two stay on the GPU",
                       blocks, blocks == 1 ? "" : "s");
    else
        vt_log_info("offload_activations: of %ld blocks all but the last two wait in the host's memory, %s of a "
                    "micro-batch; on the GPU are rooms of %s",
                    blocks, vt_text_bytes((double)sizes->host, bytes[0]),
                    vt_text_bytes((double)vt_offload_device_bytes(*sizes), bytes[1]));
}

/* Rank 0 plans the lowest rank of each stage: unless there are few tokens a rank, none of it has more. */
static vt_status log_stage_memory(const vt_run *run)
{
    vt_status status = VT_OK;
    const vt_layout *layout = &run->world->layout;
    const int stages = layout->size[VT_AXIS_PIPELINE];
    vt_plan_options options = vt_plan_options_of(run->world, run->loop.trainer->backend);
    options.chunk_bytes = run->plan.chunk_bytes;
    vt_plan most = run->plan;
    int largest = 0;
    char total[VT_NUMBER_SIZE], parts[256];
    if (stages == 1 || options.rank != 0) return VT_OK;
    for (int stage = 1; stage < stages; stage++) {
        vt_plan plan;
        options.rank = vt_layout_first(layout, stage);
        VT_TRY(vt_plan_make(run->config, &options, &plan));
        if (vt_plan_total(&plan) <= vt_plan_total(&most)) continue;
        most = plan;
        largest = stage;
    }
    vt_plan_describe(&most, parts, sizeof parts);
    vt_log_info("memory that stage %d needs, the most of all stages: %s (%s)", largest,
                vt_text_bytes(vt_plan_total(&most), total), parts);
done:
    return status;
}

/* ---- the details ---- */

/* "[384, 1536]"; in a .csv file "384x1536", so that no field holds a comma. */
static const char *shape_text(const int64_t *shape, int dimensions, bool csv, char text[96])
{
    int used = snprintf(text, 96, csv ? "" : "[");
    for (int i = 0; i < dimensions; i++)
        used += snprintf(text + used, 96 - (size_t)used, "%s%ld", i == 0 ? "" : csv ? "x" : ", ", shape[i]);
    snprintf(text + used, 96 - (size_t)used, csv ? "" : "]");
    return text;
}

/* A row for each parameter, in the log and in *table; of a model that is split with its stage, and, if any is frozen,
 * with whether it is. */
static void log_parameters(const vt_parameters *parameters, const vt_split *split, vt_text *table)
{
    const bool is_split = split->stages > 1, freezes = parameters->frozen_count > 0;
    char global[96], local[96];
    vt_log_detail("%-32s %-22s %-22s %12s%s", "parameter", "global shape", "local shape", "bytes",
                  is_split ? "  stage" : "");
    vt_text_append(table, "name,global_shape,local_shape,bytes%s%s\n", is_split ? ",stage" : "",
                   freezes ? ",frozen" : "");
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *p = parameters->list[i];
        const int64_t bytes = p->count * (int64_t)sizeof(float);
        int64_t stage = 0;
        while (is_split && p->unit >= split->units[stage].first + split->units[stage].count) stage++;
        char *log_stage = vt_text_format(is_split ? "  %ld" : "", stage);
        vt_log_detail("%-32s %-22s %-22s %12ld%s%s", p->name, shape_text(p->shape, p->dimensions, false, global),
                      shape_text(p->local, p->dimensions, false, local), bytes, log_stage, p->frozen ? "  frozen" : "");
        vt_text_append(table, "%s,%s,%s,%ld", p->name, shape_text(p->shape, p->dimensions, true, global),
                       shape_text(p->local, p->dimensions, true, local), bytes);
        if (is_split) vt_text_append(table, ",%ld", stage);
        vt_text_append(table, "%s\n", !freezes ? "" : p->frozen ? ",true" : ",false");
        free(log_stage);
    }
    vt_log_detail("number of model parameters: %ld", parameters->whole_count);
}

/* Settings of which the user probably expects something else. */
static void warn_of_settings(const vt_run *run)
{
    const vt_config *config = run->config;
    const vt_loop_length *length = &run->loop.length;
    const vt_stages rollout = vt_config_rollout(config);
    const int cores = vt_threads_core_count();
    if (config->zero != NULL)
        vt_log_warning("--%s=0 counts as not given, as in the tutorials: what the configuration says is used",
                       config->zero);
    if (vt_config_warmup(config) >= length->steps)
        vt_log_warning("the warm-up of %ld steps is not shorter than the run, which has %ld: the learning rate never "
                       "reaches %g",
                       vt_config_warmup(config), length->steps, vt_config_learning_rate(config));
    if (rollout.count > 0 && rollout.stages[rollout.count - 1].epoch >= length->epochs)
        vt_log_warning("the run ends before its last rollout, %g steps from epoch %ld on: it has %ld epoch%s",
                       rollout.stages[rollout.count - 1].value, rollout.stages[rollout.count - 1].epoch + 1,
                       length->epochs, length->epochs == 1 ? "" : "s");
    if (config->zero_stage > 0 && config->data_parallel == 1)
        vt_log_warning("zero_stage %ld has no effect: it splits over the data axis, which has one rank",
                       config->zero_stage);
    if (config->num_threads != VT_UNSET_INTEGER && cores > 0 && config->num_threads > cores)
        vt_log_warning("num_threads %ld: this process has %d core%s, so threads wait for each other",
                       config->num_threads, cores, cores == 1 ? "" : "s");
    if (config->optimizer == VT_OPTIMIZER_Adafactor && vt_config_learning_rate(config) > 0.1)
        vt_log_warning("Adafactor's learning rate is %g, a share of the weights' own size; 1e-2 is usual",
                       vt_config_learning_rate(config));
    if (config->cache != VT_CACHE_NONE && run->training->frame_count == 0)
        vt_log_warning("cache has no effect: source %s has no frames that it could keep", run->training->kind->name);
}

vt_status vt_run_log_opening(const vt_run *run)
{
    vt_status status = VT_OK;
    const vt_config *config = run->config;
    vt_split split = {0};
    vt_text table = {0};
    vt_names options = vt_config_lines(config);
    char *path = vt_text_format("%s/parameters.csv", run->directory);
    if (config->pipeline_parallel > 1) VT_TRY(vt_split_open(config, &split));
    log_configuration_name(config);
    const vt_task *task = run->loop.trainer->task;
    if (task->kind->log_data != NULL) task->kind->log_data(task, run->training, run->validation);
    vt_reader_log(config, run->world, run->training, run->validation, run->test);
    log_samples(run);
    log_model(run);
    log_training(config);
    log_layout(config, run->world);
    log_pipeline(config);
    vt_log_info("computing on: %s", run->loop.trainer->backend->name);
    log_memory(&run->plan);
    log_offload(run);
    VT_TRY(log_stage_memory(run));
    vt_record_memory(run->loop.trainer->backend, "Scaffolding memory high watermark");
    vt_log_info("run directory: %s (all options in config.yaml, all tensors in parameters.csv)", run->directory);
    if (config->disable_broadcast_buffers)
        vt_log_info("disable_broadcast_buffers has no effect: the model has no buffers");
    if (config->wireup_info != NULL || config->wireup_store != NULL)
        vt_log_info("wireup_info and wireup_store have no effect: the launcher is recognised by itself");
    warn_of_settings(run);
    vt_log_detail("------------------ Configuration ------------------");
    for (int64_t i = 0; i < options.count; i++) vt_log_detail("%s", options.names[i]);
    vt_log_detail("---------------------------------------------------");
    log_parameters(run->loop.trainer->parameters, &split, &table);
    if (run->world->rank == 0) VT_TRY(vt_file_write(path, table.characters, table.length));
done:
    vt_text_close(&table);
    vt_names_close(&options);
    vt_split_close(&split);
    free(path);
    return status;
}
