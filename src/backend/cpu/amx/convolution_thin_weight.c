/* Convolutions between few channels of x and many of y (convolution_thin.c): dweight.
 *
 * The depth is the points of a line of y, 32 at a time; the rows of the products are the numbers that a point sees, and
 * the columns are the channels of y. For each tap on the last axis, x has the numbers that the points of a line of y
 * see, one after the other (with several terms: in pairs of points p and p + 16, as terms.h packs dy). Planes 2 u - 1
 * and 2 u have them in this order: [terms][lines of x][2 planes][channels][4 taps][points of y]. So the rows that a
 * line of y sees of a pair of planes follow one another, and tiles are read in place. Beyond the cube all is 0. */
#include "backend/cpu/amx/convolution_thin_parts.h"

enum { TOGETHER = 4 }; /* lines of y whose products are summed in the tiles */

typedef struct {
    thin_work all;
    int64_t term;   /* numbers of a term of a pair of planes */
    int64_t blocks; /* of BLOCK channels of y */
} weight_work;

/* The row of a tap of a channel. */
static int64_t row_of(const weight_work *w, int64_t tap, int64_t channel)
{
    const int64_t first = tap / 16, second = tap / 4 % 4, third = tap % 4;
    return first / 2 * w->all.row + ((second * 2 + first % 2) * w->all.shape.in + channel) * 4 + third;
}

/* Points 2 q and 2 q + 1 of a line, for each channel: to [channels][2][side + LANES], q = 0 … side. */
static void part_line(const weight_work *w, const float *line, float *to)
{
    const int64_t side = w->all.shape.side, in = w->all.shape.in, size = side + LANES;
    for (int64_t second = 0; second < 2; second++) {
        for (int64_t q = 0; q < side; q += LANES) {
            for (int64_t first = 0; first < in; first += LANES) {
                vector square[LANES];
#pragma GCC unroll 16
                for (int64_t i = 0; i < LANES; i++) square[i] = load(line + (2 * (q + i) + second) * in + first);
                transpose(square);
#pragma GCC unroll 8
                for (int64_t c = 0; c < smaller(MOST_THIN, LANES); c++)
                    if (first + c < in) store(to + (2 * (first + c) + second) * size + q, square[c]);
            }
        }
        for (int64_t c = 0; c < in; c++) to[(2 * c + second) * size + side] = line[(2 * side + second) * in + c];
    }
}

/* The terms of 32 numbers: to [terms][DEPTH], `distance` from one term to the next. */
INLINE void store_depth(int terms, const float *from, uint16_t *to, int64_t distance)
{
    for (int64_t i = 0; i < SIDE; i += LANES) {
        vector first[TERMS], second[TERMS];
        vector_half half;
        if (terms == 1) {
            half = upper_halves((vector_word)load(from + i));
            memcpy(to + i, &half, sizeof half);
            half = upper_halves((vector_word)load(from + SIDE + i));
            memcpy(to + SIDE + i, &half, sizeof half);
            continue;
        }
        split(load(from + i), first);
        split(load(from + SIDE + i), second);
        for (int t = 0; t < TERMS; t++) /* cppcheck-suppress invalidPointerCast ; numbers are stored two at a time */
            store_term_pairs(first[t], second[t], (pair *)(to + t * distance) + i);
    }
}

/* Planes 2 u - 1 and 2 u of x; pair u is at u % 2 of `pairs`. memory: a line, and its points. */
static void fill_pair(const weight_work *w, int64_t u, uint16_t *pairs, float *memory)
{
    const int64_t side = w->all.shape.side, in = w->all.shape.in, size = side + LANES;
    uint16_t *to = pairs + u % 2 * w->all.terms * w->term;
    float *points = memory + w->all.line;
    for (int64_t i = 0; i < 2 * w->all.across; i++) {
        load_line(&w->all, 2 * u - 1 + i % 2, i / 2 - 1, memory);
        part_line(w, memory, points);
        for (int64_t row = 0; row < 4 * in; row++, to += side) { /* of a channel and a tap */
            const float *from = points + (row / 4 * 2 + row % 2) * size + row % 4 / 2;
            for (int64_t q = 0; q < side; q += DEPTH) store_depth(w->all.terms, from + q, to + q, w->term);
        }
    }
}

/* Planes first … of y. memory: dy's packed tiles, pairs of planes, a line. */
static void add_planes(const weight_work *w, int64_t first, int64_t end, bool add, pair *memory, float *sums)
{
    const int64_t side = w->all.shape.side, terms = w->all.terms, step = terms * TILE_PAIRS, piece = TOGETHER * step;
    const int64_t width = w->blocks * BLOCK,
                  line = 16 * w->all.shape.in * side; /* numbers from a line of y to the next */
    uint16_t *pairs = (uint16_t *)(memory + 2 * w->blocks * piece);
    float *own = (float *)(pairs + 2 * terms * w->term);
    fill_pair(w, first, pairs, own);
    for (int64_t q0 = first; q0 < end; q0++) {
        fill_pair(w, q0 + 1, pairs, own);
        for (int64_t item = 0; item < side / DEPTH * pieces(side, TOGETHER); item++) {
            const int64_t q1 = item / (side / DEPTH) * TOGETHER, q2 = item % (side / DEPTH) * DEPTH;
            const int64_t steps = smaller(TOGETHER, side - q1);
            for (int64_t s = 0; s < steps; s++) {
                const int64_t row = (q0 * side + q1 + s) * side + q2;
                for (int64_t i = 0; i < 2 * w->blocks; i++) {
                    look_ahead_rows(&w->all.y, row + BLOCK, smaller(BLOCK, w->all.y.rows - row - BLOCK), i * SIDE,
                                    smaller((i + 1) * SIDE, w->all.y.columns), 0);
                    pack_right_along(&w->all.y, row, i * SIDE, memory + i * piece + s * step);
                }
            }
            for (int64_t row = 0; row < 2 * w->all.row; row += BLOCK) {
                const uint16_t *from =
                    pairs + (q0 + row / w->all.row) % 2 * terms * w->term + q1 * line + row % w->all.row * side + q2;
                /* cppcheck-suppress invalidPointerCast ; numbers are read two at a time */
                const packed a = {.tiles = (const pair *)from,
                                  .piece = SIDE * side / 2,
                                  .row = side * (int64_t)sizeof *from,
                                  .step = line / 2,
                                  .term = w->term / 2};
                for (int64_t block = 0; block < w->blocks; block++)
                    multiply(w->all.terms, a, (packed){.tiles = memory + 2 * block * piece, .piece = piece}, steps,
                             sums + row * width + block * BLOCK, width, add || q0 > first || item > 0, (upcoming){0});
            }
        }
    }
}

/* Channels o … of dweight, from the sums of all groups: [groups][2 * row][blocks * BLOCK]. */
static void store_gradient(const weight_work *w, const float *sums, int64_t groups, int64_t o, float *dweight)
{
    const int64_t in = w->all.shape.in, width = w->blocks * BLOCK;
    for (int64_t c = 0; c < in; c++) {
        for (int64_t tap = 0; tap < TAPS; tap += LANES) {
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++) {
                const float *from = sums + row_of(w, tap + i, c) * width + o;
                square[i] = load(from);
                for (int64_t group = 1; group < groups; group++)
                    square[i] += load(from + group * 2 * w->all.row * width);
            }
            transpose(square);
            for (int64_t i = 0; i < smaller(LANES, w->all.shape.out - o); i++) {
                float *to = dweight + ((o + i) * in + c) * TAPS + tap;
                store(to, (w->all.shape.stores ? (vector){0} : load(to)) + square[i]);
            }
        }
    }
}

void VT_KERNEL(vt_thin_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                    vt_matrix dy, float *dweight)
{
    weight_work w = {.all = work_of(shape, x.type), .blocks = pieces(shape->out, BLOCK)};
    w.term = w.all.across * 2 * shape->in * 4 * shape->side;
    const int64_t groups = pieces(shape->side, PLANES), size = 2 * w.all.row * w.blocks * BLOCK;
    const int64_t own = 2 * w.blocks * TOGETHER * w.all.terms * TILE_PAIRS + w.all.terms * w.term + w.all.line +
                        2 * MOST_THIN * (shape->side + LANES);
    float *sums = vt_cpu_shared(backend, (size_t)(groups * size) * sizeof *sums);
    if (sums == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof(pair))) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t group = 0; group < groups; group++) {
            for (int64_t i = 0; i < shape->batch; i++) {
                weight_work cube = w;
                cube.all = of_cube(&w.all, i, x, dy);
                add_planes(&cube, group * PLANES, smaller(group * PLANES + PLANES, shape->side), i > 0,
                           vt_cpu_scratch(backend), sums + group * size);
            }
        }
        tiles_release();
#pragma omp for schedule(static)
        for (int64_t o = 0; o < shape->out; o += LANES) store_gradient(&w, sums, groups, o, dweight);
    }
}
