/* vitrain [train] --config=NAME --key=value … */
#ifndef VT_COMMAND_TRAIN_H
#define VT_COMMAND_TRAIN_H

#include "base/status.h"

vt_status vt_command_train(int argument_count, char *const *arguments);

#endif
