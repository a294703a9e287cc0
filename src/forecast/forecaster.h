/* A trained model at work: from a checkpoint, fields in, forecasts out, in the units of the data. Rollouts: the states
 * of all members of some initial times, which are forecast together, one lead time after the other. They are in memory;
 * if an initial time has more members than the model takes at once, in a file (storage/output_file.h), so that the
 * memory does not grow with them. */
#ifndef VT_FORECAST_FORECASTER_H
#define VT_FORECAST_FORECASTER_H

#include "forecast/members.h"
#include "parallel/world.h"
#include "source/fields/dataset.h"
#include "training/step.h"

/* What a model of any kind works with. */
typedef struct {
    vt_world *world;
    vt_task *task; /* what the model was trained on */
    vt_backend *backend;
    vt_trainer *trainer; /* one that only predicts, with the checkpoint's parameters */
} vt_inference;

/* Collective. Opens back end and trainer, where world and task are open. */
vt_status vt_inference_open(const vt_trained *model, vt_inference *inference);

/* Closes what is open of the four. status: with which their use ended. */
void vt_inference_close(vt_inference *inference, vt_status status);

/* What forecasts begin from: samples of a dataset, [count]. */
typedef struct {
    vt_dataset *dataset;
    int64_t *samples, count;
} vt_initial_times;

typedef struct {
    const vt_members *members;
    vt_inference inference;
    vt_initial_times from;
    vt_dataset *given; /* files that were named for forcings; NULL: none were */
    char *given_variables;
    vt_group *stages; /* of the model */
    vt_group *models; /* the ranks that have the same stage of all models */
    float *forcings;  /* of a batch, or NULL */
    float **weights;  /* [checkpoints]: the parameters of each one, on the host; NULL if there is only one */
    int64_t chosen;   /* whose parameters the trainer has */
    /* the states: */
    int64_t plane, in, out;  /* numbers of a channel, of an input and of a forecast */
    int64_t number;          /* of members */
    int64_t batch;           /* the most initial times that are forecast at once */
    int64_t together;        /* initial times that all models forecast now */
    int64_t first, count;    /* those of this model: the first one's number, and how many */
    int64_t lead;            /* the steps from them to the states */
    float *input, *forecast; /* of member 0 of all initial times, then of member 1: the states of [number * count] */
    uint32_t *noise_keys;    /* [number * count, 2]: what the model's noise in each of them depends on */
    float *mean;             /* of an ensemble */
    const float **fields;    /* [number] */
    void *scratch;           /* that input and forecast are in; NULL: in memory of their own */
    size_t scratch_bytes;
    int64_t planned, made; /* forecasts of one step: all, of which the log tells every half minute */
    double told;           /* when it did last */
} vt_forecaster;

/* Opens the data that forecasts begin from, as the checkpoint's model sees them: with its channels in their order,
 * known fields, and as departures if it was trained on such. options: as of vt_fields_options. The model outlives the
 * dataset. */
vt_status vt_forecaster_open_data(const vt_trained *model, vt_dataset_options options, vt_dataset **dataset);

/* Do the dataset and other data of the same units go together? about: what `name` says of these; NULL: nothing. */
vt_status vt_forecaster_compare(vt_fields_use use, const vt_config *config, const vt_dataset *dataset,
                                const vt_fields_about *about, const char *name);

/* Collective. Where members, the inference's world and the initial times are set: takes memory and reads the parameters
 * of the members' checkpoints; those of several are all kept in the host's memory. about: what of the dataset forecasts
 * begin from, which is compared with what the checkpoint says of its own data; directory: of the file of states. */
vt_status vt_forecaster_open(vt_forecaster *forecaster, const vt_fields_about *about, const char *directory);

/* Closes all that it has, except for the members; also after an error. status: as of vt_inference_close. */
void vt_forecaster_close(vt_forecaster *forecaster, vt_status status);

/* The parameters of this checkpoint of the members make the forecasts from now on. */
void vt_forecaster_choose(vt_forecaster *forecaster, int64_t index);

/* Variables that are forcings (roles) are read from the files of `directory` at times that these have, else from the
 * dataset's own; NULL: from these alone. Then checks that forecasts of `steps` steps find them at all times: the error
 * says which are missing. */
vt_status vt_forecaster_find_forcings(vt_forecaster *forecaster, const char *directory, int64_t steps);

/* Collective. The loss as training logs it ("Avg val loss"), over every N-th sample of the dataset; of several
 * checkpoints the mean. */
vt_status vt_forecaster_validate(vt_forecaster *forecaster, int64_t every, double *loss);

/* From one forecast to the next (calendar.h). */
int64_t vt_forecast_step(const vt_dataset *dataset);

/* When the time `lead` steps behind a sample's is: as the files say it, as far as they reach. */
vt_date vt_forecast_date(const vt_dataset *dataset, int64_t sample, int64_t lead);

/* ---- rollouts (rollout.c) ---- */

/* Called by vt_forecaster_open and _close: take and release the memory of the states. */
vt_status vt_states_open(vt_forecaster *forecaster, const char *directory);
void vt_states_close(vt_forecaster *forecaster);

/* Collective. Makes forecasts from all initial times, of `leads` steps: in the fewest rounds that hold them all, shared
 * out to the models that ranks, or their stages, hold. In each round all models have the same number of them; in the
 * last one the last models may have fewer or none. All ranks take each lead time, which is collective, too: a rank
 * without any then waits no longer than a forecast of the others takes, and an error on one rank ends all. `take` finds
 * `count` forecasts from initial time number `first` on, `lead` steps behind, in the units of the data. (What is
 * missing in an input, NaN, stays missing in the next one.) Errors: of reading, of `take`, and a climatology that lacks
 * a time of day. */
vt_status vt_forecast_all(vt_forecaster *forecaster, int64_t leads, vt_status (*take)(void *context), void *context);

/* The forecast of initial time first + i, of an ensemble its mean; forecaster->fields are the members' then. */
const float *vt_forecast_mean(vt_forecaster *forecaster, int64_t i);

#endif
