/* Hands the figures of a run to the report: the log's lines, whose wording log parsers of the tutorials rely on. */
#ifndef VT_TRAINING_RECORD_H
#define VT_TRAINING_RECORD_H

#include "training/validate.h"

/* Before the first step: configuration, parameter table, what the run needs. */
void vt_record_configuration(const vt_config *config);
void vt_record_parameters(const vt_trainer *trainer);
void vt_record_plan(const vt_plan *plan);

/* After the forward pass of step index 1 of each epoch. */
void vt_record_memory(void);

/* epoch: 1 for the first; samples that were trained on, and the mean of the steps' losses. */
void vt_record_epoch(int64_t epoch, double seconds, int64_t samples, double mean_loss);

/* Names of the channels may be NULL. */
void vt_record_validation(const vt_config *config, const vt_validation *validation, const char *const *channel_names);

#endif
