/* A stage of a pipeline. */
#include "base/clock.h"
#include "training/trainer_inside.h"

static vt_rollout_place place_of(const vt_config *config, const vt_world *world)
{
    const int64_t place = world->coordinate[VT_AXIS_PIPELINE];
    return (vt_rollout_place){.is_first = place == 0, .is_last = place + 1 == config->pipeline_parallel};
}

vt_status vt_stage_open(const vt_config *config, const vt_world *world, vt_parameters *parameters,
                        vt_pipeline_stage *stage)
{
    vt_status status = VT_OK;
    const int place = world->coordinate[VT_AXIS_PIPELINE];
    vt_split split = {0};
    *stage = (vt_pipeline_stage){.units = parameters->units, .place = place_of(config, world)};
    if (config->pipeline_parallel == 1) return VT_OK;
    VT_TRY(vt_split_open(config, &split));
    stage->units = split.units[place];
    stage->columns[0] = place > 0 ? split.columns[place - 1] : 0;
    stage->columns[1] = split.columns[place];
    vt_parameters_keep_units(parameters, stage->units);
done:
    vt_split_close(&split);
    return status;
}

unsigned vt_stage_unread(const vt_config *config, const vt_world *world, bool training)
{
    const vt_rollout_place at = place_of(config, world);
    const bool compares = at.is_last && !training;
    unsigned unread = 0;
    if (!vt_rollout_reads_input(config, at) && !compares) unread |= 1u << VT_TENSOR_INPUT;
    if (!at.is_first) unread |= 1u << VT_TENSOR_FORCINGS;
    if (!at.is_last) unread |= 1u << VT_TENSOR_TARGET;
    return unread;
}

/* Collective. The link from stage `sender` to stage `receiver`, of which this stage has an end if it is one of the two
 * and both are there; elements 0: nothing is sent. */
static vt_status link_stages(vt_world *world, vt_backend *backend, vt_pipeline_stage *stage, vt_sent what, int sender,
                             int receiver, vt_type type, int64_t elements)
{
    static const char *const contents[] = {"activations", "gradients", "forecasts", "forecasts' gradients"};
    vt_status status = VT_OK;
    const bool sends = world->coordinate[VT_AXIS_PIPELINE] == sender;
    const int first = sender < receiver ? sender : receiver, second = sender < receiver ? receiver : sender;
    vt_group *group = NULL;
    VT_TRY(vt_world_pair(world, first, second, what == VT_SENT_STREAM ? NULL : contents[what], backend, &group));
    if (elements > 0)
        status = vt_link_open(group, type, elements, contents[what], &(sends ? stage->out : stage->in)[what]);
    status = vt_world_agree(world, status); /* memory may be short on one rank alone, and all make the next pair */
done:
    return status;
}

vt_status vt_stage_connect(const vt_config *config, vt_world *world, vt_backend *backend, int64_t rows,
                           int64_t forecast, vt_pipeline_stage *stage)
{
    vt_status status = VT_OK;
    const vt_type type = config->pipeline_comm == VT_PIPELINE_BF16 ? VT_BFLOAT16 : VT_FLOAT32;
    const int own = world->coordinate[VT_AXIS_PIPELINE], last = world->layout.size[VT_AXIS_PIPELINE] - 1;
    if (last == 0) return VT_OK;
    for (int parity = 0; parity < 2; parity++) { /* of the first of two stages: all connect in the same order */
        const int first = own % 2 == parity ? own : own - 1;
        const bool is_behind = own == first; /* the other one of the two */
        const int64_t elements = rows * stage->columns[is_behind];
        const int64_t boundary =
            stage->units.first + (is_behind ? stage->units.count : 0); /* the later stage's first unit */
        VT_TRY(link_stages(world, backend, stage, VT_SENT_STREAM, first, first + 1, type, elements));
        VT_TRY(link_stages(world, backend, stage, VT_SENT_GRADIENT, first + 1, first, type,
                           stage->first_trained < boundary ? elements : 0));
    }
    if (forecast == 0) goto done;
    VT_TRY(link_stages(world, backend, stage, VT_SENT_FORECAST, last, 0, VT_FLOAT32, forecast));
    VT_TRY(link_stages(world, backend, stage, VT_SENT_FORECAST_GRADIENT, 0, last, VT_FLOAT32, forecast));
done:
    return status;
}

void vt_stage_close(vt_pipeline_stage *stage)
{
    for (int i = 0; i < VT_SENT_COUNT; i++) {
        vt_link_close(&stage->in[i]);
        vt_link_close(&stage->out[i]);
    }
}

void vt_stage_begin(vt_pipeline_stage *stage, int64_t step, const vt_step_counts *counts, int64_t rows,
                    vt_sync_trace *trace)
{
    const int64_t numbers[] = {counts->forwards, counts->backwards, counts->forecasts, counts->gradients};
    stage->trace = stage->place.is_first && stage->place.is_last ? NULL : trace;
    stage->since = vt_clock_seconds();
    stage->taken = 0;
    for (int i = 0; i < VT_SENT_COUNT; i++) {
        vt_link *link = &stage->in[i];
        const int64_t elements = i <= VT_SENT_GRADIENT ? rows * stage->columns[i] : link->elements;
        if (link->group != NULL) vt_link_expect(link, step, numbers[i], counts->micro_batches, elements);
    }
}

void vt_stage_finish(vt_pipeline_stage *stage)
{
    for (int i = 0; i < VT_SENT_COUNT; i++) vt_request_wait(&stage->out[i].request); /* all has been sent */
}

void vt_stage_note(vt_pipeline_stage *stage, const char *what, int64_t micro_batch)
{
    vt_sync_trace_note(stage->trace, what, micro_batch, 0, stage->since);
    stage->since = vt_clock_seconds();
}

void vt_stage_take(vt_pipeline_stage *stage, vt_sent what, vt_matrix matrix)
{
    vt_link *link = &stage->in[what];
    const int64_t micro_batch = vt_link_next(link);
    const int64_t bytes = link->elements * (int64_t)vt_type_size(link->type);
    const double begin = vt_clock_seconds();
    vt_link_receive(link, matrix);
    vt_sync_trace_note(stage->trace, "receive", micro_batch, bytes, begin);
    stage->since = vt_clock_seconds();
}

vt_matrix vt_stage_receive(vt_pipeline_stage *stage, const vt_pass *pass, vt_sent what)
{
    if (stage->in[what].group == NULL) return (vt_matrix){0};
    vt_matrix matrix = vt_pass_push_float32(pass, vt_pass_rows(pass), stage->columns[what]);
    vt_stage_take(stage, what, matrix);
    return matrix;
}

void vt_stage_pass(vt_pipeline_stage *stage, vt_sent what, vt_matrix matrix)
{
    if (stage->out[what].group != NULL) vt_link_send(&stage->out[what], matrix);
}
