/* A whole training run from a configuration: opens what it needs, runs the loop, closes it all. Every rank of the
 * launch calls it; an error is noted on the rank that tells the user, and on the others the status says it alone. */
#ifndef VT_TRAINING_RUN_H
#define VT_TRAINING_RUN_H

#include "config/config.h"
#include "parallel/launch.h"

vt_status vt_run_training(const vt_config *config, const vt_launch *launch);

#endif
