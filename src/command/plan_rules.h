/* vitrain plan --rules: the rules of planning/rules.h, for a GPT of the flags' sizes or for the run's model. */
#ifndef VT_COMMAND_PLAN_RULES_H
#define VT_COMMAND_PLAN_RULES_H

#include "command/arguments.h"
#include "config/config.h"
#include "planning/hardware.h"

/* Its flags; 0: not given. */
typedef struct {
    vt_argument_choice what; /* NULL: no --rules; "": the rules; "megatron": the published table */
    int64_t layers, hidden, sequence, batch, words, gpus;
    double parameters, tokens, tflops;
} vt_plan_rules_flags;

/* Is there a flag that goes with --rules only? Its name, else NULL. */
const char *vt_plan_rules_given(const vt_plan_rules_flags *flags);

/* Does the run's model have to be known, as no other one is given? */
bool vt_plan_rules_needs_config(const vt_plan_rules_flags *flags);

/* config: resolved, of one rank; NULL where it isn't needed. */
vt_status vt_plan_rules_print(const vt_plan_rules_flags *flags, vt_config *config, const vt_hardware *hardware);

#endif
