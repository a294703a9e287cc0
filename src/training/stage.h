/* A stage of a pipeline: which units of the model this rank has, and what it sends to the stages before and behind it.
 * A model that is not split is one stage, which sends nothing. */
#ifndef VT_TRAINING_STAGE_H
#define VT_TRAINING_STAGE_H

#include "model/split.h"
#include "optimizer/gradient_sync.h"
#include "parallel/link.h"
#include "task/rollout.h"
#include "training/schedule.h"

/* What stages send: the stream, to the stage behind, and its gradient, to the one before; and of a rollout the last
 * stage's forecast, the next step's input, to the first, and its gradient back. */
typedef enum { VT_SENT_STREAM, VT_SENT_GRADIENT, VT_SENT_FORECAST, VT_SENT_FORECAST_GRADIENT, VT_SENT_COUNT } vt_sent;

typedef struct {
    vt_span units;
    vt_rollout_place place;
    int64_t first_trained;                         /* the unit with which backward ends, of all stages' */
    int64_t columns[2];                            /* of the stream in front of the stage and behind it */
    vt_link in[VT_SENT_COUNT], out[VT_SENT_COUNT]; /* those that this stage has */
    int64_t taken;                                 /* of a rollout's messages, in this step */
    vt_sync_trace *trace;                          /* of the current step; NULL: none */
    double since;                                  /* the end of what the trace noted last */
} vt_pipeline_stage;

/* The place of this rank. The parameters of other stages' units are left out of the registry's memory. */
vt_status vt_stage_open(const vt_config *config, const vt_world *world, vt_parameters *parameters,
                        vt_pipeline_stage *stage);

/* The tensors that this rank does without, as bits 1 << VT_TENSOR_…: the first stage needs no targets, and others need
 * inputs only where the last one adds to them or compares with them. */
unsigned vt_stage_unread(const vt_config *config, const vt_world *world, bool training);

/* Collective. Connects the stages, for gradients only where backward goes on (first_trained); rows: of the stream of a
 * micro-batch. forecast: the numbers of a micro-batch's predicted fields, if the last stage sends them to the first;
 * else 0. */
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

/* Receives, on the arena, the stream from the stage before or its gradient from the stage behind; an empty matrix if no
 * stage sends it. */
vt_matrix vt_stage_receive(vt_pipeline_stage *stage, const vt_pass *pass, vt_sent what);

/* Sends a matrix of this kind; does nothing if no stage receives it. */
void vt_stage_pass(vt_pipeline_stage *stage, vt_sent what, vt_matrix matrix);

/* Receives the next matrix of this kind from the stage that sends it; they come in the order of sending. */
void vt_stage_take(vt_pipeline_stage *stage, vt_sent what, vt_matrix matrix);

#endif
