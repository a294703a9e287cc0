/* What `vitrain plan` shows beside layouts; each part in a file plan_*.c. */
#ifndef VT_COMMAND_PLAN_H
#define VT_COMMAND_PLAN_H

#include "command/command.h"
#include "planning/hardware.h"

/* ---- --rules: rules of thumb (plan_rules.c), for a GPT of the flags' sizes or for the run's model ---- */

/* config: of the run, resolved, of one rank; NULL: the flags say which model. */
vt_status vt_plan_rules_print(const vt_plan_flags *flags, const vt_config *config, const vt_hardware *hardware);

/* ---- --scaling: the fastest layout of a run on each of several numbers of ranks, as a table and a page ---- */

/* "1,2,4,8", or "1..512": these and the powers of two between; rising. *ranks [count] is malloc'd. */
vt_status vt_plan_scaling_ranks(const char *text, int64_t **ranks, int *count);

/* Strong scaling: the same batch on all of them. Weak scaling: config's batch on the first number of ranks, and more in
 * proportion. config: resolved, its ranks and batch are changed. Errors: no number of ranks has a layout that fits; the
 * page can't be written. */
vt_status vt_plan_scaling(vt_config *config, const vt_hardware *hardware, const int64_t *ranks, int count,
                          const char *path);

#endif
