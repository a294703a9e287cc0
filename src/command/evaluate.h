/* `vitrain evaluate --checkpoint=PATH`: how good a model's forecasts are. */
#ifndef VT_COMMAND_EVALUATE_H
#define VT_COMMAND_EVALUATE_H

#include "base/status.h"

/* arguments: those after the word "evaluate". */
vt_status vt_command_evaluate(int argument_count, char *const *arguments);

#endif
