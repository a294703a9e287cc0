/* Which configuration suits a set of fields: rules of thumb for forecasts of ten days, each with its reason, for
 * `vitrain init`. docs/forecasting.md and docs/training.md have the measurements that they follow from. */
#ifndef VT_PLANNING_RECIPE_H
#define VT_PLANNING_RECIPE_H

#include "base/text.h"
#include "config/config.h"

/* What the rules have to know of the data, and of the machine. */
typedef struct {
    int64_t channels, outputs;   /* of a time that the model sees; that it forecasts */
    int64_t rows, columns;       /* of the window */
    int64_t samples, validation; /* of training, with the longest rollout, and of validation */
    int64_t dt, minutes;         /* times in a step of forecast, and its length; VT_A_MONTH and more: months */
    int64_t rollouts[3];         /* steps of about 1, 3 and 10 days, as far as the times without gaps reach; 0: none */
    bool dated, climatology, latitudes, longitudes; /* are these known? */
    bool goes_round;                                /* the columns, round the globe */
    int64_t ranks;
    bool on_gpu;
} vt_recipe_data;

/* The choices that cost time. */
typedef struct {
    int64_t patch_size, embed_dim, depth, batch;
    int64_t epochs[4]; /* trained over one step, then over each of data->rollouts; all 0: `steps` over one step */
    int64_t steps;
} vt_recipe;

/* Seconds of a training step, over one step of forecast and over `rollout`. */
typedef struct {
    double one, several;
    int64_t rollout;
} vt_recipe_times;

/* Steps between two times of a forecast: of times that are closer together than 6 hours, as many as are nearest to 6.
 */
int64_t vt_recipe_dt(int64_t minutes);

/* The steps of 1, 3 and 10 days; of longer steps 3 and 10. */
void vt_recipe_rollouts(int64_t minutes, int64_t rollouts[3]);

/* The candidates, which have one step of training: 0 is the largest model that the data support, with the smallest
 * patches; then come those that cost less. False: there are no more. */
bool vt_recipe_candidate(const vt_recipe_data *data, int number, vt_recipe *recipe);

/* Deals out `seconds` of training. False: they are too few for this model to be worth its time. */
bool vt_recipe_deal(const vt_recipe_data *data, const vt_recipe_times *times, double seconds, vt_recipe *recipe);

/* Seconds of the run that was dealt out, with its validations. */
double vt_recipe_seconds(const vt_recipe_data *data, const vt_recipe_times *times, const vt_recipe *recipe);

/* Appends the configuration as the lines of a YAML file below its name, with reasons. What the command line of `given`
 * has comes first, and is not chosen. */
void vt_recipe_write(const vt_recipe_data *data, const vt_recipe *recipe, const vt_config *given, vt_text *yaml);

#endif
