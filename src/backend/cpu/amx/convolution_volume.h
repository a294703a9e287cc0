/* Volumes of points around a cube, for plain sums over the taps (convolution.c explains them). */
#ifndef VT_BACKEND_CPU_AMX_CONVOLUTION_VOLUME_H
#define VT_BACKEND_CPU_AMX_CONVOLUTION_VOLUME_H

#include <stdint.h>

enum { TAPS = 64, CORNERS = 8 };

/* Bit of an axis in s or d, which count 0 … 7, first axis first. */
static inline int on_axis(int corner, int axis)
{
    return corner >> (2 - axis) & 1;
}

static inline int tap_of(int s, int d)
{
    int tap = 0;
    for (int axis = 0; axis < 3; axis++) tap = 4 * tap + on_axis(s, axis) + 2 * on_axis(d, axis);
    return tap;
}

/* The row of x at point h of a sublattice: 2 h - 1 + s on each axis; -1: beyond the cube. */
static inline int64_t row_of_cell(int64_t side, const int64_t h[3], int s)
{
    int64_t row = 0;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t p = 2 * h[axis] - 1 + on_axis(s, axis);
        if (p < 0 || p >= 2 * side) return -1;
        row = 2 * side * row + p;
    }
    return row;
}

static inline int64_t row_of_point(int64_t side, const int64_t q[3])
{
    int64_t row = 0;
    for (int axis = 0; axis < 3; axis++) {
        if (q[axis] < 0 || q[axis] >= side) return -1;
        row = side * row + q[axis];
    }
    return row;
}

/* The row of dx at point h of a sublattice: 2 h + 1 - s on each axis. */
static inline int64_t row_of_result(int64_t side, const int64_t h[3], int s)
{
    int64_t row = 0;
    for (int axis = 0; axis < 3; axis++) row = 2 * side * row + 2 * h[axis] + 1 - on_axis(s, axis);
    return row;
}

#endif
