/* Rollouts of forecasts: the states of all members of some initial times, which are forecast together, one lead time
 * after the other. They are in memory; if an initial time has more members than the forecaster takes at once, in a file
 * (storage/output_file.h), so that the memory does not grow with them. */
#ifndef VT_FORECAST_STATES_H
#define VT_FORECAST_STATES_H

#include "forecast/forecaster.h"

typedef struct {
    const vt_members *members;
    vt_forecaster *forecaster;
    const vt_config *config;
    vt_dataset *dataset;
    vt_world *world;
    int64_t number;          /* of members */
    int64_t batch;           /* initial times that are forecast at once, at most */
    int64_t together;        /* initial times that all models forecast now */
    int64_t count, lead;     /* those of this model, and the steps that its states are behind them */
    float *input, *forecast; /* of member 0 of all initial times, then of member 1: the states of [number * count] */
    int64_t *starts;         /* the initial time of each of these */
    uint32_t *noise_keys;    /* [number * count, 2]: what the model's noise in each of them depends on */
    float *mean;             /* of an ensemble */
    const float **fields;    /* [number] */
    void *scratch;           /* that input and forecast are in; NULL: in memory of their own */
    size_t scratch_bytes;
    int64_t planned, made; /* forecasts of one step: all, of which the log tells every half minute; 0: it doesn't */
    double told;           /* when it did last */
} vt_states;

/* For forecasts from `count` initial times of the dataset; directory: of the file. The members of an initial time stay
 * together, however many they are. */
vt_status vt_states_open(const vt_members *members, vt_world *world, vt_forecaster *forecaster, vt_dataset *dataset,
                         int64_t count, const char *directory, vt_states *states);
void vt_states_close(vt_states *states);

/* When the time `lead` steps behind a sample's is: as the files say it, as far as they reach. */
vt_date vt_states_date(const vt_dataset *dataset, int64_t sample, int64_t lead);

/* Collective. Makes forecasts from these samples, [count], of `leads` steps: in the fewest rounds that hold them all,
 * shared out to the models that ranks, or their stages, hold. In each round all models have the same number of them; in
 * the last one the last models may have fewer or none. All ranks take each lead time, which is collective, too: a rank
 * without any then waits no longer than a forecast of the others takes, and an error on one rank ends all. `take` finds
 * states->count forecasts from sample number `first` on, states->lead steps behind, in the units of the data. (What is
 * missing in an input, NaN, stays missing in the next one.) Errors: of reading, of `take`, and a climatology that lacks
 * a time of day. */
vt_status vt_states_forecast_all(vt_states *states, const int64_t *samples, int64_t count, int64_t leads,
                                 vt_status (*take)(void *context, int64_t first), void *context);

/* The forecast of initial time i, of an ensemble its mean; states->fields are the members' then. */
const float *vt_states_forecast(vt_states *states, int64_t i);

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
void vt_states_leave_out_missing(const vt_states *states);

#endif
