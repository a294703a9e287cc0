/* The options of optimizers and of fp16's loss scale: what follows from them, and which do not go together. Inside of
 * src/config only. */
#ifndef VT_CONFIG_OPTIMIZER_H
#define VT_CONFIG_OPTIMIZER_H

#include "config/config.h"

/* Sets weight_decay where it is not set, and checks the rest. */
vt_status vt_config_resolve_optimizer(vt_config *config);

#endif
