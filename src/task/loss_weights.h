/* What the points of a forecast count in the loss: the options latitude_weights and channel_weights. */
#ifndef VT_TASK_LOSS_WEIGHTS_H
#define VT_TASK_LOSS_WEIGHTS_H

#include "config/config.h"

bool vt_loss_weights_are_set(const vt_config *config);

/* The log's line of loss and weights, where they are not the default. */
void vt_loss_weights_log(const vt_config *config);

/* channel_weights: auto, which follow from the channels' changes. */
bool vt_channel_weights_are_automatic(const vt_config *config);

/* weights [n_out_channels], mean 1: those of the list, or 1 / changes² for "auto", where changes [n_out_channels] are
 * standard deviations of the channels' changes over dt, normalised as the channels are; without the option all are 1.
 * NULL: only checks. Errors: not a list of as many numbers, none of them below 0, and not all 0. */
vt_status vt_channel_weights(const vt_config *config, const float *changes, float *weights);

#endif
