/* The options of optimizers, of the learning rate and of fp16's loss scale: what follows from them, and which do not go
 * together. Inside of src/config only. */
#ifndef VT_CONFIG_OPTIMIZER_H
#define VT_CONFIG_OPTIMIZER_H

#include "config/config.h"

/* A part of the mapping lr_schedule selects the schedule parts, unless the command line names another schedule and the
 * part is the file's. Before the options' scopes are checked. */
vt_status vt_config_choose_schedule(vt_config *config);

/* Sets weight_decay where it is not set, and checks the rest. */
vt_status vt_config_resolve_optimizer(vt_config *config);

#endif
