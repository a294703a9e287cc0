#include <stdlib.h>

#include "base/memory.h"
#include "config/roles.h"
#include "config/stages.h"
#include "model/model.h"

#define DECLARE(name, ...) extern const vt_model_kind vt_model_##name;
VT_MODELS(DECLARE)

#define ROW(name, ...) &vt_model_##name,
static const vt_model_kind *const kinds[] = {VT_MODELS(ROW)};

const vt_model_kind *vt_model_kind_of(const vt_config *config)
{
    return kinds[config->model];
}

vt_span vt_model_part(const vt_config *config, const vt_layout *layout, int rank)
{
    const vt_model_kind *kind = vt_model_kind_of(config);
    return kind->part_needed(config, vt_parallel_tokens(layout, rank, config->sequence_parallel, kind->tokens(config)));
}

vt_status vt_model_check_heads(const vt_config *config, const vt_backend *backend)
{
    vt_status status = VT_OK;
    const int64_t dim = config->embed_dim, heads = config->num_heads;
    const int64_t most = backend != NULL ? backend->most_head_columns : 0;
    if (most == 0 || dim <= most * heads) return VT_OK;
    int64_t enough = (dim + most - 1) / most;
    while (dim % enough != 0 || enough % config->tensor_parallel != 0) enough++;
    VT_FAIL("num_heads %ld cuts embed_dim %ld into heads of %ld columns; attention on a GPU takes heads of up to "
            "%ld: use --num_heads=%ld, or --device=cpu",
            heads, dim, dim / heads, most, enough);
done:
    return status;
}

vt_status vt_model_check(const vt_config *config, const vt_backend *backend)
{
    vt_status status = VT_OK;
    const vt_model_kind *kind = vt_model_kind_of(config);
    const int64_t ranks[] = {config->tensor_parallel, config->context_parallel, config->pipeline_parallel};
    static const char *const options[] = {"tensor_parallel", "context_parallel", "pipeline_parallel"};
    static const vt_axis axes[] = {VT_AXIS_TENSOR, VT_AXIS_CONTEXT, VT_AXIS_PIPELINE};
    for (int i = 0; i < 3; i++)
        VT_CHECK(ranks[i] == 1 || (kind->axes & VT_AXES(axes[i])) != 0,
                 "%s %ld: model %s can't be split this way; use --%s=1", options[i], ranks[i], kind->name, options[i]);
    VT_CHECK(kind->takes_forcings || vt_config_forcing_channels(config) == 0,
             "forcings and static_fields: model %s takes none; leave them out", kind->name);
    VT_CHECK(config->offload_activations == VT_OFFLOAD_NONE || kind->blocks != NULL,
             "offload_activations host: model %s has no blocks, whose activations could be taken away; use "
             "--offload_activations=none",
             kind->name);
    VT_CHECK(config->offload_activations == VT_OFFLOAD_NONE || backend == NULL || !backend->shares_host_memory,
             "offload_activations host takes activations from a GPU's memory to the host's, where the CPU has them "
             "anyway; use --offload_activations=none, or --device=cuda");
    if (kind->check != NULL) VT_TRY(kind->check(config, backend));
done:
    return status;
}

vt_status vt_model_open(const vt_config *config, vt_parameters *parameters, vt_model **model)
{
    vt_status status = VT_OK;
    const vt_model_kind *kind = vt_model_kind_of(config);
    /* a forecast's gradient goes on to the step before it, through all units */
    const bool through = vt_config_longest_rollout(config) > 1 && config->rollout_gradient != VT_ROLLOUT_GRADIENT_LAST;
    VT_TRY(kind->open(config, parameters, model));
    (*model)->kind = kind;
    (*model)->config = config;
    (*model)->parameters = parameters;
    (*model)->parallel = parameters->parallel;
    VT_TRY(vt_parameters_freeze(parameters, config->freeze));
    if (!through) (*model)->first_trained = parameters->first_trained;
done:
    return status;
}

void vt_model_close(vt_model **model)
{
    free(*model);
    *model = NULL;
}

vt_span vt_model_blocks(const vt_model *model)
{
    const vt_span units = model->parameters->units;
    const int64_t blocks = model->kind->blocks != NULL ? model->kind->blocks(model->config) : 0;
    const int64_t first = units.first > 1 ? units.first : 1, end = units.first + units.count;
    return (vt_span){first, (end < blocks + 1 ? end : blocks + 1) - first};
}

void vt_saved_open(const vt_model *model, vt_span units, vt_saved **saved)
{
    *saved = vt_allocate(1, model->saved_bytes, "the model");
    (*saved)->units = units;
}

void vt_saved_close(vt_saved **saved)
{
    free(*saved);
    *saved = NULL;
}

/* The units that backward runs through, of these. */
static vt_span backward_units(const vt_model *model, vt_span units)
{
    const int64_t end = units.first + units.count;
    const int64_t first = units.first > model->first_trained ? units.first : model->first_trained;
    return (vt_span){first, end > first ? end - first : 0};
}

/* Asks for a unit's parameters; those of the next unit of the pass may be fetched meanwhile. */
static void need(const vt_model *model, vt_span units, int64_t unit, bool backward)
{
    int64_t next = backward ? unit - 1 : unit + 1;
    bool is_last = next < units.first || next >= units.first + units.count;
    const vt_parameters_hooks *hooks = &model->parameters->hooks;
    if (hooks->needed != NULL) hooks->needed(hooks->context, unit, is_last ? -1 : next, backward);
}

vt_matrix vt_model_forward(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensors, vt_matrix in,
                           vt_saved *saved)
{
    const vt_span units = saved->units;
    for (int64_t unit = units.first; unit < units.first + units.count; unit++) {
        need(model, units, unit, false);
        vt_offload_begin_forward(pass->offload, unit);
        in = model->kind->forward(model, pass, unit, tensors, in, saved);
        if (vt_model_keeps(model, pass, unit)) vt_offload_end_forward(pass->offload, unit);
    }
    return in;
}

void vt_model_backward_begin(const vt_model *model, const vt_saved *saved)
{
    const vt_span units = backward_units(model, saved->units);
    if (units.count > 0) need(model, units, units.first + units.count - 1, true);
}

vt_matrix vt_model_backward(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensors, vt_matrix dout,
                            vt_saved *saved)
{
    const vt_span units = backward_units(model, saved->units);
    const vt_parameters_hooks *hooks = &model->parameters->hooks;
    const int64_t last = units.first + units.count - 1;
    for (int64_t unit = last; unit >= units.first; unit--) {
        size_t mark = pass->arena->used;
        if (unit < last) need(model, units, unit, true);
        vt_offload_begin_backward(pass->offload, unit);
        dout = model->kind->backward(model, pass, unit, tensors, dout, saved);
        if (hooks->gradients_ready != NULL) hooks->gradients_ready(hooks->context, unit);
        vt_arena_pop(pass->arena, mark);
    }
    return dout;
}

void vt_model_visit(const vt_model *model, const vt_saved *saved)
{
    const vt_span units = saved->units;
    for (int64_t unit = units.first; unit < units.first + units.count; unit++) need(model, units, unit, false);
}

vt_matrix vt_model_lay_out(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensor)
{
    if (model->kind->lay_out != NULL) return model->kind->lay_out(model, pass, tensor);
    vt_patch_grid grid = model->kind->prediction_grid(model, pass->batch);
    grid.field_channels = vt_model_tensor_stride(tensor);
    vt_matrix rows = vt_pass_push_float32(pass, grid.batch * grid.tokens, grid.channels * grid.patch * grid.patch);
    pass->backend->patches_load(pass->backend, &grid, tensor->values, tensor->mean, tensor->inverse_std, rows);
    return rows;
}

vt_matrix vt_model_restore(const vt_model *model, const vt_pass *pass, vt_matrix rows, const float *mean,
                           const float *inverse_std)
{
    const vt_parallel *parallel = model->parallel;
    vt_patch_grid grid = model->kind->prediction_grid(model, pass->batch);
    if (parallel->tokens->size > 1) {
        VT_ASSERT(pass->batch == 1);
        vt_matrix whole = vt_arena_push_matrix(pass->arena, rows.type, parallel->token_count, rows.columns);
        rows = vt_region_enter(parallel, pass->arena, 1, rows);
        vt_region_gather(parallel->context, parallel->context_spans, pass->arena, 1, rows, whole);
        rows = whole;
        grid.tokens = parallel->token_count;
        grid.first_token = 0;
        grid.height = model->kind->part_needed(model->config, (vt_span){0, grid.tokens}).count;
    }
    vt_matrix fields = vt_pass_push_float32(pass, grid.batch * grid.channels, grid.height * grid.width);
    pass->backend->patches_store(pass->backend, &grid, rows, mean, inverse_std, fields.data);
    return fields;
}
