/* vitrain plan: what each layout of a run would take, in memory and time, on a machine that need not be there. */
#ifndef VT_COMMAND_PLAN_H
#define VT_COMMAND_PLAN_H

#include "base/status.h"

vt_status vt_command_plan(int argument_count, char *const *arguments);

#endif
