/* vitrain plan: the memory and time that each layout of a run would take, on a machine that need not be present. */
#ifndef VT_COMMAND_PLAN_H
#define VT_COMMAND_PLAN_H

#include "base/status.h"

vt_status vt_command_plan(int argument_count, char *const *arguments);

#endif
