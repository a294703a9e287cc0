/* Whether a run fits, before it takes anything: the plan of the dry back end against the memory that is free. */
#ifndef VT_TRAINING_BUDGET_H
#define VT_TRAINING_BUDGET_H

#include "training/plan.h"

/* Fails when `plan` needs more than `available` bytes; the message holds the total by category and the three settings
 * that would save most, each with how much. Of a model that has been trained (`trains` is false) only the number of
 * samples can change. */
vt_status vt_budget_check(const vt_config *config, const vt_plan_options *options, const vt_plan *plan,
                          double available, bool trains);

/* With keep_outputs: auto, `config` keeps them where device memory of `available` bytes then holds the run beside
 * `taken` bytes, with a tenth to spare for what libraries take; *plan is then the plan with them. The bits of the run
 * are the same. */
vt_status vt_budget_keep_outputs(vt_config *config, const vt_plan_options *options, double taken, double available,
                                 vt_plan *plan);

/* Fails when a run on a device needs more than `available` bytes of the host's memory: for the readers' batches, for
 * activations that wait there, and for the copy that checkpoints are written from. */
vt_status vt_budget_check_host(const vt_config *config, const vt_plan *plan, double available);

#endif
