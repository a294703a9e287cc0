/* The inside of a trainer, and of its stage of a pipeline, for the files of this folder alone. */
#ifndef VT_TRAINING_TRAINER_INSIDE_H
#define VT_TRAINING_TRAINER_INSIDE_H

#include "loss/loss.h"
#include "model/split.h"
#include "parallel/link.h"
#include "task/rollout.h"
#include "training/reader.h"

/* ---- a stage of a pipeline (stage.c): which units of the model this rank has, and what it sends to the stages before
 * and behind it. A model that is not split is one stage, which sends nothing. ---- */

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

/* ---- the trainer ---- */

/* A step that was started, until its figures are taken. */
typedef struct {
    vt_step_state *state; /* as the step left it; both in host memory that the device reaches */
    float *losses;        /* [samples of this rank's part of a batch] */
    int64_t *samples;     /* their indices in the data set; -1: not known */
    vt_source *source;    /* NULL: not known */
    int64_t sample_count;
    int64_t terms;           /* losses of each sample in the sum of the step: steps of forecast */
    vt_step_figures figures; /* what is known of them before */
} vt_started_step;

/* Where a micro-batch in flight is: between a forward and the end of its backward. */
typedef struct {
    bool is_taken;
    vt_arena arena;      /* of its activations */
    vt_offload *offload; /* of those that wait in the host's memory; NULL: none */
    vt_saved *saved;     /* that the model keeps for backward */
} vt_room;

/* A micro-batch, from its first pass to its last. */
typedef struct {
    int64_t index; /* of the step's micro-batches; -1: none is here */
    int64_t lead;  /* of its batch */
    vt_pass pass;
    vt_rollout *rollout; /* the steps of forecast that it is trained over, and their tensors */
    vt_arena shared;     /* what all these steps use */
    vt_room *room;       /* of its current step of forecast; NULL: that has ended */
    double *loss_sums;   /* [longest rollout, samples, VT_LOSS_SUMS], which the loss keeps for backward */
    vt_matrix prediction, target;
} vt_micro_batch;

struct vt_trainer {
    const vt_config *config;
    vt_backend *backend;
    vt_world *world;
    vt_world *own_world; /* the same, when it is to be closed with the trainer */
    vt_parallel *parallel;
    vt_parameters *parameters;
    vt_model *model;
    vt_pipeline_stage stage;  /* this rank's stage */
    const vt_loss_kind *loss; /* of the current epoch */
    vt_crps_terms crps;       /* what loss crps compares */
    vt_matrix loss_weights;   /* [rows of a sample, columns] of its prediction; without memory: all count alike */
    vt_task *task;
    vt_task *own_task; /* the same, when it is to be closed with the trainer */
    vt_gradient_sync *sync;
    vt_optimizer *optimizer;
    vt_run_length length; /* of the run and its epochs, for the learning rate */
    vt_step_shape shape;  /* of a step's schedule: its micro_batches are grad_accumulation */
    /* As many as the schedule needs at once; outside of training steps the first ones serve. */
    vt_room *rooms;
    vt_micro_batch *micro_batches;
    int64_t room_count, micro_batch_count;
    int tensor_count;
    vt_tensor_spec specs[VT_BATCH_TENSORS];  /* of this rank's part of a sample */
    int64_t steps_started;                   /* of the whole run */
    int64_t step_of_epoch;                   /* the next step's index, as a profile names it */
    vt_started_step started[VT_STEPS_AHEAD]; /* a ring */
    int64_t pending;                         /* of them, whose figures are still to be taken */
    int64_t steps_here;                      /* started since the trainer was opened: the first ones aren't recorded */
    int64_t steps_replayed;                  /* of them, from a recording */
    /* The step is to be recorded again, on all ranks at once: what came between its steps may have cost one of them
     * its recording, and NCCL lets the ranks talk while they record. */
    bool record_anew;
    bool measured;       /* the next step's parts are waited for and timed, also on a device that works on its own */
    vt_step_times times; /* where the time of steps went; of a device that works on its own only of measured steps */
    double part_begin, part_waited; /* when the current part of the step began, and what had been waited until then */
    void *batch[VT_BATCH_TENSORS];  /* where a back end with memory of its own keeps a batch; else NULL */
    void *staged[VT_BATCH_TENSORS]; /* the next one, on its way */
    vt_device_cache *caches[2];     /* training and validation set in the device's memory, of which batches may be;
                                       NULL: not there */
    float *losses;                  /* of a rank's part of a batch */
    float *host_losses;             /* of a micro-batch */
};

typedef struct {
    size_t room, shared; /* bytes for a micro-batch's activations, and for what its steps of forecast share */
    vt_offload_sizes offload;
} vt_arena_sizes;

/* Collective. As vt_trainer_open, but the world must be given, and the parameters have no values yet. Sizes SIZE_MAX,
 * over the dry back end: any number of bytes. */
vt_status vt_trainer_build(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                           vt_arena_sizes sizes, vt_trainer **trainer);

/* Rows of a micro-batch: its samples, or in epochs of loss crps their members. */
int64_t vt_trainer_rows(const vt_trainer *trainer);

/* The ranks of the last stage have the losses and scores; those that share samples have equal copies. Is this rank the
 * one of them that counts in sums? */
bool vt_trainer_counts_in_sums(const vt_trainer *trainer);

/* Collective. Of the ranks' samples (-1: none) that of the lowest rank that has one. */
int64_t vt_trainer_first_sample(const vt_trainer *trainer, int64_t own);

/* The batch in memory that the back end can read; the loader may reuse its own. */
vt_batch vt_batch_upload(vt_trainer *trainer, const vt_batch *batch);

/* Samples first … first + count - 1 of this rank's part of a batch, as micro-batch `index`, which is there until it is
 * released. None of its steps of forecast is current yet. */
vt_micro_batch *vt_micro_batch_take(vt_trainer *trainer, const vt_batch *batch, int64_t index, int64_t first,
                                    int64_t count, bool training);
vt_micro_batch *vt_micro_batch_find(vt_trainer *trainer, int64_t index); /* NULL: it is not there */
void vt_micro_batch_release(vt_micro_batch *samples);

/* Makes `step` the current step of forecast, whose activations get a room. The second function ends it: what it pushed
 * on the room's arena goes. */
void vt_micro_batch_step(vt_trainer *trainer, vt_micro_batch *samples, int64_t step);
void vt_micro_batch_end_step(vt_micro_batch *samples);

/* The state that the current step predicts, in the rows and columns of the model's output. On stages before the last
 * one nothing: what they computed goes to the next. */
vt_matrix vt_micro_batch_state(vt_trainer *trainer, const vt_micro_batch *samples);

/* The same as samples->prediction, with the target beside it. */
void vt_micro_batch_predict(vt_trainer *trainer, vt_micro_batch *samples);

/* Adds the gradients of the current step, after its prediction: of its own loss, times `scale`, and of later steps'
 * losses through its prediction. Stages before the last one get the gradient of what they computed from the next. */
void vt_micro_batch_backward(vt_trainer *trainer, vt_micro_batch *samples, float scale);

/* losses [samples] of a prediction, over all tokens of each sample, also added to *total unless that is NULL. The
 * sums behind them are kept for the loss's backward. With loss->sums_in_backward, in training, backward has run first
 * and has made these sums. */
void vt_micro_batch_losses(const vt_trainer *trainer, const vt_micro_batch *samples, vt_matrix prediction,
                           float *losses, double *total);

/* In training: adds the losses of the rollout's current step to the samples' losses (trainer->losses), where a bad
 * value in the target of any step shows, and to the loss of the batch. With loss->sums_in_backward,
 * vt_micro_batch_backward calls it. */
void vt_micro_batch_add_losses(const vt_trainer *trainer, const vt_micro_batch *samples);

#endif
