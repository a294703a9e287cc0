/* The learning rate of each optimizer step. */
#ifndef VT_OPTIMIZER_SCHEDULE_H
#define VT_OPTIMIZER_SCHEDULE_H

#include "config/config.h"

/* Step x = 0, 1, … of `length`: rate · min((x + 1) / warmup, ½ (1 + cos(π x / length))), without the parts that the
 * configuration leaves out (Loshchilov, Hutter 2017, without restarts). Beyond the length the cosine stays at 0. */
double vt_schedule_rate(const vt_config *config, int64_t length, int64_t step);

#endif
