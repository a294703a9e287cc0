/* A trained model at work: from a checkpoint, fields in, forecasts out, in the units of the data. */
#ifndef VT_FORECAST_FORECASTER_H
#define VT_FORECAST_FORECASTER_H

#include "forecast/members.h"
#include "parallel/world.h"
#include "source/fields/dataset.h"
#include "training/step.h"

/* Can each forecast of a rollout be the next one's input: does it have all channels of that? */
vt_status vt_forecaster_check_rollout(const vt_config *config, int64_t rollout);

typedef struct vt_forecaster vt_forecaster;

/* Opens the data that forecasts begin from, as the checkpoint's model sees them: with its channels in their order,
 * known fields, and as departures if it was trained on such. options: as of vt_fields_options. The model outlives the
 * dataset. */
vt_status vt_forecaster_open_data(const vt_trained *model, vt_dataset_options options, vt_dataset **dataset);

/* Do the dataset and other data of the same units go together? about: what `name` says of these; NULL: nothing. */
vt_status vt_forecaster_compare(vt_fields_use use, const vt_config *config, const vt_dataset *dataset,
                                const vt_fields_about *about, const char *name);

/* Collective. Takes memory and reads the parameters of the members' checkpoints; those of several are all kept in the
 * host's memory. The dataset outlives the forecaster; about: what of it forecasts begin from, which is
 * compared with what the checkpoint says of its own data. */
vt_status vt_forecaster_open(const vt_members *members, vt_world *world, vt_dataset *dataset,
                             const vt_fields_about *about, vt_forecaster **forecaster);
void vt_forecaster_close(vt_forecaster **forecaster);

/* The parameters of this checkpoint of the members make the forecasts from now on. */
void vt_forecaster_choose(vt_forecaster *forecaster, int64_t index);

/* Variables that are forcings (roles) are read from the files of `directory` at times that these have, else from the
 * dataset's own; NULL: from these alone. Then checks that forecasts of `steps` steps from these samples find them at
 * all times: the error says which are missing. */
vt_status vt_forecaster_find_forcings(vt_forecaster *forecaster, const char *directory, const int64_t *samples,
                                      int64_t count, int64_t steps);

/* Samples that vt_forecaster_step takes at most. */
int64_t vt_forecaster_batch(const vt_forecaster *forecaster);

/* Collective over the stages of a model. input [count, n_in_channels, height, width], newest time first; fields [count,
 * n_out_channels, height, width], dt later; both as the dataset has them: values or departures. The newest times are
 * `lead` steps behind those of the dataset's `samples` [count]: forcings are those of then. noise_keys [count, 2]: what
 * the model's noise depends on, member and date of the initial time. */
vt_status vt_forecaster_step(vt_forecaster *forecaster, vt_dataset *dataset, const float *input, const int64_t *samples,
                             const uint32_t *noise_keys, int64_t lead, int64_t count, float *fields);

/* Collective. The loss as training logs it ("Avg val loss"), over every N-th sample of the dataset; of several
 * checkpoints the mean. */
vt_status vt_forecaster_validate(vt_forecaster *forecaster, int64_t every, double *loss);

/* What it was trained on. */
vt_task *vt_forecaster_task(const vt_forecaster *forecaster);

/* Collective. A trainer that only predicts, with the checkpoint's parameters. Both are the caller's, also after an
 * error. */
vt_status vt_forecaster_open_model(const vt_trained *model, vt_world *world, vt_task *task, vt_backend **backend,
                                   vt_trainer **trainer);

#endif
