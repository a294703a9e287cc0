/* The learning rate of each optimizer step. */
#ifndef VT_OPTIMIZER_SCHEDULE_H
#define VT_OPTIMIZER_SCHEDULE_H

#include "config/config.h"

typedef struct {
    vt_schedule_kind kind;
    double rate;    /* the highest */
    int64_t warmup; /* steps */
    int64_t length; /* steps from the highest to 0 */
} vt_schedule;

/* Step x = 0, 1, …: rate · min((x + 1) / warmup, ½ (1 + cos(π x / length))), without the parts that are off
 * (Loshchilov, Hutter 2017, without restarts). Beyond its length the cosine stays at 0. */
double vt_schedule_rate(const vt_schedule *schedule, int64_t step);

#endif
