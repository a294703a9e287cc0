/* Everything that a training step works on: back end, parameters, model, optimizer, normalisation, and the arena. It
 * knows nothing of files; the loop (loop.h) feeds it batches. */
#ifndef VT_TRAINING_TRAINER_H
#define VT_TRAINING_TRAINER_H

#include "config/config.h"
#include "data/loader.h"
#include "model/model.h"
#include "optimizer/gradient_sync.h"
#include "optimizer/optimizer.h"
#include "optimizer/schedule.h"
#include "parallel/communication.h"
#include "training/device_cache.h"

/* Batches that the reader of the validation set keeps ready: it must not hold much memory while training goes on. */
enum { VT_VALIDATION_PREFETCH = 1 };

/* What the data say, on the host. */
typedef struct {
    const float *means, *stds; /* of the channels of the file that are used */
    const double *latitudes;   /* [height], degrees */
    int64_t steps;             /* optimizer steps of the whole run: the length of the cosine */
    vt_world *world;           /* all ranks of the run; NULL: this is the only one */
    bool device_memory;        /* for vt_trainer_plan: the back end has memory of its own */
} vt_trainer_data;

/* Seconds of this rank's host since they were last set to 0: where the time of steps goes. Waiting for other ranks is
 * communication, wherever it happens. Of a device that works on its own only steps with `measured` count, whose parts
 * are waited for. */
typedef struct {
    double forward, backward, communication, optimizer;
    double mark, waited; /* when the part that is going on began, and what had been waited till then */
} vt_step_times;

/* A step that was started, until its figures are taken. */
typedef struct {
    vt_step_state *state; /* as the step left it; both in host memory that the device reaches */
    float *losses;        /* [samples of this rank's part of a batch] */
    int64_t *samples;     /* of the data set, likewise; -1: not known */
    vt_source *source;    /* NULL: not known */
    int64_t index, sample_count, global_count;
    double learning_rate;
} vt_started_step;
enum { VT_STEPS_AHEAD = 2 };

typedef struct {
    const vt_config *config;
    vt_backend *backend;
    vt_arena arena;
    vt_world *world;
    vt_world *own_world; /* the same, when it is to be closed with the trainer */
    vt_parallel *parallel;
    vt_parameters *parameters;
    vt_model *model;
    vt_saved *saved; /* of the micro-batch in flight */
    vt_gradient_sync *sync;
    vt_optimizer *optimizer;
    vt_schedule schedule;
    vt_span rows;                            /* of the fields, that this rank works on */
    int64_t steps_started;                   /* of the whole run */
    int64_t step_of_epoch;                   /* set by the loop: the next step's index, as a profile names it */
    vt_started_step started[VT_STEPS_AHEAD]; /* a ring */
    int64_t pending;                         /* of them, whose figures are still to be taken */
    int64_t steps_here;                      /* started since it was opened: the first ones are not recorded */
    int64_t steps_replayed;                  /* of them, from a recording */
    /* The step is to be recorded again, on all ranks at once: what came between its steps may have cost one of them
     * its recording, and NCCL lets the ranks talk while they record. */
    bool record_anew;
    bool measured; /* set by the loop: this step's parts are waited for and timed */
    vt_step_times times;
    int tensor_count;
    vt_tensor_spec specs[VT_BATCH_TENSORS];  /* of this rank's part of a sample */
    void *batch_tensors[VT_BATCH_TENSORS];   /* where a back end with memory of its own keeps a batch; else NULL */
    void *staged_tensors[VT_BATCH_TENSORS];  /* the next one, on its way */
    const vt_device_cache *caches[2];        /* sets in the device's memory, of which batches may be; or NULL */
    float *input_mean, *input_inverse_std;   /* [n_in_channels] */
    float *target_mean, *target_inverse_std; /* [n_out_channels] */
    float *latitude_weights;                 /* [rows], mean 1 over all rows */
    double weight_sum;                       /* of all points' weights, in float64 */
    float *losses;                           /* of a rank's part of a batch */
    double *squares, *channel_squares;       /* [batch, 2], [batch, n_out_channels, 2] */
    float *host_losses;                      /* [batch] */
    double *host_figures;                    /* room to bring them to the host */
} vt_trainer;

/* What a group of ranks hands on in one optimizer step. */
typedef struct {
    char name[64];
    int size, in_node; /* members (1: it sends nothing), and those on this rank's node, itself included */
    vt_volume volume;
} vt_plan_group;

/* Of this rank: bytes by category, and the work and messages of one optimizer step, learnt from the same step over the
 * dry back end and the dry engine; the data are what the readers keep ready. */
enum { VT_PLAN_GROUPS = 16 };
typedef struct {
    size_t bytes[VT_MEMORY_CATEGORY_COUNT];
    size_t arena_bytes;   /* the part of the activations that is the arena */
    size_t ring_bytes;    /* the part of the data that is the readers', in the host's memory */
    size_t message_bytes; /* not among `bytes`: MPI's own copies of sums over ranks, and a hole of theirs; 0 on a GPU */
    double step_flops;
    vt_volume communication[VT_TRAFFIC_COUNT]; /* of one optimizer step */
    vt_dry_count step;                         /* its `bytes` are those behind the step, without arena and readers */
    vt_plan_group groups[VT_PLAN_GROUPS];
    int group_count;
} vt_plan;

vt_status vt_trainer_plan(const vt_config *config, const vt_trainer_data *data, vt_plan *plan);

/* Collective. Plans, then takes all memory on `backend` and starts the parameters from the configuration's seed. */
vt_status vt_trainer_open(const vt_config *config, const vt_trainer_data *data, vt_backend *backend,
                          vt_trainer **trainer);
void vt_trainer_close(vt_trainer **trainer);

/* The type of what enters matrix products, and the samples of a micro-batch, as the configuration has them. */
vt_type vt_trainer_type(const vt_config *config);
int64_t vt_trainer_micro_batch(const vt_config *config);

#endif
