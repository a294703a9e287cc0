#include "training/stage.h"

#include "base/clock.h"
#include "data/batch.h"

vt_status vt_stage_open(const vt_config *config, const vt_world *world, vt_parameters *parameters,
                        vt_pipeline_stage *stage)
{
    vt_status status = VT_OK;
    const int place = vt_world_coordinate(world, VT_AXIS_PIPELINE);
    vt_split split = {0};
    *stage = (vt_pipeline_stage){.units = vt_parameters_units(parameters), .place = {true, true}};
    if (config->pipeline_parallel == 1) return VT_OK;
    VT_TRY(vt_split_open(config, &split));
    stage->units = split.units[place];
    stage->place = (vt_rollout_place){.is_first = place == 0, .is_last = place + 1 == split.stages};
    stage->columns[0] = place > 0 ? split.columns[place - 1] : 0;
    stage->columns[1] = split.columns[place];
    vt_parameters_keep_units(parameters, stage->units);
done:
    vt_split_close(&split);
    return status;
}

unsigned vt_stage_unread(const vt_config *config, const vt_world *world, bool training)
{
    const int64_t place = vt_world_coordinate(world, VT_AXIS_PIPELINE);
    const vt_rollout_place at = {.is_first = place == 0, .is_last = place + 1 == config->pipeline_parallel};
    const bool compares = at.is_last && !training;
    unsigned unread = 0;
    if (!vt_rollout_reads_input(config, at) && !compares) unread |= 1u << VT_TENSOR_INPUT;
    if (!at.is_first) unread |= 1u << VT_TENSOR_FORCINGS;
    if (!at.is_last) unread |= 1u << VT_TENSOR_TARGET;
    return unread;
}

/* The last stage is the second of the two. */
static vt_status connect_ends(vt_world *world, vt_backend *backend, int64_t elements, vt_pipeline_stage *stage)
{
    vt_status status = VT_OK;
    vt_group *forward = NULL, *back = NULL;
    VT_TRY(vt_world_ends(world, VT_AXIS_PIPELINE, "forecasts", backend, &forward));
    VT_TRY(vt_world_ends(world, VT_AXIS_PIPELINE, "forecasts' gradients", backend, &back));
    if (forward->size == 1) return VT_OK;
    const bool is_first = forward->rank == 0;
    VT_TRY(vt_link_open(forward, VT_FLOAT32, elements, "forecasts",
                        is_first ? &stage->forecast_in : &stage->forecast_out));
    VT_TRY(vt_link_open(back, VT_FLOAT32, elements, "forecasts' gradients",
                        is_first ? &stage->forecast_gradient_out : &stage->forecast_gradient_in));
done:
    return status;
}

vt_status vt_stage_connect(const vt_config *config, vt_world *world, vt_backend *backend, int64_t rows,
                           int64_t forecast, vt_pipeline_stage *stage)
{
    vt_status status = VT_OK;
    const vt_type type = config->pipeline_comm == VT_PIPELINE_BF16 ? VT_BFLOAT16 : VT_FLOAT32;
    if (config->pipeline_parallel == 1) return VT_OK;
    for (int parity = 0; parity < 2; parity++) { /* of the first of two stages: all connect in the same order */
        vt_group *forward = NULL, *back = NULL;
        VT_TRY(vt_world_neighbours(world, VT_AXIS_PIPELINE, parity, NULL, backend, &forward));
        VT_TRY(vt_world_neighbours(world, VT_AXIS_PIPELINE, parity, "gradients", backend, &back));
        const bool is_behind = forward->rank == 0; /* the other one of the two */
        const int64_t elements = rows * stage->columns[is_behind];
        if (forward->size == 1) continue;
        VT_TRY(
            vt_link_open(forward, type, elements, "activations", is_behind ? &stage->stream_out : &stage->stream_in));
        VT_TRY(vt_link_open(back, type, elements, "gradients", is_behind ? &stage->gradient_in : &stage->gradient_out));
    }
    if (forecast > 0) VT_TRY(connect_ends(world, backend, forecast, stage));
done:
    return status;
}

void vt_stage_close(vt_pipeline_stage *stage)
{
    vt_link_close(&stage->stream_in);
    vt_link_close(&stage->stream_out);
    vt_link_close(&stage->gradient_in);
    vt_link_close(&stage->gradient_out);
    vt_link_close(&stage->forecast_in);
    vt_link_close(&stage->forecast_out);
    vt_link_close(&stage->forecast_gradient_in);
    vt_link_close(&stage->forecast_gradient_out);
}

void vt_stage_begin(vt_pipeline_stage *stage, int64_t step, const vt_step_counts *counts, int64_t rows,
                    vt_sync_trace *trace)
{
    const int64_t cycle = counts->micro_batches;
    stage->trace = stage->place.is_first && stage->place.is_last ? NULL : trace;
    stage->since = vt_clock_seconds();
    stage->taken = 0;
    if (!stage->place.is_first)
        vt_link_expect(&stage->stream_in, step, counts->forwards, cycle, rows * stage->columns[0]);
    if (!stage->place.is_last)
        vt_link_expect(&stage->gradient_in, step, counts->backwards, cycle, rows * stage->columns[1]);
    if (stage->forecast_in.group != NULL)
        vt_link_expect(&stage->forecast_in, step, counts->forecasts, cycle, stage->forecast_in.elements);
    if (stage->forecast_gradient_in.group != NULL)
        vt_link_expect(&stage->forecast_gradient_in, step, counts->gradients, cycle,
                       stage->forecast_gradient_in.elements);
}

void vt_stage_finish(vt_pipeline_stage *stage)
{
    vt_link_finish(&stage->stream_out);
    vt_link_finish(&stage->gradient_out);
    vt_link_finish(&stage->forecast_out);
    vt_link_finish(&stage->forecast_gradient_out);
}

void vt_stage_note(vt_pipeline_stage *stage, const char *what, int64_t micro_batch)
{
    vt_sync_trace_note(stage->trace, what, micro_batch, 0, stage->since);
    stage->since = vt_clock_seconds();
}

static void take(vt_pipeline_stage *stage, vt_link *link, vt_matrix matrix)
{
    const int64_t micro_batch = vt_link_next(link);
    const int64_t bytes = link->elements * (int64_t)vt_type_size(link->type);
    const double begin = vt_clock_seconds();
    vt_link_receive(link, matrix);
    vt_sync_trace_note(stage->trace, "receive", micro_batch, bytes, begin);
    stage->since = vt_clock_seconds();
}

vt_matrix vt_stage_take_stream(vt_pipeline_stage *stage, const vt_pass *pass)
{
    if (stage->place.is_first) return (vt_matrix){0};
    vt_matrix stream = vt_pass_push_wide(pass, vt_pass_rows(pass), stage->columns[0]);
    take(stage, &stage->stream_in, stream);
    return stream;
}

vt_matrix vt_stage_take_gradient(vt_pipeline_stage *stage, const vt_pass *pass)
{
    vt_matrix gradient = vt_pass_push_wide(pass, vt_pass_rows(pass), stage->columns[1]);
    take(stage, &stage->gradient_in, gradient);
    return gradient;
}

void vt_stage_pass_stream(vt_pipeline_stage *stage, vt_matrix stream)
{
    vt_link_send(&stage->stream_out, stream);
}

void vt_stage_pass_gradient(vt_pipeline_stage *stage, vt_matrix gradient)
{
    if (!stage->place.is_first) vt_link_send(&stage->gradient_out, gradient);
}

void vt_stage_pass_forecast(vt_pipeline_stage *stage, vt_matrix fields)
{
    if (stage->forecast_out.group != NULL) vt_link_send(&stage->forecast_out, fields);
}

void vt_stage_pass_forecast_gradient(vt_pipeline_stage *stage, vt_matrix gradient)
{
    if (stage->forecast_gradient_out.group != NULL) vt_link_send(&stage->forecast_gradient_out, gradient);
}

void vt_stage_take_forecast(vt_pipeline_stage *stage, vt_matrix fields)
{
    take(stage, &stage->forecast_in, fields);
}

void vt_stage_take_forecast_gradient(vt_pipeline_stage *stage, vt_matrix gradient)
{
    take(stage, &stage->forecast_gradient_in, gradient);
}
