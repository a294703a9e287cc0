#include "task/rollout.h"

#include <stdlib.h>

#include "base/memory.h"
#include "config/stages.h"

enum { ZERO, ONE, MINUS_ONE, SEEN, SHARE, REST, CONSTANTS };

/* What is missing in the newest state stays missing in the forecast. */
static bool marks_missing(const vt_config *config)
{
    return config->missing == VT_GAPS_MASK && config->predict != VT_PREDICT_TENDENCY;
}

bool vt_rollout_reads_input(const vt_config *config, vt_rollout_place place)
{
    const bool adds = config->predict == VT_PREDICT_TENDENCY;
    return place.is_first ||
           (place.is_last && (adds || (marks_missing(config) && vt_config_longest_rollout(config) > 1)));
}

static int64_t fields_of(const vt_rollout *rollout, int tensor)
{
    return rollout->task->normalisation[tensor].count;
}

/* The first fields of a forecast, which the input of the next step holds, too. */
static int64_t seen_of(const vt_rollout *rollout)
{
    return vt_config_channels_a_time(rollout->task->config);
}

/* ---- opening ---- */

static vt_status place_constants(vt_rollout *rollout)
{
    vt_status status = VT_OK;
    const float share = 1 / (float)vt_config_members(rollout->task->config);
    const float values[CONSTANTS] = {0, 1, -1, 1, share, share - 1};
    int64_t count = 0; /* of the tensor with most fields */
    for (int t = 0; t < VT_BATCH_TENSORS; t++)
        if (rollout->task->normalisation[t].count > count) count = rollout->task->normalisation[t].count;
    for (int i = 0; i < CONSTANTS; i++) {
        float *host = vt_allocate((size_t)count, sizeof *host, "the rollout");
        for (int64_t c = 0; c < count; c++) host[c] = i != SEEN || c < seen_of(rollout) ? values[i] : 0;
        VT_TRY(vt_floats_place(rollout->backend, host, count, &rollout->constants[i]));
    }
done:
    return status;
}

vt_status vt_rollout_open(const vt_task *task, const vt_model *model, vt_backend *backend, int tensor_count,
                          const vt_tensor_spec *specs, vt_span rows, int64_t most, vt_rollout_place place,
                          vt_rollout **result)
{
    vt_status status = VT_OK;
    vt_rollout *rollout = vt_allocate(1, sizeof *rollout, "the rollout");
    const vt_config *config = task->config;
    *rollout = (vt_rollout){.task = task,
                            .model = model,
                            .backend = backend,
                            .place = place,
                            .tensor_count = tensor_count,
                            .first_row = rows.first};
    for (int t = 0; t < tensor_count; t++) rollout->specs[t] = specs[t];
    rollout->pieces = vt_allocate((size_t)config->n_history + 2, sizeof *rollout->pieces, "the rollout");
    rollout->states = vt_allocate((size_t)most, sizeof *rollout->states, "the rollout");
    rollout->gradients = vt_allocate((size_t)most, sizeof *rollout->gradients, "the rollout");
    VT_CHECK((most == 1 && task->tendency == NULL) || model->kind->rolls_out,
             "model %s can't go on from its own forecasts; use --rollout=1 and --predict=state", model->kind->name);
    if (most > 1 || config->augment == VT_AUGMENT_SIGN || task->noise != NULL || task->tendency != NULL ||
        vt_config_members(config) > 1)
        VT_TRY(place_constants(rollout));
done:
    if (status != VT_OK) vt_rollout_close(&rollout);
    *result = rollout;
    return status;
}

void vt_rollout_close(vt_rollout **pointer)
{
    vt_rollout *rollout = *pointer;
    if (rollout == NULL) return;
    for (int i = 0; i < CONSTANTS; i++) rollout->backend->release(rollout->backend, rollout->constants[i]);
    free(rollout->pieces);
    free(rollout->states);
    free(rollout->gradients);
    free(rollout);
    *pointer = NULL;
}

/* ---- what was read ---- */

/* Numbers of one channel of a sample, of which this rank has its rows. */
static int64_t plane_of(const vt_rollout *rollout)
{
    const vt_tensor_spec *spec = &rollout->specs[VT_TENSOR_INPUT];
    return vt_tensor_values(spec) / spec->shape[0];
}

/* Normalised fields in the back end's memory, [batch, channels, …]. */
static vt_model_tensor normalised(const vt_rollout *rollout, float *fields, int64_t channels)
{
    return (vt_model_tensor){.values = fields,
                             .channels = channels,
                             .mean = rollout->constants[ZERO],
                             .inverse_std = rollout->constants[ONE]};
}

static vt_model_tensor tensor_of(const vt_rollout *rollout, const vt_batch *batch, int64_t first, int tensor)
{
    const vt_normalisation *as = &rollout->task->normalisation[tensor];
    const vt_tensor_spec *spec = &rollout->specs[tensor];
    const int64_t of_each = spec->dimensions > 3 ? spec->shape[0] : 1; /* targets and forcings of each step */
    return (vt_model_tensor){.values = vt_batch_tensor(batch, rollout->specs, tensor, first),
                             .channels = as->count,
                             .mean = as->mean,
                             .inverse_std = as->inverse_std,
                             .sample_channels = of_each * as->count};
}

/* Does training change the sign of fields? */
static bool flips(const vt_rollout *rollout, const vt_pass *pass)
{
    return pass->training && rollout->task->config->augment == VT_AUGMENT_SIGN;
}

/* What is seen in place of the tensor: so many copies of each sample's normalised fields, some with another sign, and
 * noise on them. */
static vt_model_tensor disturbed(const vt_rollout *rollout, const vt_pass *pass, const vt_model_tensor *tensor,
                                 int64_t copies, bool changes_sign, const float *noise)
{
    const int64_t plane = plane_of(rollout), width = rollout->task->config->img_size[1];
    const vt_disturbance how = {.seed = pass->seed,
                                .first_sample = pass->first_sample / (uint32_t)vt_pass_members(pass),
                                .flips = changes_sign,
                                .copies = copies,
                                .samples = vt_pass_samples(pass),
                                .channels = tensor->channels,
                                .rows = plane / width,
                                .width = width,
                                .first_row = rollout->first_row,
                                .sample_stride = vt_model_tensor_stride(tensor) * plane};
    vt_matrix fields = vt_pass_push_float32(pass, vt_pass_samples(pass) * copies * tensor->channels, plane);
    pass->backend->fields_disturb(pass->backend, &how, pass->step, tensor->values, tensor->mean, tensor->inverse_std,
                                  noise, fields.data);
    return normalised(rollout, fields.data, tensor->channels);
}

static float *push_zeros(const vt_rollout *rollout, const vt_pass *pass)
{
    vt_matrix fields =
        vt_pass_push_float32(pass, pass->batch * fields_of(rollout, VT_TENSOR_TARGET), plane_of(rollout));
    vt_matrix_clear(pass->backend, fields);
    return fields.data;
}

void vt_rollout_begin(vt_rollout *rollout, const vt_pass *pass, const vt_batch *batch, int64_t first, int64_t steps)
{
    const vt_config *config = rollout->task->config;
    const bool reads = vt_rollout_reads_input(config, rollout->place);
    const bool gradients =
        config->rollout_gradient == VT_ROLLOUT_GRADIENT_ALL && (rollout->place.is_first || rollout->place.is_last);
    const float *noise = pass->training ? rollout->task->noise : NULL;
    const int64_t members = vt_pass_members(pass);
    for (int t = 0; t < rollout->tensor_count; t++)
        rollout->given[t] = rollout->read[t] = tensor_of(rollout, batch, first, t);
    if (reads && (flips(rollout, pass) || noise != NULL || members > 1))
        rollout->read[VT_TENSOR_INPUT] =
            disturbed(rollout, pass, &rollout->given[VT_TENSOR_INPUT], members, flips(rollout, pass), noise);
    for (int64_t i = 0; i + 1 < steps; i++) {
        /* nothing is NaN among the rows of other ranks' tokens */
        rollout->states[i] = reads ? push_zeros(rollout, pass) : NULL;
        rollout->gradients[i] = gradients ? push_zeros(rollout, pass) : NULL;
    }
    rollout->steps = steps;
}

/* ---- a step ---- */

static vt_model_tensor from_channel(const vt_rollout *rollout, vt_model_tensor tensor, int64_t first, int64_t channels)
{
    tensor.sample_channels = vt_model_tensor_stride(&tensor);
    tensor.channels = channels;
    if (tensor.values != NULL) tensor.values = (const float *)tensor.values + first * plane_of(rollout);
    return tensor;
}

void vt_rollout_step(vt_rollout *rollout, const vt_pass *pass, int64_t step)
{
    const int64_t times = rollout->task->config->n_history + 1, seen = seen_of(rollout);
    const int64_t forecast = step < times ? step : times; /* times of the input that were predicted */
    vt_model_tensor *pieces = rollout->pieces;
    rollout->step = step;
    for (int t = VT_TENSOR_TARGET; t < rollout->tensor_count; t++)
        rollout->tensors[t] =
            from_channel(rollout, rollout->read[t], step * fields_of(rollout, t), fields_of(rollout, t));
    for (int t = VT_TENSOR_FORCINGS; t < rollout->tensor_count && vt_pass_members(pass) > 1; t++)
        rollout->tensors[t] = disturbed(rollout, pass, &rollout->tensors[t], vt_pass_members(pass), false, NULL);
    rollout->tensors[VT_TENSOR_INPUT] = rollout->read[VT_TENSOR_INPUT];
    if (step == 0) return;
    for (int64_t i = 0; i < forecast; i++) { /* the newest first */
        pieces[i] = normalised(rollout, rollout->states[step - 1 - i], fields_of(rollout, VT_TENSOR_TARGET));
        pieces[i] = from_channel(rollout, pieces[i], 0, seen);
        pieces[i].gradient = rollout->gradients[step - 1 - i];
        pieces[i].more = i + 1 < times ? &pieces[i + 1] : NULL;
    }
    if (forecast < times)
        pieces[forecast] = from_channel(rollout, rollout->read[VT_TENSOR_INPUT], 0, (times - forecast) * seen);
    rollout->tensors[VT_TENSOR_INPUT] = pieces[0];
}

/* The fields [batch, fields of the target, …] that begin with those of `now`, normalised; the others are 0. */
static vt_model_tensor with_zeros(const vt_rollout *rollout, const vt_pass *pass, const vt_model_tensor *now)
{
    const int64_t plane = plane_of(rollout), width = rollout->task->config->img_size[1];
    const int64_t channels = fields_of(rollout, VT_TENSOR_TARGET), stride = vt_model_tensor_stride(now) * plane;
    const vt_disturbance none = {.copies = 1,
                                 .samples = 1,
                                 .channels = now->channels,
                                 .rows = plane / width,
                                 .width = width,
                                 .first_row = rollout->first_row,
                                 .sample_stride = stride};
    float *fields = push_zeros(rollout, pass);
    for (int64_t i = 0; i < pass->batch; i++) {
        const float *own = now->values != NULL ? (const float *)now->values + i * stride : NULL; /* of a dry run */
        pass->backend->fields_disturb(pass->backend, &none, pass->step, own, now->mean, now->inverse_std, NULL,
                                      fields + i * channels * plane);
    }
    return normalised(rollout, fields, channels);
}

/* The input's newest state in the rows and columns of the model's output; what the input doesn't hold is 0. */
static vt_matrix newest(const vt_rollout *rollout, const vt_pass *pass)
{
    const int64_t channels = fields_of(rollout, VT_TENSOR_TARGET), seen = seen_of(rollout);
    vt_model_tensor now = rollout->tensors[VT_TENSOR_INPUT];
    now = from_channel(rollout, now, 0, seen < channels ? seen : channels);
    if (seen < channels) now = with_zeros(rollout, pass, &now);
    return vt_model_lay_out(rollout->model, pass, &now);
}

vt_matrix vt_rollout_state(const vt_rollout *rollout, const vt_pass *pass, vt_matrix output)
{
    vt_backend *backend = pass->backend;
    float *const *bounds = rollout->task->bounds, *tendency = rollout->task->tendency;
    const int64_t channels = fields_of(rollout, VT_TENSOR_TARGET);
    vt_matrix state = tendency != NULL ? newest(rollout, pass) : output;
    if (tendency != NULL) backend->scaled_add(backend, output, tendency, channels, state, state);
    if (bounds[0] != NULL) backend->limit(backend, state, bounds[0], bounds[1], channels, (vt_matrix){0});
    return state;
}

vt_matrix vt_rollout_target(const vt_rollout *rollout, const vt_pass *pass)
{
    const vt_pass of_samples = vt_pass_of_samples(pass);
    vt_model_tensor target = rollout->tensors[VT_TENSOR_TARGET];
    if (flips(rollout, pass)) target = disturbed(rollout, pass, &target, 1, true, NULL);
    return vt_model_lay_out(rollout->model, &of_samples, &target);
}

vt_matrix vt_rollout_mean(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state)
{
    vt_backend *backend = pass->backend;
    const int64_t members = vt_pass_members(pass), samples = vt_pass_samples(pass), rows = state.rows / pass->batch;
    if (members == 1) return state;
    vt_matrix mean = vt_pass_push_float32(pass, samples * rows, state.columns);
    for (int64_t i = 0; i < samples * members; i++) {
        const bool is_first = i % members == 0; /* x + (share - 1) x, then + share x of the others */
        const vt_matrix own = vt_matrix_rows(state, i * rows, rows);
        const vt_matrix sum = vt_matrix_rows(mean, i / members * rows, rows);
        backend->scaled_add(backend, own, rollout->constants[is_first ? REST : SHARE], 1, is_first ? own : sum, sum);
    }
    return mean;
}

vt_matrix vt_rollout_fields(const vt_rollout *rollout, const vt_pass *pass, float *fields)
{
    return vt_matrix_make(fields, pass->batch * fields_of(rollout, VT_TENSOR_TARGET), plane_of(rollout));
}

vt_matrix vt_rollout_keep(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state)
{
    vt_backend *backend = pass->backend;
    float *const *constants = rollout->constants, *fields = rollout->states[rollout->step];
    if (marks_missing(rollout->task->config)) { /* newest + (state - newest) */
        const vt_matrix now = newest(rollout, pass), change = vt_pass_push_float32(pass, now.rows, now.columns);
        backend->scaled_add(backend, now, constants[MINUS_ONE], 1, state, change);
        backend->scaled_add(backend, change, constants[ONE], 1, now, change);
        state = change;
    }
    if (fields == NULL) fields = push_zeros(rollout, pass);
    const vt_patch_grid grid = rollout->model->kind->prediction_grid(rollout->model, pass->batch);
    backend->patches_store(backend, &grid, state, constants[ZERO], constants[ONE], fields);
    return vt_rollout_fields(rollout, pass, fields);
}

/* ---- backward ---- */

vt_matrix vt_rollout_gradient_place(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state)
{
    if (rollout->task->bounds[0] != NULL || pass->crps != NULL)
        return vt_pass_push_float32(pass, state.rows, state.columns);
    if (pass->type == VT_FLOAT32 || rollout->steps > 1 || rollout->task->tendency != NULL) return state;
    return vt_pass_push(pass, state.rows, state.columns);
}

vt_matrix vt_rollout_backward(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state, vt_matrix dstate)
{
    vt_backend *backend = pass->backend;
    float *const *bounds = rollout->task->bounds;
    const vt_model_kind *model = rollout->model->kind;
    const int64_t channels = fields_of(rollout, VT_TENSOR_TARGET);
    const vt_model_tensor *input = &rollout->tensors[VT_TENSOR_INPUT];
    const float *tendency = rollout->task->tendency;
    float *later = rollout->step + 1 < rollout->steps ? rollout->gradients[rollout->step] : NULL;
    if (later != NULL) {
        const vt_model_tensor gradient = normalised(rollout, later, channels);
        const vt_matrix rows = vt_model_lay_out(rollout->model, pass, &gradient);
        backend->scaled_add(backend, rows, rollout->constants[ONE], 1, dstate, dstate);
    }
    if (bounds[0] != NULL) backend->limit(backend, state, bounds[0], bounds[1], channels, dstate);
    if (tendency != NULL && input->gradient != NULL) {
        vt_matrix dnewest = dstate;
        if (seen_of(rollout) < channels) {
            dnewest = vt_pass_push_float32(pass, dstate.rows, dstate.columns);
            backend->scaled_add(backend, dstate, rollout->constants[SEEN], channels, (vt_matrix){0}, dnewest);
        }
        vt_patch_grid grid = model->prediction_grid(rollout->model, pass->batch);
        grid.field_channels = vt_model_tensor_stride(input);
        backend->patches_load_backward(backend, &grid, dnewest, input->values, input->gradient);
    }
    if (tendency == NULL && dstate.type == pass->type) return dstate;
    vt_matrix doutput = vt_pass_push(pass, dstate.rows, dstate.columns);
    if (tendency != NULL)
        backend->scaled_add(backend, dstate, tendency, channels, (vt_matrix){0}, doutput);
    else
        backend->convert(backend, dstate, doutput);
    return doutput;
}
