/* The inside of a trainer, for the files of this folder alone. */
#ifndef VT_TRAINING_TRAINER_INSIDE_H
#define VT_TRAINING_TRAINER_INSIDE_H

#include "loss/loss.h"
#include "task/rollout.h"
#include "training/reader.h"
#include "training/stage.h"

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
    double *loss_sums;   /* [longest rollout, samples, loss->sums], which the loss keeps for backward */
    vt_matrix prediction, target;
    /* With loss->sums_in_backward: where the loss's backward puts the samples' losses, and what it adds them to. */
    float *losses;
    double *total;
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
    vt_schedule_length length; /* of the run and its epochs, for the learning rate */
    vt_step_schedule *schedule;
    vt_step_shape shape; /* what the schedule depends on: its micro_batches are grad_accumulation */
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

/* Collective. As vt_trainer_open, but world and task must be given, and the parameters have no values yet. Sizes
 * SIZE_MAX, over the dry back end: any number of bytes. */
vt_status vt_trainer_build(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                           vt_arena_sizes sizes, vt_trainer **trainer);

/* Rows of a micro-batch: its samples, or in epochs of loss crps their members. */
int64_t vt_trainer_rows(const vt_trainer *trainer);

/* The ranks of the last stage have the losses and scores; those that share samples have equal copies. Is this rank the
 * one of them that counts in sums? */
bool vt_trainer_counts_in_sums(const vt_trainer *trainer);

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

/* Collective. Of the ranks' samples (-1: none) that of the lowest rank that has one. */
int64_t vt_trainer_first_sample(const vt_trainer *trainer, int64_t own);

/* losses [samples] of a prediction, over all tokens of each sample, also added to *total unless that is NULL; in
 * training with loss->sums_in_backward not yet, but in vt_micro_batch_backward. What they were made of stays for the
 * loss's backward. */
void vt_micro_batch_losses(const vt_trainer *trainer, vt_micro_batch *samples, vt_matrix prediction, float *losses,
                           double *total);

#endif
