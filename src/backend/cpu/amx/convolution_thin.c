/* Convolutions between few channels of x and many of y: plain sums over the 64 taps on tiles, of bfloat16 or of terms
 * (terms.h).
 *
 * Planes 2 u - 1 and 2 u of x are seen by planes u - 1 and u of y. In each of these two planes of x, point q of a line
 * of y sees points 2 q - 1 … 2 q + 2 of four lines. So the terms of both planes are copied, for each line of y, in this
 * order: [lines of y][terms][points of x, and one more at each end][2 planes][4 lines][channels]. What a point of y
 * sees of them then lies in one piece of 32 numbers for each channel, which begins 16 numbers for each channel after
 * that of the point before; bfloat16 tiles are read in place. Beyond the cube all is 0. For dweight, these pieces are
 * packed as the rows of a right operand.
 * For dx, the depth is the channels of two planes of dy. The products are what each point of dy adds to planes 2 u - 1
 * and 2 u of dx; a point of dx is the sum of four of them.
 * Sums run in a fixed order: the bits do not depend on the number of threads. */
#include "backend/cpu/amx/convolution_thin.h"
#include "backend/cpu/amx/runs.h"

enum {
    TAPS = 64,
    LINES = 8,            /* of two planes of x, that a line of y sees */
    ROOM = 32,            /* numbers after a line, since pieces are copied whole */
    PLANES = 4,           /* of y that a thread works on, one after the other */
    HALF_TAPS = TAPS / 2, /* of two planes of x */
    NUMBERS = TAPS * MOST_THIN
};

typedef struct {
    vt_convolution shape;
    int terms;
    vt_matrix x, y;        /* of one cube; or dx and dy */
    int64_t across, line;  /* points of a line of x and one more at each end; their numbers, with room */
    int64_t row;           /* numbers that a point of y sees of two planes */
    int64_t cells;         /* numbers of all that a line of y sees, with room */
    int64_t blocks;        /* of 32 points of y in a plane */
    int64_t steps, panels; /* of the depth; of BLOCK columns */
    const pair *right;
} thin_work;

static thin_work work_of(const vt_convolution *shape, vt_type type)
{
    thin_work w = {.shape = *shape, .terms = terms_of(type), .row = HALF_TAPS * shape->in};
    w.across = 2 * shape->side + 2;
    w.line = w.across * shape->in + ROOM;
    w.cells = pieces(w.across * LINES * shape->in + ROOM, DEPTH) * DEPTH;
    w.blocks = shape->side * shape->side / BLOCK;
    return w;
}

/* The work of cube `cube`, of all rows of x and y. */
static thin_work of_cube(const thin_work *w, int64_t cube, vt_matrix x, vt_matrix y)
{
    thin_work own = *w;
    own.x = from_row(x, cube * x.rows / w->shape.batch);
    own.y = from_row(y, cube * y.rows / w->shape.batch);
    return own;
}

/* Where a tap (four on each axis) of a channel lies among the numbers of both pairs of planes. */
static int64_t number_of(const thin_work *w, int64_t tap, int64_t channel)
{
    const int64_t first = tap / 16, second = tap / 4 % 4, third = tap % 4;
    return first / 2 * w->row + (third * LINES + first % 2 * 4 + second) * w->shape.in + channel;
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

/* Terms of LANES numbers, `distance` from one to the next. */
INLINE void store_each_term(int terms, vector value, uint16_t *to, int64_t distance)
{
    vector term[TERMS] = {value};
    if (terms > 1) split(value, term);
    for (int t = 0; t < terms; t++) {
        const vector_half half = upper_halves((vector_word)term[t]);
        memcpy(to + t * distance, &half, sizeof half);
    }
}

/* Points of a line of x whose numbers follow one another. */
static int64_t points_in_row(const thin_work *w)
{
    return w->x.stride == w->shape.in ? 2 * w->shape.side : 1;
}

/* A line of x: to [terms][line]. */
static void fill_line(const thin_work *w, int64_t p0, int64_t p1, uint16_t *to)
{
    const int64_t side = 2 * w->shape.side, in = w->shape.in, points = points_in_row(w), row = (p0 * side + p1) * side;
    memset(to, 0, (size_t)(w->terms * w->line) * sizeof *to);
    if (p0 < 0 || p0 >= side || p1 < 0 || p1 >= side) return;
    for (int64_t p2 = 0; p2 < side; p2 += points)
        for (int64_t i = 0, count = points * in; i < count; i += LANES)
            store_each_term(w->terms, load_elements_up_to(&w->x, (row + p2) * w->x.stride + i, count - i),
                            to + (p2 + 1) * in + i, w->line);
}

/* Cells of two pairs of planes; pair u is at u % 2. The lines follow. */
static uint16_t *cells_of(const thin_work *w, uint16_t *cells, int64_t u)
{
    return cells + u % 2 * w->shape.side * w->terms * w->cells;
}

static int64_t cells_and_lines(const thin_work *w)
{
    return 2 * w->terms * (w->shape.side * w->cells + w->across * w->line);
}

/* Planes 2 u - 1 and 2 u of x: cells [side][terms][cells], from lines [2][across][terms][line]. */
static void fill_cells(const thin_work *w, int64_t u, uint16_t *cells)
{
    const int64_t in = w->shape.in, size = w->terms * w->line;
    uint16_t *to = cells_of(w, cells, u), *lines = cells + 2 * w->shape.side * w->terms * w->cells;
    for (int64_t line = 0; line < 2 * w->across; line++)
        fill_line(w, 2 * u - 1 + line / w->across, line % w->across - 1, lines + line * size);
    for (int64_t q1 = 0; q1 < w->shape.side; q1++) {
        for (int t = 0; t < w->terms; t++) {
            const uint16_t *first = lines + 2 * q1 * size + t * w->line, *second = first + w->across * size;
            uint16_t *cell = to + (q1 * w->terms + t) * w->cells;
            for (int64_t p2 = 0; p2 < w->across; p2++, first += in, second += in) {
#pragma GCC unroll 8
                for (int l = 0; l < LINES; l++, cell += in) /* in this order: each copy ends in the next one's place */
                    memcpy(cell, (l < 4 ? first : second) + l % 4 * size, MOST_THIN * sizeof *cell);
            }
        }
    }
}

/* What block `block` of a plane of y sees in these cells. */
static const uint16_t *seen_by(const thin_work *w, const uint16_t *cells, int64_t block)
{
    const int64_t point = block * BLOCK, side = w->shape.side;
    return cells + point / side * w->terms * w->cells + point % side * w->row / 2;
}

/* ---- y, of bfloat16: in float32 the vectors' 27 products are as fast ---- */

/* Channels 16 * piece … of y. numbers: [SIDE][2 * row] */
static void pack_for_result(const thin_work *w, const vt_matrix *weight, int64_t piece, uint16_t *numbers, pair *to)
{
    const int64_t columns = 2 * w->row;
    const vt_matrix rows = {.half = numbers, .rows = SIDE, .columns = columns, .stride = columns, .type = VT_BFLOAT16};
    memset(numbers, 0, (size_t)(SIDE * columns) * sizeof *numbers);
    for (int64_t i = 0; i < smaller(SIDE, w->shape.out - piece * SIDE); i++) {
        float row[NUMBERS];
        load_numbers(w, weight, piece * SIDE + i, row);
        for (int64_t k = 0; k < columns; k += LANES) store_elements(&rows, i * columns + k, load(row + k));
    }
    for (int64_t k = 0; k < w->steps; k++)
        pack_right_across(&rows, 0, k * DEPTH, to + (piece * w->steps + k) * TILE_PAIRS);
}

/* Planes first … of y. memory: sums, cells, lines. */
static void forward_planes(const thin_work *w, int64_t first, int64_t end, float *sums)
{
    const int64_t in = w->shape.in, width = w->panels * BLOCK;
    const product_result to = {.result = w->y};
    uint16_t *cells = (uint16_t *)(sums + BLOCK * width);
    fill_cells(w, first, cells);
    for (int64_t q0 = first; q0 < end; q0++) {
        fill_cells(w, q0 + 1, cells);
        for (int64_t block = 0; block < w->blocks; block++) {
            for (int64_t d = 0; d < 2; d++) {
                /* cppcheck-suppress invalidPointerCast ; numbers are read two at a time */
                const packed a = {.tiles = (const pair *)seen_by(w, cells_of(w, cells, q0 + d), block),
                                  .piece = SIDE * w->row / 4,
                                  .row = w->row / 2 * (int64_t)sizeof(uint16_t),
                                  .step = SIDE};
                for (int64_t panel = 0; panel < w->panels; panel++) {
                    const packed b = {.tiles = w->right + (2 * panel * w->steps + d * in) * TILE_PAIRS,
                                      .piece = w->steps * TILE_PAIRS};
                    multiply(1, a, b, in, sums + panel * BLOCK, width, d > 0, (upcoming){0});
                }
            }
            finish_block(&to, sums, width, (q0 * w->blocks + block) * BLOCK, BLOCK, 0, width);
        }
    }
}

void VT_KERNEL(vt_thin_convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                            vt_matrix weight, vt_matrix y)
{
    thin_work w = work_of(shape, x.type);
    w.steps = 2 * shape->in;
    w.panels = pieces(shape->out, BLOCK);
    const int64_t groups = pieces(shape->side, PLANES), packing = SIDE * 2 * w.row;
    const int64_t own = 2 * BLOCK * w.panels * BLOCK + cells_and_lines(&w);
    pair *right = vt_cpu_shared(backend, (size_t)(2 * w.panels * w.steps * TILE_PAIRS) * sizeof *right);
    if (right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(own > packing ? own : packing) * sizeof(uint16_t)))
        return;
    w.right = right;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < 2 * w.panels; piece++)
            pack_for_result(&w, &weight, piece, vt_cpu_scratch(backend), right);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < shape->batch * groups; item++) {
            const thin_work cube = of_cube(&w, item / groups, x, y);
            forward_planes(&cube, item % groups * PLANES, smaller(item % groups * PLANES + PLANES, shape->side),
                           vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}

/* ---- dx ---- */

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

/* Lines 2 q1 - 1 and 2 q1 of plane p0 = 2 u - 1 + plane of dx, from what lines q1 and q1 - 1 of dy add:
 * [side + 2][row], of which the first and the last are 0. */
static void add_up_lines(const thin_work *w, int64_t p0, int64_t plane, int64_t q1, const float *own,
                         const float *before)
{
    const int64_t side = 2 * w->shape.side, in = w->shape.in, next = w->row - 2 * LINES * in;
    for (int64_t second = 0; second < 2; second++) {
        const int64_t p1 = 2 * q1 - 1 + second, row = (p0 * side + p1) * side;
        if (p1 < 0 || p1 >= side) continue;
        for (int64_t p2 = 0; p2 < side; p2++) {
            const int64_t h = (p2 + 1) / 2, at = (h + 1) * w->row + (((p2 + 1) % 2) * LINES + 4 * plane + second) * in;
            for (int64_t c = 0; c < in; c += LANES) {
                const float *a = own + at + c, *b = before + at + 2 * in + c;
                store_elements_up_to(&w->x, (row + p2) * w->x.stride + c,
                                     (load(a) + load(a - next)) + (load(b) + load(b - next)), in - c);
            }
        }
    }
}

enum { SOME_LINES = 4 }; /* of dy that are worked on together */

/* Planes 2 u - 1 and 2 u of dx. memory: what the line before and some lines add, zeros, the packed rows. */
static void input_planes(const thin_work *w, int64_t u, float *memory)
{
    const int64_t side = w->shape.side, step = w->terms * TILE_PAIRS, piece = 2 * w->steps * step;
    const int64_t first = u == side ? 1 : 0, end = u == 0 ? 1 : 2, size = (side + 2) * w->row + ROOM;
    const float *zeros = memory + (1 + SOME_LINES) * size;
    pair *left = (pair *)(memory + (2 + SOME_LINES) * size);
    memset(memory, 0, (size_t)((2 + SOME_LINES) * size) * sizeof *memory);
    for (int64_t q1 = 0; q1 < side; q1 += SOME_LINES) {
        const int64_t blocks = SOME_LINES * side / BLOCK;
        for (int64_t d = first; d < end; d++) {
            for (int64_t i = 0; i < 2 * blocks; i++) {
                const int64_t row = ((u - d) * side + q1) * side + i * SIDE;
                for (int64_t k = 0; k < w->steps; k++) {
                    look_ahead_rows(&w->y, row + SIDE, smaller(SIDE, w->y.rows - row - SIDE), k * DEPTH,
                                    smaller((k + 1) * DEPTH, w->y.columns), 0);
                    pack_left_rows(&w->y, row, k * DEPTH, left + i * piece + (d * w->steps + k) * step);
                }
            }
        }
        for (int64_t d = first; d < end; d++) {
            for (int64_t panel = 0; panel < w->panels; panel++) {
                const packed b = {.tiles = w->right + 2 * panel * piece + d * w->steps * step, .piece = piece};
                for (int64_t block = 0; block < blocks; block++) {
                    const packed a = {.tiles = left + 2 * block * piece + d * w->steps * step, .piece = piece};
                    float *sums = memory + (1 + block * BLOCK / side) * size + (1 + block * BLOCK % side) * w->row;
                    multiply(w->terms, a, b, w->steps, sums + panel * BLOCK, w->row, d > first, (upcoming){0});
                }
            }
        }
        for (int64_t i = 0; i < SOME_LINES; i++)
            for (int64_t plane = u == 0 ? 1 : 0; plane < (u == side ? 1 : 2); plane++)
                add_up_lines(w, 2 * u - 1 + plane, plane, q1 + i, memory + (1 + i) * size, memory + i * size);
        memcpy(memory, memory + SOME_LINES * size, (size_t)size * sizeof *memory);
    }
    for (int64_t plane = u == 0 ? 1 : 0; plane < (u == side ? 1 : 2); plane++)
        add_up_lines(w, 2 * u - 1 + plane, plane, side, zeros, memory);
}

void VT_KERNEL(vt_thin_convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                                   vt_matrix weight, vt_matrix dx)
{
    thin_work w = work_of(shape, dy.type);
    w.steps = pieces(shape->out, DEPTH);
    w.panels = shape->in;
    const int64_t piece = 2 * w.steps * w.terms * TILE_PAIRS, packing = 4 * DEPTH * w.row, planes = shape->side + 1;
    const int64_t own =
        (2 + SOME_LINES) * ((shape->side + 2) * w.row + ROOM) + 2 * (SOME_LINES * shape->side / BLOCK) * piece;
    pair *right = vt_cpu_shared(backend, (size_t)(2 * w.panels * piece) * sizeof *right);
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
        for (int64_t item = 0; item < shape->batch * planes; item++) {
            const thin_work cube = of_cube(&w, item / planes, dx, dy);
            input_planes(&cube, item % planes, vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}

/* ---- dweight: sums [channels of y][2 * row] of some planes ---- */

enum { TOGETHER = 4 }; /* blocks of points that are packed together */

/* 32 rows of 16 numbers, `stride` apart: the numbers of a pair come from the same rows as those of a left operand. */
static void pack_points(int terms, const uint16_t *from, int64_t stride, pair *to)
{
    for (int64_t p = 0; p < SIDE; p++) {
        const uint16_t *first = from + (terms > 1 ? p : 2 * p) * stride;
        join_rows((const pair *)first, (const pair *)(first + (terms > 1 ? SIDE : 1) * stride), to + p * SIDE);
    }
}

/* Planes first … of y. memory: packed blocks of dy and x, cells, lines. */
static void add_planes(const thin_work *w, int64_t first, int64_t end, bool add, pair *left, float *sums)
{
    const int64_t step = w->terms * TILE_PAIRS, piece = TOGETHER * step, blocks = pieces(w->shape.out, BLOCK);
    const int64_t width = 2 * w->row, pieces_of_x = w->row / SIDE;
    pair *right = left + 2 * blocks * piece;
    uint16_t *cells = (uint16_t *)(right + 2 * w->panels * piece);
    fill_cells(w, first, cells);
    for (int64_t q0 = first; q0 < end; q0++) {
        fill_cells(w, q0 + 1, cells);
        for (int64_t begin = 0; begin < w->blocks; begin += TOGETHER) {
            const int64_t steps = smaller(TOGETHER, w->blocks - begin);
            for (int64_t s = 0; s < steps; s++) {
                const int64_t row = (q0 * w->blocks + begin + s) * BLOCK;
                for (int64_t i = 0; i < 2 * blocks; i++) {
                    look_ahead_rows(&w->y, row + BLOCK, smaller(BLOCK, w->y.rows - row - BLOCK), i * SIDE,
                                    smaller((i + 1) * SIDE, w->y.columns), 0);
                    pack_left_columns(&w->y, row, i * SIDE, left + i * piece + s * step);
                }
                for (int64_t i = 0; i < 2 * w->panels; i++) {
                    const uint16_t *from = seen_by(w, cells_of(w, cells, q0 + i / pieces_of_x), begin + s);
                    for (int t = 0; t < w->terms; t++)
                        pack_points(w->terms, from + i % pieces_of_x * SIDE + t * w->cells, w->row / 2,
                                    right + i * piece + s * step + t * TILE_PAIRS);
                }
            }
            for (int64_t panel = 0; panel < w->panels; panel++)
                for (int64_t block = 0; block < blocks; block++)
                    multiply(w->terms, (packed){.tiles = left + 2 * block * piece, .piece = piece},
                             (packed){.tiles = right + 2 * panel * piece, .piece = piece}, steps,
                             sums + block * BLOCK * width + panel * BLOCK, width, add || q0 > first || begin > 0,
                             (upcoming){0});
        }
    }
}

void VT_KERNEL(vt_thin_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                    vt_matrix dy, float *dweight)
{
    thin_work w = work_of(shape, x.type);
    w.panels = 2 * w.row / BLOCK;
    const int64_t blocks = pieces(shape->out, BLOCK), groups = pieces(shape->side, PLANES), in = shape->in;
    const int64_t size = blocks * BLOCK * 2 * w.row;
    const int64_t own = 4 * w.terms * (blocks + w.panels) * TOGETHER * TILE_PAIRS + cells_and_lines(&w);
    float *sums = vt_cpu_shared(backend, (size_t)(groups * size) * sizeof *sums);
    if (sums == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof(uint16_t))) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t group = 0; group < groups; group++) {
            for (int64_t i = 0; i < shape->batch; i++) {
                const thin_work cube = of_cube(&w, i, x, dy);
                add_planes(&cube, group * PLANES, smaller(group * PLANES + PLANES, shape->side), i > 0,
                           vt_cpu_scratch(backend), sums + group * size);
            }
        }
        tiles_release();
#pragma omp for collapse(2) schedule(static)
        for (int64_t o = 0; o < shape->out; o++) {
            for (int64_t c = 0; c < in; c++) {
                for (int64_t tap = 0; tap < TAPS; tap++) {
                    const float *from = sums + o * 2 * w.row + number_of(&w, tap, c);
                    float *to = dweight + (o * in + c) * TAPS + tap, sum = 0;
                    for (int64_t group = 0; group < groups; group++) sum += from[group * size];
                    *to = (shape->stores ? 0 : *to) + sum;
                }
            }
        }
    }
}
