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
#include "backend/cpu/vector/product_tile.h"

enum {
    TAPS = 64,
    SUBLATTICES = 8,
    PRODUCTS = 27,              /* of a tile */
    PLANE = 9,                  /* products with one j on the first axis */
    CACHED = 150000,            /* floats of a left operand that stay in the second-level cache */
    MOST_TILES = 8 * MOST_ROWS, /* of a strip */
    PADDING = 16                /* after a row of the left operand, so that rows do not compete for cache lines */
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

static inline int64_t tiles_of_strip(int64_t row)
{
    const int64_t fit = CACHED / (PLANE * row) / MOST_ROWS * MOST_ROWS;
    return fit < 2 * MOST_ROWS ? 2 * MOST_ROWS : smaller(fit, MOST_TILES);
}

/* to [rows × PANEL] = left right. */
static inline void multiply(const float *left, int64_t left_stride, int64_t rows, const float *right, int64_t deep,
                            float *to, int64_t to_stride)
{
    const int64_t runs = pieces(deep, DEPTH), tiles = pieces(rows, MOST_ROWS);
    for (int64_t run = 0; run < runs; run++) {
        const int64_t k = piece_begin(deep, runs, run), depth = piece_begin(deep, runs, run + 1) - k;
        upcoming next = {(const char *)(right + (k + depth) * PANEL), (int64_t)sizeof(float) * PANEL / tiles};
        for (int64_t tile = 0; tile < tiles; tile++, next.memory += depth * next.step) {
            const int64_t r = piece_begin(rows, tiles, tile);
            product_by_rows(piece_begin(rows, tiles, tile + 1) - r, left + r * left_stride + k, left_stride,
                            right + k * PANEL, depth, to + r * to_stride, to_stride, run > 0, next);
        }
    }
}

/* ---- the weight: [panels][PRODUCTS][depth × PANEL] ---- */

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

#endif
