/* A training step. */

#include "base/clock.h"
#include "base/profile.h"
#include "base/text.h"
#include "training/trainer_inside.h"

/* Adds the time since this function was last called to *part; NULL: only begins anew. */
static void charge_time(vt_trainer *trainer, double *part)
{
    if (!trainer->backend->shares_host_memory) {
        if (!trainer->measured) return;
        trainer->backend->check(trainer->backend);
    }
    double now = vt_clock_seconds(), waited = vt_world_waited(trainer->world);
    if (part != NULL) {
        const double waiting = waited - trainer->part_waited;
        trainer->times.communication += waiting;
        *part += now - trainer->part_begin - waiting;
    }
    trainer->part_begin = now;
    trainer->part_waited = waited;
}

/* ---- a training step ---- */

/* Of a rollout: what the other end of the pipeline has sent, until `count` messages are there. */
static void take_messages(vt_trainer *trainer, const vt_pass *pass, int64_t count)
{
    vt_pipeline_stage *stage = &trainer->stage;
    const vt_step_shape *shape = &trainer->shape;
    for (; stage->taken < count; stage->taken++) {
        const vt_action made =
            vt_schedule_message(shape, stage->place.is_first ? VT_PREDICT : VT_BACKWARD, stage->taken);
        const vt_rollout *rollout = vt_micro_batch_find(trainer, made.micro_batch)->rollout;
        if (stage->place.is_first) {
            vt_stage_take(stage, VT_SENT_FORECAST, vt_rollout_fields(rollout, pass, rollout->states[made.step]));
            continue;
        }
        const size_t mark = pass->arena->used;
        const vt_matrix sum = vt_rollout_fields(rollout, pass, rollout->gradients[made.step]);
        const vt_matrix found = vt_pass_push_float32(pass, sum.rows, sum.columns);
        vt_stage_take(stage, VT_SENT_FORECAST_GRADIENT, found);
        vt_matrix_add(pass->backend, sum, found, sum);
        vt_arena_pop(pass->arena, mark);
    }
}

/* A step of forecast of a micro-batch, and its losses when it is made for the first time. */
static void forward(vt_trainer *trainer, const vt_batch *batch, const vt_action *action)
{
    const int64_t index = action->micro_batch, count = batch->sample_count / trainer->config->grad_accumulation;
    const bool is_first_time = action->kind == VT_PREDICT || action->step + 1 == trainer->shape.rollout;
    vt_range_begin("forward");
    vt_micro_batch *samples = vt_micro_batch_find(trainer, index);
    if (samples == NULL) samples = vt_micro_batch_take(trainer, batch, index, index * count, count, true);
    vt_micro_batch_step(trainer, samples, action->step);
    samples->pass.has_backward = action->kind == VT_FORWARD;
    take_messages(trainer, &samples->pass, action->taken);
    vt_micro_batch_predict(trainer, samples);
    if (trainer->stage.place.is_last && is_first_time && !trainer->loss->sums_in_backward &&
        !(trainer->shape.last_alone && action->kind == VT_PREDICT))
        vt_micro_batch_add_losses(trainer, samples);
    if (action->kind == VT_PREDICT) {
        if (trainer->stage.place.is_last)
            vt_stage_pass(&trainer->stage, VT_SENT_FORECAST,
                          vt_rollout_keep(samples->rollout, &samples->pass, samples->prediction));
        vt_micro_batch_end_step(samples);
    }
    vt_range_end();
    vt_stage_note(&trainer->stage, "forward", index);
    charge_time(trainer, &trainer->times.forward);
}

/* Adds the gradients of a micro-batch's step of forecast, whose activations then go. `last`: this is the training
 * step's last backward. */
static void backward(vt_trainer *trainer, const vt_batch *batch, const vt_action *action, bool last)
{
    vt_micro_batch *samples = vt_micro_batch_find(trainer, action->micro_batch);
    const int64_t rollout = trainer->shape.rollout, first = trainer->shape.last_alone ? rollout - 1 : 0;
    const float scale = 1.0f / (float)(batch->global_count * (rollout - first));
    vt_range_begin("backward");
    take_messages(trainer, &samples->pass, action->taken);
    vt_gradient_sync_begin(trainer->sync, trainer->steps_started, last);
    vt_micro_batch_backward(trainer, samples, scale);
    vt_stage_note(&trainer->stage, "backward", action->micro_batch);
    charge_time(trainer, &trainer->times.backward);
    if (action->step > first)
        vt_micro_batch_end_step(samples);
    else
        vt_micro_batch_release(samples);
    vt_range_end();
}

/* All that the device does in a step. Nothing in it waits for the device, so it can be recorded. */
static void step_body(vt_trainer *trainer, const vt_batch *batch)
{
    const vt_step_shape *shape = &trainer->shape;
    const vt_step_counts counts = vt_schedule_counts(shape);
    int64_t left = counts.backwards; /* that are still to come */
    vt_action action;
    charge_time(trainer, NULL);
    vt_gradient_sync_begin(trainer->sync, trainer->steps_started, false);
    vt_parameters_clear_gradients(trainer->parameters);
    vt_stage_begin(&trainer->stage, trainer->steps_started + 1, &counts,
                   vt_trainer_rows(trainer) * trainer->parallel->own.count, vt_gradient_sync_rows(trainer->sync));
    for (int64_t i = 0; (action = vt_schedule_action(shape, i)).kind != VT_STEP_ENDS; i++) {
        if (action.kind == VT_BACKWARD)
            backward(trainer, batch, &action, --left == 0);
        else
            forward(trainer, batch, &action);
    }
    vt_stage_finish(&trainer->stage);
    vt_gradient_sync_finish(trainer->sync);
    charge_time(trainer, &trainer->times.communication);
    vt_range_begin("optimizer");
    vt_optimizer_step(trainer->optimizer);
    vt_gradient_sync_values_updated(trainer->sync);
    charge_time(trainer, &trainer->times.optimizer);
    vt_range_end();
}

/* Should the step be recorded and replayed? Not the first ones, which choose algorithms and take the operations'
 * memory, and not where messages go through the host. All training batches of a run have one shape; but the last one of
 * a text may count fewer samples, and the number is part of a recording. */
static bool should_replay(const vt_trainer *trainer, const vt_batch *batch)
{
    enum { FIRST_STEPS = 2 };
    return trainer->config->enable_jit && trainer->backend->replay != NULL && trainer->steps_here >= FIRST_STEPS &&
           batch->global_count == trainer->config->global_batch_size && !trainer->measured &&
           !trainer->config->comm_trace && (trainer->config->profile_graphs || !vt_profile_records) &&
           (trainer->world->ranks == 1 || trainer->world->device_engine->device_memory);
}

static bool replay(vt_trainer *trainer)
{
    vt_engine *engine = trainer->world->device_engine;
    if (trainer->record_anew || !trainer->backend->replay(trainer->backend)) return false;
    vt_gradient_sync_forget(trainer->sync);
    if (engine->replayed != NULL) engine->replayed(engine, trainer->backend);
    return true;
}

static bool record(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    vt_gradient_sync_forget(trainer->sync);
    if (!backend->record_begin(backend)) return false;
    step_body(trainer, batch);
    trainer->record_anew = !backend->record_end(backend);
    return !trainer->record_anew;
}

/* Replays the recorded step where that is possible, otherwise runs it. */
static void run_or_replay(vt_trainer *trainer, const vt_batch *batch)
{
    if (should_replay(trainer, batch) && (replay(trainer) || (record(trainer, batch) && replay(trainer))))
        trainer->steps_replayed++;
    else
        step_body(trainer, batch);
}

vt_status vt_step_start(vt_trainer *trainer, const vt_batch *batch)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    const int slot = (int)(trainer->steps_started % VT_STEPS_AHEAD);
    vt_started_step *started = &trainer->started[slot];
    VT_ASSERT(trainer->pending < VT_STEPS_AHEAD);
    vt_range_begin("data copy in %ld", trainer->step_of_epoch);
    vt_batch here = vt_batch_upload(trainer, batch);
    vt_range_end();
    started->sample_count = batch->sample_count;
    const int64_t rollout = batch->steps > 1 ? batch->steps : 1;
    trainer->record_anew = trainer->record_anew || rollout != trainer->shape.rollout;
    trainer->shape.rollout = rollout;
    started->terms = trainer->shape.last_alone ? 1 : rollout;
    started->source = batch->source;
    const int64_t step = trainer->steps_started + 1;
    const double rate = vt_learning_rate_at(trainer->config, trainer->length, trainer->steps_started);
    started->figures =
        (vt_step_figures){.step = step,
                          .samples = batch->global_count,
                          .waited = batch->waited,
                          .learning_rate = rate,
                          .shown_learning_rate = vt_learning_rate_shown(trainer->config, trainer->length, step),
                          .bad_sample = -1};
    for (int64_t i = 0; i < batch->sample_count; i++) started->samples[i] = batch->samples ? batch->samples[i] : -1;
    if (vt_learning_rate_restarts(trainer->config, trainer->length, trainer->steps_started))
        vt_optimizer_restart(trainer->optimizer);
    vt_optimizer_begin(trainer->optimizer, trainer->steps_started, rate);
    run_or_replay(trainer, &here);
    backend->copy_to_host_later(backend, started->state, trainer->optimizer->state, sizeof *started->state);
    backend->copy_to_host_later(backend, started->losses, trainer->losses, (size_t)batch->sample_count * sizeof(float));
    backend->mark(backend, slot);
    if (backend->shares_host_memory) VT_TRY(backend->check(backend));
    trainer->steps_started++;
    trainer->steps_here++;
    trainer->pending++;
done:
    return status;
}

int64_t vt_step_latency(const vt_trainer *trainer)
{
    return trainer->backend->shares_host_memory ? 0 : VT_STEPS_AHEAD - 1;
}

int64_t vt_trainer_first_sample(const vt_trainer *trainer, int64_t own)
{
    const double rank = trainer->world->rank;
    const bool is_first = vt_world_most(trainer->world, own >= 0 ? -rank : -INFINITY) == -rank;
    return (int64_t)vt_world_most(trainer->world, is_first ? (double)own : -1);
}

/* Collective. Finds the first sample whose target makes the loss infinite, or else the first non-finite one, of the
 * lowest rank that has one, and the first such parameter. */
static void find_nonfinite(vt_trainer *trainer, const vt_started_step *started, vt_step_figures *figures)
{
    int64_t nonfinite = -1, infinite = -1;
    for (int64_t i = started->sample_count - 1; i >= 0; i--) {
        if (!isfinite(started->losses[i])) nonfinite = started->samples[i];
        if (isinf(started->losses[i])) infinite = started->samples[i];
    }
    const char *fault = trainer->loss->infinite;
    figures->bad_sample = fault != NULL ? vt_trainer_first_sample(trainer, infinite) : -1;
    figures->target_fault = figures->bad_sample >= 0 ? fault : NULL;
    if (figures->target_fault == NULL) figures->bad_sample = vt_trainer_first_sample(trainer, nonfinite);
    figures->bad_parameter = vt_optimizer_nonfinite_name(trainer->optimizer, started->state->first_nonfinite);
    if (figures->bad_parameter == NULL) figures->bad_parameter = isfinite(figures->loss) ? "their norm" : "the loss";
}

/* Fails if the data of a sample of this rank are why its loss is not finite. */
static vt_status check_data(const vt_started_step *started)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < started->sample_count && started->source != NULL; i++)
        if (!isfinite(started->losses[i])) VT_TRY(vt_source_check(started->source, started->samples[i]));
done:
    return status;
}

void vt_step_drop(vt_trainer *trainer)
{
    for (; trainer->pending > 0; trainer->pending--)
        (void)trainer->backend->wait(trainer->backend,
                                     (int)((trainer->steps_started - trainer->pending) % VT_STEPS_AHEAD));
}

static vt_status fail_nonfinite(const vt_config *config, const vt_step_figures *figures)
{
    vt_status status = VT_OK;
    VT_CHECK(figures->target_fault == NULL,
             "step %ld: %s, and no update was made. Correct the data, or choose --loss=mse or mae; "
             "--on_nonfinite=skip leaves out single updates",
             figures->step, figures->target_fault);
    VT_CHECK(config->amp_mode != VT_AMP_FP16,
             "step %ld: the gradients are not finite in fp16 (loss %g, first in %s), and the loss scale, %g, has "
             "reached loss_scale_min, so no update was made. A lower --lr, --warmup or --grad_clip=1 often helps; "
             "--amp_mode=bf16 needs no loss scale, and a lower --loss_scale_min lets it fall further",
             figures->step, figures->loss, figures->bad_parameter, figures->loss_scale);
    VT_FAIL("step %ld: the gradients are not finite (loss %g, first in %s), so no update was made. A lower --lr, "
            "--warmup or --grad_clip=1 often helps; --on_nonfinite=skip leaves out single updates",
            figures->step, figures->loss, figures->bad_parameter);
done:
    return status;
}

vt_status vt_step_take(vt_trainer *trainer, vt_step_figures *figures)
{
    vt_status status = VT_OK;
    VT_ASSERT(trainer->pending > 0);
    const int slot = (int)((trainer->steps_started - trainer->pending) % VT_STEPS_AHEAD);
    const vt_started_step *started = &trainer->started[slot];
    trainer->pending--;
    *figures = started->figures;
    VT_TRY(trainer->backend->wait(trainer->backend, slot));
    figures->loss = vt_text_plain_nan(started->state->losses / (double)(figures->samples * started->terms));
    figures->gradient_norm = isfinite(figures->loss) ? vt_text_plain_nan(started->state->gradient_norm) : (double)NAN;
    figures->loss_scale = started->state->loss_scale;
    if (isfinite(figures->gradient_norm)) return VT_OK;
    const bool stops = started->state->stopped;
    find_nonfinite(trainer, started, figures);
    status = vt_world_agree(trainer->world, check_data(started));
    figures->bad_data = status != VT_OK;
    if (status == VT_OK && stops) status = fail_nonfinite(trainer->config, figures);
    if (stops) vt_step_drop(trainer); /* none of them has made an update */
done:
    return status;
}

vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures)
{
    vt_status status = vt_step_start(trainer, batch);
    return status == VT_OK ? vt_step_take(trainer, figures) : status;
}
