/* Arithmetic on whole numbers. */
#ifndef VT_BASE_WHOLE_H
#define VT_BASE_WHOLE_H

#include <stdint.h>

static inline int64_t vt_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* a / b, rounded up; both above 0, or a is 0. */
static inline int64_t vt_quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
