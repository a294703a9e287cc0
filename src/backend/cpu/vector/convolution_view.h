/* How the rows of a convolution's products see a volume: which of its points each tap of a row is, and which row of the
 * result the sums belong to. A coordinate p of the finer cube and q of the coarser one meet at tap t where
 * p = 2 q - 1 + t, on each axis. */
#ifndef VT_BACKEND_CPU_VECTOR_CONVOLUTION_VIEW_H
#define VT_BACKEND_CPU_VECTOR_CONVOLUTION_VIEW_H

#include "backend/backend.h"

enum { TAPS = 64, PARITIES = 8 };

typedef struct {
    vt_matrix volume;
    int64_t side, from_side, to_side; /* of the cube of rows, of the volume, of the result */
    int64_t step, to_step;            /* of the volume's and of the result's coordinate for one of a row's */
    int64_t to_first[3];
    int8_t tap[TAPS][3]; /* what each tap adds to the volume's coordinate */
} view;

/* The rows of y see x. */
static inline view view_of_input(const vt_convolution *shape, vt_matrix x)
{
    view v = {.volume = x, .side = shape->side, .from_side = 2 * shape->side, .to_side = shape->side, .step = 2};
    v.to_step = 1;
    for (int tap = 0; tap < TAPS; tap++)
        for (int axis = 0; axis < 3; axis++) v.tap[tap][axis] = (int8_t)((tap >> (4 - 2 * axis) & 3) - 1);
    return v;
}

/* Points of x of one parity, p = 2 q + parity: on an axis, tap 1 of q and 3 of q - 1 (parity 0), or 0 of q + 1 and 2 of
 * q, in the order of `place_of`. */
static inline view view_of_parity(const vt_convolution *shape, vt_matrix dy, int parity)
{
    view v = {.volume = dy, .side = shape->side, .from_side = shape->side, .to_side = 2 * shape->side, .step = 1};
    v.to_step = 2;
    for (int axis = 0; axis < 3; axis++) {
        const int odd = parity >> (2 - axis) & 1;
        v.to_first[axis] = odd;
        for (int place = 0; place < 8; place++) v.tap[place][axis] = (int8_t)(odd - (place >> (2 - axis) & 1));
    }
    return v;
}

/* Of the points that meet a tap: odd taps meet even points. */
static inline int64_t parity_of(int64_t tap)
{
    return (~tap >> 4 & 1) << 2 | (~tap >> 2 & 1) << 1 | (~tap & 1);
}

/* Of a tap among those of its parity: on each axis the upper half of its number. */
static inline int64_t place_of(int64_t tap)
{
    return (tap >> 5 & 1) << 2 | (tap >> 3 & 1) << 1 | (tap >> 1 & 1);
}

/* at: sample and coordinates. */
static inline void view_place(const view *v, int64_t row, int64_t at[4])
{
    at[3] = row % v->side;
    row /= v->side;
    at[2] = row % v->side;
    row /= v->side;
    at[1] = row % v->side;
    at[0] = row / v->side;
}

/* The volume's row that is tap `tap` of the row at `at`; -1: padding. */
static inline int64_t view_row(const view *v, const int64_t at[4], int64_t tap)
{
    int64_t row = at[0];
    for (int axis = 0; axis < 3; axis++) {
        const int64_t place = at[1 + axis] * v->step + v->tap[tap][axis];
        if (place < 0 || place >= v->from_side) return -1;
        row = row * v->from_side + place;
    }
    return row;
}

static inline int64_t view_result(const view *v, int64_t row)
{
    int64_t at[4];
    view_place(v, row, at);
    int64_t result = at[0];
    for (int axis = 0; axis < 3; axis++) result = result * v->to_side + at[1 + axis] * v->to_step + v->to_first[axis];
    return result;
}

/* The eight terms of the data gradient of the point of x at `at`: the row of y, -1: none, and the tap of each. */
static inline int64_t collected_row(int64_t side, const int64_t at[3], int64_t term)
{
    int64_t row = 0;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t q = (at[axis] + 1) / 2 - (term >> (2 - axis) & 1);
        if (q < 0 || q >= side) return -1;
        row = row * side + q;
    }
    return row;
}

static inline int64_t collected_tap(const int64_t at[3], int64_t term)
{
    int64_t tap = 0;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t q = (at[axis] + 1) / 2 - (term >> (2 - axis) & 1);
        tap = tap * 4 + at[axis] + 1 - 2 * q;
    }
    return tap;
}

#endif
