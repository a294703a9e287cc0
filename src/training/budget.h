/* Whether a run fits, before it takes anything: the plan of the dry back end against the memory that is free. */
#ifndef VT_TRAINING_BUDGET_H
#define VT_TRAINING_BUDGET_H

#include "training/trainer.h"

/* Bytes of a category; MPI's own copies count as workspace. */
double vt_plan_bytes(const vt_plan *plan, vt_memory_category category);

/* Bytes of all categories together. */
double vt_plan_total(const vt_plan *plan);

/* Fails when `plan` needs more than `available` bytes; the message holds the total by category and the three settings
 * that would save most, each with how much. */
vt_status vt_budget_check(const vt_config *config, const vt_trainer_data *data, const vt_plan *plan, double available);

/* The same for a model that is trained: only the number of samples can change. */
vt_status vt_budget_check_forecast(const vt_config *config, const vt_trainer_data *data, const vt_plan *plan,
                                   double available);

/* "parameters 1.85 MB, gradients 1.85 MB, …": what is not 0. */
void vt_plan_describe(const vt_plan *plan, char *buffer, size_t size);

#endif
