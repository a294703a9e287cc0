/* vitrain plan --rules: the rules of planning/rules.h, for a GPT of the flags' sizes or for the run's model. */
#ifndef VT_COMMAND_PLAN_RULES_H
#define VT_COMMAND_PLAN_RULES_H

#include "command/flags.h"
#include "planning/hardware.h"

/* Does the run's model have to be known, as no other one is given? */
bool vt_plan_rules_needs_config(const vt_plan_flags *flags);

/* config: resolved, of one rank; NULL where it isn't needed. */
vt_status vt_plan_rules_print(const vt_plan_flags *flags, vt_config *config, const vt_hardware *hardware);

#endif
