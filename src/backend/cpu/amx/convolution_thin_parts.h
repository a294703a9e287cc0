/* What the convolutions of few channels of x share: the work, and lines of x. */
#ifndef VT_BACKEND_CPU_AMX_CONVOLUTION_THIN_PARTS_H
#define VT_BACKEND_CPU_AMX_CONVOLUTION_THIN_PARTS_H

#include "backend/cpu/amx/convolution_thin.h"
#include "backend/cpu/amx/runs.h"

enum {
    TAPS = 64,
    ROOM = 32,  /* numbers after a line, since vectors are loaded whole */
    PLANES = 4, /* of y that a thread works on, one after the other */
    NUMBERS = TAPS * MOST_THIN
};

typedef struct {
    vt_convolution shape;
    int terms;
    vt_matrix x, y;        /* of one cube; or dx and dy */
    int64_t across, line;  /* points of a line of x and one more at each end; their numbers, with room */
    int64_t row;           /* numbers that a point of y sees of two planes of x */
    int64_t blocks;        /* of BLOCK points of y in a plane */
    int64_t steps, panels; /* of the depth; of BLOCK columns */
    const pair *right;
} thin_work;

static inline thin_work work_of(const vt_convolution *shape, vt_type type)
{
    const int64_t across = 2 * shape->side + 2;
    return (thin_work){.shape = *shape,
                       .terms = terms_of(type),
                       .across = across,
                       .line = across * shape->in + ROOM,
                       .row = TAPS / 2 * shape->in,
                       .blocks = shape->side * shape->side / BLOCK};
}

/* The work of cube `cube`, of all rows of x and y. */
static inline thin_work of_cube(const thin_work *w, int64_t cube, vt_matrix x, vt_matrix y)
{
    thin_work own = *w;
    own.x = from_row(x, cube * x.rows / w->shape.batch);
    own.y = from_row(y, cube * y.rows / w->shape.batch);
    return own;
}

/* Line p1 of plane p0 of x: to [line], from point -1 on; 0 beyond the cube. */
static inline void load_line(const thin_work *w, int64_t p0, int64_t p1, float *to)
{
    const int64_t side = 2 * w->shape.side, in = w->shape.in, row = (p0 * side + p1) * side;
    const int64_t points = w->x.stride == in ? side : 1; /* whose numbers follow one another */
    memset(to, 0, (size_t)w->line * sizeof *to);
    if (p0 < 0 || p0 >= side || p1 < 0 || p1 >= side) return;
    for (int64_t p2 = 0; p2 < side; p2 += points) {
        for (int64_t i = 0, count = points * in; i < count; i += LANES) {
            const int64_t index = (row + p2) * w->x.stride + i;
            prefetch_second(&w->x, index + 2 * side * w->x.stride);
            store(to + (p2 + 1) * in + i, load_elements_up_to(&w->x, index, count - i));
        }
    }
}

/* to[0 … terms - 1] = the terms of LANES numbers, as bfloat16. */
INLINE void halves_of_terms(int terms, vector value, vector_half to[TERMS])
{
    vector term[TERMS] = {value};
    if (terms > 1) split(value, term);
    for (int t = 0; t < terms; t++) to[t] = upper_halves((vector_word)term[t]);
}

#endif
