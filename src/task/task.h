/* What is learnt, from which data. A task knows what the numbers of samples and predictions mean: it says how they are
 * normalised, scores predictions, has a baseline that a model should beat, and chooses a picture. Each task is a row of
 * VT_TASKS in config/kinds.def and a file of this room. */
#ifndef VT_TASK_TASK_H
#define VT_TASK_TASK_H

#include "config/config.h"
#include "data/source.h"
#include "model/model.h"
#include "source/fields/about.h"
#include "task/evaluation.h"

typedef struct vt_task_kind vt_task_kind;

/* What the task's scores are called. */
typedef struct {
    const char *title;                  /* of all of them: "RMSE by channel"; NULL: the log doesn't list them */
    const char *column;                 /* what their columns of epochs.csv begin with: "rmse" */
    const char *baseline, *baseline_is; /* "persistence", "nothing changes" */
    char *curve;                        /* of the first one: "RMSE(u10m)/valid" */
    int64_t count;
    char **names; /* [count]: "t2m", or "2" of a channel without a name */
    /* Of tasks whose samples are runs of tokens, else 0 and NULL: how many tokens, what the exponential of the loss is
     * called, the log's own lines about an epoch (1 for the first) and about the test set (best NAN: no loss of the
     * best checkpoint is known). */
    int64_t tokens;
    const char *exponential;
    void (*tell_epoch)(int64_t epoch, int64_t epochs, double training_loss, const vt_evaluation *validation);
    void (*tell_test)(double last, double best);
} vt_score_names;

/* What pictures show of the output: numbers [first, first + height * width) of one field. */
typedef struct {
    int64_t field, first, height, width;
} vt_picture_part;

/* The description of an image of it. */
typedef struct {
    char *title;  /* "t2m (K), 2001-03-05 06:00 UTC" */
    char *tag;    /* TensorBoard's name of it */
    float *input; /* [height, width], malloc'd: what the model saw there, shown as well; NULL: not shown */
    int64_t height, width;
    const double *latitudes, *longitudes; /* degrees, [height] and [width]; NULL: not known */
    bool on_earth;                        /* they are those of the Earth, whose coasts are drawn */
    bool is_signed;                       /* 0 separates two kinds of values, like the directions of a wind */
} vt_picture;

/* What normalises the fields of a tensor: value = (number - mean) * inverse_std. In the back end's memory. */
typedef struct {
    int64_t count; /* of fields */
    float *mean, *inverse_std;
} vt_normalisation;

/* Copies host [count], which it frees, to the back end. Memory that *placed was given before is used again, which can't
 * fail. */
vt_status vt_floats_place(vt_backend *backend, float *host, int64_t count, float **placed);

/* Likewise what normalises the `count` fields of a tensor: field c by means[c % period] and stds[c % period]. period 0:
 * by 0 and 1, as they are normalised already. */
vt_status vt_normalisation_place(vt_backend *backend, const float *means, const float *stds, int64_t period,
                                 int64_t count, vt_normalisation *placed);

/* A kind's own struct, malloc'd, begins with this one. vt_task_close frees it, the names of the scores, and what this
 * struct has in the back end's memory: normalisation, tendency, noise, bounds and crps_units. */
typedef struct {
    const vt_task_kind *kind;
    const vt_config *config;
    vt_backend *backend; /* that the task is placed on; NULL: not yet */
    vt_score_names scores;
    int64_t field_count;
    /* What the data are, with what normalises them, and what messages call them. A checkpoint keeps that; NULL: the
     * task's samples are no fields of files. */
    vt_fields_about *about;
    const char *data_name;
    const char *const *vocabulary; /* the words that the model knows, [vocabulary_size]; NULL: none. Kept likewise */
    int64_t vocabulary_size;
    vt_normalisation normalisation[VT_BATCH_TENSORS]; /* of input, target, …, after vt_task_kind.place */
    /* In the back end's memory, after place. tendency [fields of the target]: the model predicts the change of the
     * input's newest state, in these units; NULL: it predicts the state. noise [fields of the input]: what training
     * adds to it, as a standard deviation; NULL: none. */
    float *tendency, *noise;
    float *bounds[2];  /* likewise [fields of the target]: the least and the largest state; NULL: states have none */
    float *crps_units; /* likewise [crps_scales, fields of the target]: 1 / the change over dt of a block's mean */
    /* The loss of a set is the mean of its batches' means, a partial batch counting as one, as a course's log has it;
     * else the mean over its samples. */
    bool by_batch;
} vt_task;

struct vt_task_kind {
    const char *name;
    const char *const *identity; /* options that a run can't change when it is resumed; ends with NULL */
    /* Reads what the task must know of the data, which outlive it. Both NULL: nothing is known, and numbers are assumed
     * to be normalised. The error names the file. */
    vt_status (*open)(const vt_config *config, const vt_source *training, const vt_source *validation, vt_task **task);
    /* Releases what else the kind's own struct holds, on the host and in the back end's memory; NULL: nothing. */
    void (*close)(vt_task *task);
    /* The log's lines about the data, and about which samples of the sets are used, where not all are. NULL: none. */
    void (*log_data)(const vt_task *task, const vt_source *training, const vt_source *validation);
    /* Takes memory on the back end for micro-batches of `batch` samples, of which this rank has the rows `rows`. Fails
     * if the task can't use this model's predictions. NULL: it needs none, and takes any. */
    vt_status (*place)(vt_task *task, vt_backend *backend, const vt_model *model, vt_span rows, int64_t batch);
    /* What each number of a sample's prediction counts in the loss, laid out as the prediction is, on the arena of this
     * pass of one sample; a matrix without memory, or NULL: all count alike. Only the ratios matter. */
    vt_matrix (*weigh)(const vt_task *task, const vt_pass *pass);
    /* Collective over the ranks that share the samples. Adds a micro-batch to the sums: its losses [batch], which are
     * given, and scores of the prediction; both matrices are normalised, and laid out as the model's output. A sample
     * with nothing to compare is left out, and so is a score of it. */
    void (*score)(vt_task *task, const vt_pass *pass, vt_matrix prediction, vt_matrix target, const float *losses,
                  vt_scores_of *sums);
    /* Fields are from now on normalised as those were that a checkpoint was trained on, of the same channels; says so
     * in the log where that changes anything. The back end's memory, if any was taken, follows. NULL: nothing
     * normalises. */
    void (*take_normalisation)(vt_task *task, const vt_fields_about *kept, const char *checkpoint);
    /* Adds what follows from the means alone; NULL: nothing does. */
    void (*finish)(const vt_task *task, vt_evaluation *evaluation);
    /* What the end of the log says of the last validation loss, ", …", malloc'd; NULL: nothing. */
    char *(*remark)(const vt_task *task, double loss);
    /* Does this configuration have a baseline? NULL: it has one if `baseline` is not NULL. `baseline` makes its
     * prediction for a micro-batch, laid out as the model's output, on the arena; NULL: `finish` knows its loss. */
    bool (*has_baseline)(const vt_config *config);
    vt_matrix (*baseline)(const vt_task *task, const vt_pass *pass, const vt_model_tensor *tensors);
    /* NULL: no pictures. */
    vt_picture_part (*pictured)(const vt_config *config);
    /* Of the first sample of `batch`, whose prediction and target [height, width] are given, no longer normalised: they
     * become what is shown, in the units of the data. */
    void (*describe_picture)(const vt_task *task, const vt_batch *batch, float *prediction, float *target,
                             vt_picture *picture);
};

/* The row of the table that the configuration names. */
const vt_task_kind *vt_task_kind_of(const vt_config *config);

void vt_task_close(vt_task **task);

void vt_picture_close(vt_picture *picture);

#endif
