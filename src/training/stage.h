/* A stage of a pipeline: which units of the model this rank has, and what it sends to the stages before and behind it.
 * A model that is not split is one stage, which sends nothing. */
#ifndef VT_TRAINING_STAGE_H
#define VT_TRAINING_STAGE_H

#include "model/split.h"
#include "optimizer/sync_trace.h"
#include "parallel/link.h"
#include "task/rollout.h"
#include "training/schedule.h"

typedef struct {
    vt_span units;
    vt_rollout_place place;
    int64_t columns[2]; /* of the stream in front of the stage and behind it */
    vt_link stream_in, stream_out, gradient_in, gradient_out;
    /* Between the last stage and the first: forecasts, which are the next step's input, and their gradients. */
    vt_link forecast_in, forecast_out, forecast_gradient_in, forecast_gradient_out;
    int64_t taken;        /* of them, in this step */
    vt_sync_trace *trace; /* of the current step; NULL: none */
    double since;         /* the end of what the trace noted last */
} vt_pipeline_stage;

/* The place of this rank. The parameters of other stages' units are left out of the registry's memory. */
vt_status vt_stage_open(const vt_config *config, const vt_world *world, vt_parameters *parameters,
                        vt_pipeline_stage *stage);

/* The tensors that this rank does without, as bits 1 << VT_TENSOR_…: the first stage needs no targets, and others need
 * inputs only where the last one adds to them or compares with them. */
unsigned vt_stage_unread(const vt_config *config, const vt_world *world, bool training);

/* Collective. Connects the stages; rows: of the stream of a micro-batch. forecast: the numbers of a micro-batch's
 * predicted fields, if the last stage sends them to the first; else 0. */
vt_status vt_stage_connect(const vt_config *config, vt_world *world, vt_backend *backend, int64_t rows,
                           int64_t forecast, vt_pipeline_stage *stage);
void vt_stage_close(vt_pipeline_stage *stage);

/* Step number `step`, of so many passes, begins and ends: what the stages around this one are going to send is received
 * while this one computes. trace: where waits and passes are noted, or NULL; of a model that is not split nothing is.
 */
void vt_stage_begin(vt_pipeline_stage *stage, int64_t step, const vt_step_counts *counts, int64_t rows,
                    vt_sync_trace *trace);
void vt_stage_finish(vt_pipeline_stage *stage);

/* The "forward" or "backward" of a micro-batch ends now; it began when the pass before it, or the wait for its message,
 * had ended. */
void vt_stage_note(vt_pipeline_stage *stage, const char *what, int64_t micro_batch);

/* On the arena: the stream in front of this stage, nothing on the first one; the gradient of the one behind it. */
vt_matrix vt_stage_take_stream(vt_pipeline_stage *stage, const vt_pass *pass);
vt_matrix vt_stage_take_gradient(vt_pipeline_stage *stage, const vt_pass *pass);

/* To the stage behind this one, which is not the last; to the one before it, if it is not the first. */
void vt_stage_pass_stream(vt_pipeline_stage *stage, vt_matrix stream);
void vt_stage_pass_gradient(vt_pipeline_stage *stage, vt_matrix gradient);

/* Of a rollout: the last stage's forecast for the first, and the first one's gradient of it for the last. On one stage
 * nothing is sent. Forecasts are taken by the first stage, gradients by the last, in the order in which they were sent.
 */
void vt_stage_pass_forecast(vt_pipeline_stage *stage, vt_matrix fields);
void vt_stage_pass_forecast_gradient(vt_pipeline_stage *stage, vt_matrix gradient);
void vt_stage_take_forecast(vt_pipeline_stage *stage, vt_matrix fields);
void vt_stage_take_forecast_gradient(vt_pipeline_stage *stage, vt_matrix gradient);

#endif
