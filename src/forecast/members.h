/* The members of an ensemble of forecasts: how the command line names them, and what each one has of its own. Each of K
 * checkpoints makes N / K of the N members, one behind another. A model that was trained with loss crps makes them by
 * its noise. Otherwise the first starts from the initial state as it is; noise (input_noise) is added to the initial
 * state of the others. */
#ifndef VT_FORECAST_MEMBERS_H
#define VT_FORECAST_MEMBERS_H

#include "forecast/trained.h"

typedef struct {
    vt_trained *models; /* [model_count]: of each checkpoint */
    int64_t model_count;
    vt_config *config; /* of the first one, for all */
    int64_t count;     /* 0: one forecast, and no ensemble */
    bool noisy;        /* the model has noise of its own: it was trained on loss crps last */
} vt_members;

/* vt_trained_open for one more checkpoint, of whatever its model is. *members is to be closed. */
vt_status vt_members_add(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_members *members);

/* The members of forecasts of fields, from the words of the command line: one checkpoint `name`, which may be added
 * already, or a `list` of at least two; the other is NULL. count: below 1 if it was not given. Fails if they can't make
 * as many steps as `rollout`. */
vt_status vt_members_configure(const char *name, const char *list, int64_t count, int64_t rollout, int flag_count,
                               char *const *flags, int64_t ranks, vt_members *members);
void vt_members_close(vt_members *members);

/* How many forecasts there are: at least 1. */
int64_t vt_members_number(const vt_members *members);

/* Does noise on the initial state (input_noise) make this member? Where the model has noise of its own, only if a flag
 * says so. */
bool vt_members_perturbs(const vt_members *members, int64_t member);

/* "8 members, of 2 checkpoints, 6 with input_noise 0.1"; malloc'd. */
char *vt_members_describe(const vt_members *members);

#endif
