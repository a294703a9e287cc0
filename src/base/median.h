/* The median of measured values. */
#ifndef VT_BASE_MEDIAN_H
#define VT_BASE_MEDIAN_H

#include <stdlib.h>

/* For qsort: doubles, smallest first. */
static inline int vt_by_value(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

/* Sorts the values; for an even count, returns the upper one of the two in the middle. */
static inline double vt_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, vt_by_value);
    return values[count / 2];
}

#endif
