/* Values that change as a run goes on: "1, 4@24, 12@26" is 1 at first, 4 after 24 epochs and 12 after 26. */
#ifndef VT_CONFIG_STAGES_H
#define VT_CONFIG_STAGES_H

#include "config/config.h"

enum { VT_MOST_STAGES = 32 };

typedef struct {
    double value;
    int64_t epoch; /* from it on; the run's first one is 0 */
} vt_stage;

typedef struct {
    int count; /* 0: the option is not set */
    vt_stage stages[VT_MOST_STAGES];
} vt_stages;

/* The options rollout and lr_restarts of a resolved configuration; rates are scaled by lr_scaling. */
vt_stages vt_config_rollout(const vt_config *config);
vt_stages vt_config_restarts(const vt_config *config);

/* The value of an epoch; 1 before the first stage. */
double vt_stages_at(const vt_stages *stages, int64_t epoch);

/* Steps of forecast in the epoch that has most of them. */
int64_t vt_config_longest_rollout(const vt_config *config);

/* The option loss, each a place in VT_LOSSES; and how many forecasts of a sample training makes at once: ensemble_size,
 * or 1 in a run without loss crps. */
vt_stages vt_config_losses(const vt_config *config);
int64_t vt_config_members(const vt_config *config);

/* crps_scales. The error: they are no list of divisors of the grid, or the ranks would have to share blocks. */
vt_status vt_config_scales(const vt_config *config, int64_t scales[VT_MOST_SCALES], int *count);

/* Fails when rollout, lr_restarts or loss can't be read. */
vt_status vt_config_check_stages(const vt_config *config);

#endif
