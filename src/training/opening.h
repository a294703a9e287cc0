/* What the log says before a run's first step: about ten lines for people; then, as details (vt_log_detail), the
 * configuration and the table of parameters, which the tutorials' log parsers read. */
#ifndef VT_TRAINING_OPENING_H
#define VT_TRAINING_OPENING_H

#include "data/source.h"
#include "training/loop.h"
#include "training/plan.h"

typedef struct {
    const vt_config *config;
    const vt_world *world;
    const vt_trainer *trainer;
    const vt_plan *plan;
    const vt_source *training, *validation, *test; /* test NULL: none */
    const char *run_directory;
    vt_loop_length length;
    int64_t batches; /* of a whole epoch */
} vt_opening;

/* The first rank also writes the table of the parameters to <run directory>/parameters.csv. */
vt_status vt_opening_log(const vt_opening *opening);

#endif
