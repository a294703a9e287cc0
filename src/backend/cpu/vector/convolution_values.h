/* Convolutions over cubes by Winograd's minimal filtering. On one axis a convolution of kernel 4 and stride 2 is two of
 * kernel 2 and stride 1: of the odd points of x with taps 0 and 2, and of its even points with taps 1 and 3. Two
 * results y0 = d0 a + d1 b and y1 = d1 a + d2 b take three products instead of four:
 *
 *     (d0 - d1) a     d1 (a + b)     (d1 - d2) b;     y0 = first + second, y1 = second - third
 *
 * (S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray, Fast Algorithms for Convolutional
 * Neural Networks, 2016.) So a tile of 2³ points of y needs 6³ points of x, and 27 products instead of 64, each over
 * the channels of all eight sublattices. Only sums, differences and factors of one occur, so little accuracy is lost.
 * Both gradients are the transposes of these three steps.
 *
 * On each axis, point i of a tile u is point 4 u - 1 + i of x; it belongs to sublattice i % 2, whose taps are i % 2 and
 * i % 2 + 2. "Value (s, j)" is product j of sublattice s, at place 3 s + j. Sums run in a fixed order: the bits do not
 * depend on the number of threads. */
#ifndef VT_BACKEND_CPU_VECTOR_CONVOLUTION_VALUES_H
#define VT_BACKEND_CPU_VECTOR_CONVOLUTION_VALUES_H

#include "backend/cpu/vector/product_parts.h"

enum {
    TAPS = 64,
    SUBLATTICES = 8,
    PRODUCTS = 27, /* of a tile */
    PLANE = 9,     /* products with one j on the first axis */
    PADDING = 16   /* floats after a row of the left operand, so that rows do not compete for cache lines */
};

typedef struct {
    vt_convolution shape;
    int64_t across, of_cube, count; /* tiles along an axis, of a cube, and of all */
} tiling;

static inline tiling tiling_of(const vt_convolution *shape)
{
    tiling t = {.shape = *shape, .across = shape->side / 2};
    t.of_cube = t.across * t.across * t.across;
    t.count = shape->batch * t.of_cube;
    return t;
}

/* at: the cube, and the tile's coordinates in it. */
static inline void tile_place(const tiling *t, int64_t tile, int64_t at[4])
{
    at[3] = tile % t->across;
    tile /= t->across;
    at[2] = tile % t->across;
    tile /= t->across;
    at[1] = tile % t->across;
    at[0] = tile / t->across;
}

/* The row of y of point `place` (0 … 7) of a tile. */
static inline int64_t result_row(const tiling *t, const int64_t at[4], int place)
{
    int64_t row = at[0];
    for (int axis = 0; axis < 3; axis++) row = row * t->shape.side + 2 * at[1 + axis] + (place >> (2 - axis) & 1);
    return row;
}

/* ---- values of the weight ---- */

/* Four taps become six values. */
INLINE void spread_taps(const vector *from, int64_t from_step, vector *to, int64_t to_step)
{
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        const vector first = from[s * from_step], last = from[(s + 2) * from_step];
        to[3 * s * to_step] = first;
        to[(3 * s + 1) * to_step] = first + last;
        to[(3 * s + 2) * to_step] = last;
    }
}

static inline void spread_kernel(const vector taps[TAPS], vector values[216])
{
    vector lines[96], planes[144];
    for (int i = 0; i < 16; i++) spread_taps(taps + 4 * i, 1, lines + 6 * i, 1);
    for (int i = 0; i < 24; i++) spread_taps(lines + i / 6 * 24 + i % 6, 6, planes + i / 6 * 36 + i % 6, 6);
    for (int i = 0; i < 36; i++) spread_taps(planes + i, 36, values + i, 36);
}

/* Where product j (j0, j1, j2) of sublattice s (s0, s1, s2) lies among a tile's values, [3 s0 + j0][3 s1 + j1][3 s2 +
 * j2]. */
INLINE int value_place(int j, int s)
{
    return 36 * (j / 9) + 6 * (j / 3 % 3) + j % 3 + 108 * (s >> 2) + 18 * (s >> 1 & 1) + 3 * (s & 1);
}

/* The kernels of `rows` channels, one in each lane; in the weight the channels are `step` apart. */
static inline void load_kernels(const vt_matrix *weight, int64_t index, int64_t step, int64_t rows, vector values[216])
{
    vector taps[TAPS];
    for (int64_t tap = 0; tap < TAPS; tap += LANES) {
        for (int64_t i = 0; i < LANES; i++)
            taps[tap + i] = i < rows ? load_elements(weight, index + i * step + tap) : (vector){0};
        transpose(taps + tap);
    }
    spread_kernel(taps, values);
}

/* ---- a tile's values ---- */

/* Values of a line of six points, in their place. */
INLINE void spread_points(vector *line, int64_t step)
{
    vector d[6];
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) d[i] = line[i * step];
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        line[3 * s * step] = d[s] - d[s + 2];
        line[(3 * s + 1) * step] = d[s + 2];
        line[(3 * s + 2) * step] = d[s + 2] - d[s + 4];
    }
}

/* Channels c … of a tile of x: values (s, j) on the first axis for one j, as [2][6 × 6]. */
static inline void spread_tile(const tiling *t, const vt_matrix *x, const int64_t at[4], int j, int64_t c,
                               int64_t count, vector values[72])
{
    const int64_t side = 2 * t->shape.side, size[3] = {side * side, side, 1};
    int64_t offset[3][6]; /* in x's rows; -1: beyond the cube, where all is 0 */
    for (int axis = 0; axis < 3; axis++) {
        for (int i = 0; i < 6; i++) {
            const int64_t p = 4 * at[1 + axis] - 1 + i;
            offset[axis][i] = p < 0 || p >= side ? -1 : p * size[axis];
        }
    }
    const int64_t cube = at[0] * side * side * side;
    for (int s = 0; s < 2; s++) {
        const int64_t plus = offset[0][j == 0 ? s : s + 2], minus = j == 1 ? -1 : offset[0][j == 0 ? s + 2 : s + 4];
        for (int i = 0; i < 36; i++) {
            const int64_t b = offset[1][i / 6], a = offset[2][i % 6];
            vector value = {0};
            if (a >= 0 && b >= 0) {
                const int64_t row = cube + a + b;
                if (plus >= 0) value = load_elements_up_to(x, (row + plus) * x->stride + c, count);
                if (minus >= 0) value -= load_elements_up_to(x, (row + minus) * x->stride + c, count);
            }
            values[36 * s + i] = value;
        }
    }
    for (int i = 0; i < 12; i++) spread_points(values + 6 * i, 1);
    for (int i = 0; i < 12; i++) spread_points(values + i / 6 * 36 + i % 6, 6);
}

/* The same among spread_tile's values, which have one j0: [s0][3 s1 + j1][3 s2 + j2]; j counts j1 and j2. */
INLINE int plane_place(int j, int s)
{
    return 6 * (j / 3) + j % 3 + 36 * (s >> 2) + 18 * (s >> 1 & 1) + 3 * (s & 1);
}

/* What a tile's values are made of, for one sublattice s and product j on the first two axes: lines of six points of
 * x. */
typedef struct {
    int64_t lines[2][2]; /* rows of x where the lines begin: of those that are added, and that are subtracted */
    int counts[2];       /* how many are inside the cube */
    int64_t point;       /* on the last axis */
} line_sources;

static inline line_sources find_lines(const tiling *t, const int64_t at[4], const int j[2], const int s[2])
{
    const int64_t side = 2 * t->shape.side;
    line_sources from = {.point = 4 * at[3] - 1};
    for (int which = 0; which < 4; which++) {
        const int seconds[2] = {which >> 1, which & 1}, minus = seconds[0] != seconds[1];
        int64_t line = at[0];
        bool inside = true;
        for (int axis = 0; axis < 2; axis++) {
            const int64_t p = 4 * at[1 + axis] - 1 + s[axis] + (j[axis] == 0 ? 0 : 2) + 2 * seconds[axis];
            inside = inside && p >= 0 && p < side && (j[axis] != 1 || !seconds[axis]);
            line = line * side + p;
        }
        if (inside) from.lines[minus][from.counts[minus]++] = line * side;
    }
    return from;
}

/* Channels c … c + count - 1 of the points. */
static inline void prefetch_lines(const tiling *t, const vt_matrix *x, const line_sources *from, int64_t c,
                                  int64_t count)
{
    const int64_t first = from->point < 0 ? 0 : from->point, end = smaller(2 * t->shape.side, from->point + 6);
    for (int minus = 0; minus < 2; minus++)
        for (int i = 0; i < from->counts[minus]; i++)
            look_ahead_rows(x, from->lines[minus][i] + first, end - first, c, smaller(c + count, x->columns), 0);
}

/* Channels c …: values (s, j) on the last axis, in their place. */
INLINE void spread_line(const tiling *t, const vt_matrix *x, const line_sources *from, int64_t c, int64_t count,
                        vector values[6])
{
    for (int i = 0; i < 6; i++) {
        const int64_t p = from->point + i;
        values[i] = (vector){0};
        if (p < 0 || p >= 2 * t->shape.side) continue;
        for (int n = 0; n < from->counts[0]; n++)
            values[i] += load_elements_up_to(x, (from->lines[0][n] + p) * x->stride + c, count);
        for (int n = 0; n < from->counts[1]; n++)
            values[i] -= load_elements_up_to(x, (from->lines[1][n] + p) * x->stride + c, count);
    }
    spread_points(values, 1);
}

/* Channels c … of a tile of dy: products with one j on the first axis. */
static inline void spread_gradient(const tiling *t, const vt_matrix *dy, const int64_t at[4], int j, int64_t c,
                                   int64_t count, vector products[PLANE])
{
    vector plane[4], line[2][3];
    for (int i = 0; i < 4; i++) {
        const vector zero = {0};
        const vector first = j == 2 ? zero : load_elements_up_to(dy, result_row(t, at, i) * dy->stride + c, count);
        const vector second = j == 0 ? zero : load_elements_up_to(dy, result_row(t, at, 4 + i) * dy->stride + c, count);
        plane[i] = j == 2 ? -second : first + second;
    }
    for (int i = 0; i < 2; i++) {
        line[i][0] = plane[2 * i];
        line[i][1] = plane[2 * i] + plane[2 * i + 1];
        line[i][2] = -plane[2 * i + 1];
    }
    for (int i = 0; i < 3; i++) {
        products[i] = line[0][i];
        products[3 + i] = line[0][i] + line[1][i];
        products[6 + i] = -line[1][i];
    }
}

/* ---- y, dx and dweight from sums ---- */

/* Adds a plane's sums [PLANE][rows][width] to results [tiles][8][columns]; the first `tiles` rows, `count` columns. */
static inline void add_results(const float *sums, int64_t rows, int64_t width, int64_t count, int64_t tiles, int j,
                               float *results, int64_t columns)
{
    for (int64_t tile = 0; tile < tiles; tile++, results += 8 * columns) {
        for (int64_t part = 0; part < count; part += LANES) {
            vector m[PLANE], line[6];
            for (int p = 0; p < PLANE; p++) m[p] = load(sums + (p * rows + tile) * width + part);
            for (int i = 0; i < 3; i++) {
                line[i] = m[i] + m[3 + i];
                line[3 + i] = m[3 + i] - m[6 + i];
            }
            for (int i = 0; i < 4; i++) {
                const vector *of = line + i / 2 * 3, value = i % 2 == 0 ? of[0] + of[1] : of[1] - of[2];
                float *first = results + i * columns + part, *second = first + 4 * columns;
                if (j < 2) store(first, load(first) + value);
                if (j > 0) store(second, load(second) + (j == 1 ? value : -value));
            }
        }
    }
}

/* On one axis, the values that a point of x is in: of tile u, product j, with a sign. */
typedef struct {
    int64_t u;
    int j;
    float sign;
} share;

/* Returns how many, at most 3. Point 0 of a tile is point 4 of the one before, and 1 is 5. */
static inline int shares_of(int64_t across, int64_t p, share of[3])
{
    const int64_t s = ~p & 1, m = (p + 1 - s) / 2, u = m / 2;
    int count = 0;
    if (m % 2 == 1) {
        of[0] = (share){u, 0, -1};
        of[1] = (share){u, 1, 1};
        of[2] = (share){u, 2, 1};
        return 3;
    }
    if (u < across) of[count++] = (share){u, 0, 1};
    if (u > 0) of[count++] = (share){u - 1, 2, -1};
    return count;
}

/* Of one point of x: the values' first channels, and their signs. */
static inline void add_terms(const float *const from[27], const float sign[27], int terms, const vt_matrix *dx,
                             int64_t to)
{
    const int64_t in = dx->columns;
    for (int64_t c = 0; c < in; c += LANES) {
        vector sum = {0};
        for (int i = 0; i < terms; i++) sum += splat(sign[i]) * load(from[i] + c);
        store_elements_up_to(dx, to + c, sum, in - c);
    }
}

/* Of the cubes that begin with cube `cube`, what each tile gives its points: [tiles][PRODUCTS][columns], of which
 * sublattice s has those from s * channels on. */
typedef struct {
    const float *values;
    int64_t cube, columns, channels;
} given_values;

/* Line `line` of x, of these cubes. */
static inline void collect(const tiling *t, const given_values *g, int64_t line, const vt_matrix *dx)
{
    const int64_t side = 2 * t->shape.side, across = t->across, columns = g->columns;
    const int64_t own = line / side / side, at[2] = {line / side % side, line % side};
    const int64_t sublattice = (~at[0] & 1) << 2 | (~at[1] & 1) << 1;
    share first[3], second[3], third[3];
    const float *begin[9];
    float begin_sign[9];
    int begins = 0;
    const int count = shares_of(across, at[0], first), others = shares_of(across, at[1], second);
    for (int a = 0; a < count; a++) {
        for (int b = 0; b < others; b++, begins++) {
            const int64_t tile = ((own * across + first[a].u) * across + second[b].u) * across;
            begin[begins] = g->values + (tile * PRODUCTS + 9 * first[a].j + 3 * second[b].j) * columns;
            begin_sign[begins] = first[a].sign * second[b].sign;
        }
    }
    for (int64_t p = 0; p < side; p++) {
        const float *from[27];
        float sign[27];
        int terms = 0;
        const int last = shares_of(across, p, third);
        for (int i = 0; i < begins; i++) {
            for (int c = 0; c < last; c++, terms++) {
                from[terms] =
                    begin[i] + (third[c].u * PRODUCTS + third[c].j) * columns + (sublattice | (~p & 1)) * g->channels;
                sign[terms] = begin_sign[i] * third[c].sign;
            }
        }
        add_terms(from, sign, terms, dx, ((g->cube * side * side + line) * side + p) * dx->stride);
    }
}

/* Six values become four taps. */
INLINE void gather_taps(const vector *from, int64_t from_step, vector *to, int64_t to_step)
{
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        const vector middle = from[(3 * s + 1) * from_step];
        to[s * to_step] = from[3 * s * from_step] + middle;
        to[(s + 2) * to_step] = middle + from[(3 * s + 2) * from_step];
    }
}

/* Adds the kernels whose values lie in the first `count` lanes to dweight, `step` floats from one to the next. */
static inline void add_kernels(const vector values[216], float *dweight, int64_t step, int64_t count)
{
    vector planes[144], lines[96], taps[TAPS];
    for (int i = 0; i < 36; i++) gather_taps(values + i, 36, planes + i, 36);
    for (int i = 0; i < 24; i++) gather_taps(planes + i / 6 * 36 + i % 6, 6, lines + i / 6 * 24 + i % 6, 6);
    for (int i = 0; i < 16; i++) gather_taps(lines + 6 * i, 1, taps + 4 * i, 1);
    for (int64_t tap = 0; tap < TAPS; tap += LANES) {
        transpose(taps + tap);
        for (int64_t i = 0; i < smaller(LANES, count); i++) {
            float *to = dweight + i * step + tap;
            store(to, load(to) + taps[tap + i]);
        }
    }
}

#endif
