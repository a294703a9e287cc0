/* The states of all members of some initial times, which are forecast together, one lead time after the other. They are
 * in memory; if an initial time has more members than the forecaster takes at once, in a file (storage/scratch.h), so
 * that the memory does not grow with them. */
#ifndef VT_FORECAST_STATES_H
#define VT_FORECAST_STATES_H

#include "forecast/members.h"

typedef struct {
    const vt_members *members;
    vt_forecaster *forecaster;
    const vt_config *config;
    int64_t number;          /* of members */
    int64_t most, count;     /* initial times: at most, and now */
    float *input, *forecast; /* of member 0 of all initial times, then of member 1: the states of [number * count] */
    vt_date *dates;          /* of these inputs */
    float *mean;             /* of an ensemble */
    const float **fields;    /* [number] */
    void *scratch;           /* that input and forecast are in; NULL: in memory of their own */
    size_t scratch_bytes;
} vt_states;

/* For up to `most` initial times; directory: of the file. */
vt_status vt_states_open(const vt_members *members, vt_forecaster *forecaster, const vt_config *config, int64_t most,
                         const char *directory, vt_states *states);
void vt_states_close(vt_states *states);

/* Begins with `count` initial times, whose states are input [count]: the members that a checkpoint makes beside its
 * first get noise on theirs. starts [count] name the initial times. */
void vt_states_begin(vt_states *states, int64_t count, const int64_t *starts);

/* The next forecast of each state; dates [count]: of the inputs. */
vt_status vt_states_step(vt_states *states, const vt_date *dates);

/* Makes the inputs of the next step: the older times move one place back, and the forecasts become the newest. What is
 * missing in the newest time (NaN) stays missing. */
void vt_states_shift(vt_states *states);

/* The forecast of initial time i, of an ensemble its mean; states->fields are the members' then. */
const float *vt_states_forecast(vt_states *states, int64_t i);

#endif
