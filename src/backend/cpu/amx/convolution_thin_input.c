/* Convolutions between few channels of x and many of y (convolution_thin.c): dx.
 *
 * The depth is the channels of planes u - 1 and u of dy, which planes 2 u - 1 and 2 u of x are seen by. The products
 * are what each point of dy adds to these planes of dx: [2 planes][4 lines][4 points][channels]. Two points of dx are
 * the sum of four places. */
#include "backend/cpu/amx/convolution_thin_parts.h"

/* Where a tap (four on each axis) of a channel lies among the numbers of both pairs of planes. */
static int64_t number_of(const thin_work *w, int64_t tap, int64_t channel)
{
    const int64_t first = tap / 16, rest = tap % 16; /* of line and point */
    return first / 2 * w->row + (first % 2 * 16 + rest) * w->shape.in + channel;
}

/* The weight of one channel of y: to [2 * row]. */
static void load_numbers(const thin_work *w, const vt_matrix *weight, int64_t o, float *to)
{
    for (int64_t c = 0; c < w->shape.in; c++) {
        for (int64_t tap = 0; tap < TAPS; tap += LANES) {
            const vector taps = load_elements(weight, o * weight->stride + c * TAPS + tap);
            for (int64_t i = 0; i < LANES; i++) to[number_of(w, tap + i, c)] = taps[i];
        }
    }
}

/* Depth of step `step`. numbers: [DEPTH][2 * row] */
static void pack_for_input(const thin_work *w, const vt_matrix *weight, int64_t step, float *numbers, pair *to)
{
    const int64_t columns = 2 * w->row;
    vt_matrix packed_rows = vt_matrix_make(numbers, DEPTH, columns);
    memset(numbers, 0, (size_t)(DEPTH * columns) * sizeof *numbers);
    for (int64_t k = 0; k < smaller(DEPTH, w->shape.out - step * DEPTH); k++)
        load_numbers(w, weight, step * DEPTH + k, numbers + k * columns);
    if (w->terms == 1) {
        packed_rows.half = (uint16_t *)(numbers + DEPTH * columns);
        packed_rows.type = VT_BFLOAT16;
        for (int64_t i = 0; i < DEPTH * columns; i += LANES) store_elements(&packed_rows, i, load(numbers + i));
    }
    for (int64_t i = 0; i < columns / SIDE; i++) {
        const int64_t d = i / (w->row / SIDE), piece = i % (w->row / SIDE);
        pack_right_along(&packed_rows, 0, i * SIDE, to + ((2 * piece + d) * w->steps + step) * w->terms * TILE_PAIRS);
    }
}

/* A line of plane 2 u - 1 + plane of dx: points 2 h - 1 and 2 h, from what points h and h - 1 of two lines of dy add to
 * this line: [side + 2][row], of which the first and the last are 0. row: of the line's first point. */
static void add_up_line(const thin_work *w, int64_t row, const float *own, const float *before)
{
    const int64_t side = w->shape.side, in = w->shape.in, points = w->x.stride == in ? 2 : 1;
    const int64_t next = w->row - 2 * in; /* from two points' numbers to those that the point before adds to them */
    own += w->row, before += w->row;
    for (int64_t h = 0; h <= side; h++, own += w->row, before += w->row) {
        const int64_t end = h == side ? 1 : 2;
        for (int64_t point = h == 0 ? 1 : 0; point < end; point += points) {
            const int64_t index = (row + 2 * h - 1 + point) * w->x.stride, count = smaller(points, end - point) * in;
            for (int64_t i = 0; i < count; i += LANES) {
                const float *a = own + point * in + i, *b = before + point * in + i;
                store_elements_up_to(&w->x, index + i, (load(a) + load(a - next)) + (load(b) + load(b - next)),
                                     count - i);
            }
        }
    }
}

/* Stores four lines of dx: 2 q1 - 1 and 2 q1 of the planes 2 u - 1 and 2 u. They are the sum of what line q1 of dy adds
 * to them (own), and of what line q1 - 1 adds (before). */
static void add_up_lines(const thin_work *w, int64_t u, int64_t q1, const float *own, const float *before)
{
    const int64_t side = 2 * w->shape.side, line = 4 * w->shape.in;
    for (int64_t i = 0; i < 4; i++) {
        const int64_t plane = i / 2, second = i % 2, p0 = 2 * u - 1 + plane, p1 = 2 * q1 - 1 + second;
        if (p0 < 0 || p0 >= side || p1 < 0 || p1 >= side) continue;
        add_up_line(w, (p0 * side + p1) * side, own + (4 * plane + second) * line,
                    before + (4 * plane + second + 2) * line);
    }
}

enum { SOME_LINES = 4 }; /* of dy that are worked on together */

/* Some lines of a plane of dy: to [2 * blocks][steps]. */
static void pack_lines(const thin_work *w, int64_t plane, int64_t q1, pair *to)
{
    const int64_t side = w->shape.side;
    for (int64_t i = 0; i < SOME_LINES * side / SIDE; i++) {
        const int64_t row = (plane * side + q1) * side + i * SIDE;
        for (int64_t k = 0; k < w->steps; k++, to += w->terms * TILE_PAIRS) {
            look_ahead_rows(&w->y, row + SIDE, smaller(SIDE, w->y.rows - row - SIDE), k * DEPTH,
                            smaller((k + 1) * DEPTH, w->y.columns), 0);
            pack_left_rows(&w->y, row, k * DEPTH, to);
        }
    }
}

/* Planes 2 u - 1 and 2 u of dx, u = first … end - 1. memory: what some lines add, zeros, what the line before adds for
 * each u, the packed lines of each plane of dy. */
static void input_planes(const thin_work *w, int64_t first, int64_t end, float *memory)
{
    const int64_t side = w->shape.side, step = w->terms * TILE_PAIRS, piece = w->steps * step;
    const int64_t blocks = SOME_LINES * side / BLOCK, size = (side + 2) * w->row + ROOM;
    float *zeros = memory + SOME_LINES * size, *before = zeros + size;
    pair *left = (pair *)(before + (end - first) * size);
    memset(memory, 0, (size_t)((SOME_LINES + 1 + end - first) * size) * sizeof *memory);
    for (int64_t q1 = 0; q1 < side; q1 += SOME_LINES) {
        for (int64_t plane = first > 0 ? first - 1 : 0; plane < smaller(end, side); plane++)
            pack_lines(w, plane, q1, left + (plane - first + 1) * 2 * blocks * piece);
        for (int64_t u = first; u < end; u++) {
            float *last = before + (u - first) * size;
            const int64_t first_d = u == side ? 1 : 0;
            for (int64_t d = first_d; d < (u == 0 ? 1 : 2); d++) {
                for (int64_t panel = 0; panel < w->panels; panel++) {
                    const packed b = {.tiles = w->right + (2 * panel * 2 + d) * piece, .piece = 2 * piece};
                    for (int64_t block = 0; block < blocks; block++) {
                        const packed a = {.tiles = left + ((u - d - first + 1) * blocks + block) * 2 * piece,
                                          .piece = piece};
                        float *sums = memory + block * BLOCK / side * size + (1 + block * BLOCK % side) * w->row;
                        multiply(w->terms, a, b, w->steps, sums + panel * BLOCK, w->row, d > first_d, (upcoming){0});
                    }
                }
            }
            for (int64_t i = 0; i < SOME_LINES; i++)
                add_up_lines(w, u, q1 + i, memory + i * size, i == 0 ? last : memory + (i - 1) * size);
            memcpy(last, memory + (SOME_LINES - 1) * size, (size_t)size * sizeof *memory);
        }
    }
    for (int64_t u = first; u < end; u++) add_up_lines(w, u, side, zeros, before + (u - first) * size);
}

void VT_KERNEL(vt_thin_convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                                   vt_matrix weight, vt_matrix dx)
{
    thin_work w = work_of(shape, dy.type);
    w.steps = pieces(shape->out, DEPTH);
    w.panels = shape->in;
    const int64_t piece = w.steps * w.terms * TILE_PAIRS, packing = 4 * DEPTH * w.row, planes = shape->side + 1;
    const int64_t groups = pieces(shape->side, PLANES), most = pieces(planes, groups);
    const int64_t own = (SOME_LINES + 1 + most) * ((shape->side + 2) * w.row + ROOM) +
                        (most + 1) * (SOME_LINES * shape->side / SIDE) * piece;
    pair *right = vt_cpu_shared(backend, (size_t)(4 * w.panels * piece) * sizeof *right);
    if (right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(own > packing ? own : packing) * sizeof *right))
        return;
    w.right = right;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t step = 0; step < w.steps; step++)
            pack_for_input(&w, &weight, step, vt_cpu_scratch(backend), right);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < shape->batch * groups; item++) {
            const thin_work cube = of_cube(&w, item / groups, dx, dy);
            input_planes(&cube, piece_begin(planes, groups, item % groups),
                         piece_begin(planes, groups, item % groups + 1), vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}
