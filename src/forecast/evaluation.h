/* `vitrain evaluate`: what a model predicts, scored against what came. */
#ifndef VT_FORECAST_EVALUATION_H
#define VT_FORECAST_EVALUATION_H

#include "config/config.h"
#include "forecast/members.h"
#include "parallel/world.h"

/* Where the files of an evaluation go, so that they never replace those of another evaluation. A file made_from.txt
 * beside them names the checkpoint, the flags and the data that they were made from. */
typedef struct {
    char *directory;   /* before vt_place_take the wanted one, then the one that is used */
    bool is_named;     /* the user named it, so no other directory will do */
    bool replaces;     /* another evaluation in it may be replaced */
    vt_text made_from; /* the text of made_from.txt: lines "what: value" */
} vt_place;

/* Collective. Makes the directory. If another evaluation is there: DIR-2, or the next number that is free or holds the
 * same evaluation. Error: the directory is_named and holds another evaluation. */
vt_status vt_place_take(vt_place *place, vt_world *world);
void vt_place_close(vt_place *place);

typedef struct {
    vt_members members;
    bool test;                       /* the test set, else the validation set */
    int64_t rollout;                 /* steps of each forecast */
    int64_t every;                   /* use every N-th initial time */
    int64_t error_times;             /* of the training set, for vt_training_errors; 0: none; below: VT_UNSET_INTEGER */
    vt_place place;                  /* of the files */
    const char *channel;             /* that the maps show; NULL: t2m, or the last one */
    const char *forecasts, *command; /* the file that gets all forecasts, with the command in its history; NULL: none */
} vt_evaluation_options;

/* Collective. Forecasts from every initial time of a data set. Prints the loss and a table on standard output, and
 * writes loss.csv, scores.csv and map-….png. Ranks share out the initial times. */
vt_status vt_evaluate(vt_evaluation_options *options, const vt_launch *launch);

/* Collective. A U-Net's predictions: goes once through the validation samples. Prints the loss and the L1 of each
 * channel beside those of copying, and the power spectra of the density; writes l1.csv and spectrum.csv. */
vt_status vt_cubes_evaluate(const vt_trained *model, vt_place *place, const vt_launch *launch);

#endif
