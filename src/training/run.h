/* A whole training run from a configuration: opens what it needs, runs the loop, closes it all. */
#ifndef VT_TRAINING_RUN_H
#define VT_TRAINING_RUN_H

#include "config/config.h"

vt_status vt_run_training(const vt_config *config);

#endif
