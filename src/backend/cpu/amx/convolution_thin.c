/* Convolutions between few channels of x and many of y: plain sums over the 64 taps on tiles, of bfloat16 or of terms
 * (terms.h). This file: y; dx and dweight: convolution_thin_input.c, convolution_thin_weight.c.
 *
 * Planes 2 u - 1 and 2 u of x are seen by planes u - 1 and u of y, and lines 2 v - 1 and 2 v by lines v - 1 and v. So
 * each line of y has cells of pairs u and u + 1 of planes: [terms][parts][points of x, and one more at each end][8
 * lines: pairs of lines v, v + 1; 2 planes; 2 lines][channels of the part]. Parts have four channels, and those left
 * one each: then the tiles' rows are whole cache lines. Beyond the cube all is 0. What point q of a line of y sees of a
 * part begins at point 2 q of the cells and is 4 points long; so tiles are read in place. Sums run in a fixed order:
 * the bits do not depend on the number of threads. */
#include "backend/cpu/amx/convolution_thin_parts.h"

enum { LINES = 8, PART = 4, OF_PAIR = LINES / 2 };

/* numbers = four of each line of a pair. (Intrinsics here and below: gcc 11 lacks __builtin_shufflevector.) */
INLINE void take_part(const float *lines, int64_t line, float numbers[SIDE])
{
#if defined(__AVX512F__)
    const __m256 lower = _mm256_set_m128(_mm_loadu_ps(lines + line), _mm_loadu_ps(lines));
    const __m256 upper = _mm256_set_m128(_mm_loadu_ps(lines + 3 * line), _mm_loadu_ps(lines + 2 * line));
    _mm512_storeu_ps(numbers, _mm512_insertf32x8(_mm512_castps256_ps512(lower), upper, 1));
#else
    for (int l = 0; l < OF_PAIR; l++) memcpy(numbers + l * PART, lines + l * line, PART * sizeof *numbers);
#endif
}

/* to = four points of each of two pairs of lines, by turns; a point has OF_PAIR numbers. */
INLINE void join_points(const uint16_t *first, const uint16_t *second, uint16_t *to)
{
#if defined(__AVX512F__)
    const __m512i turns = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m256i lower = _mm256_loadu_si256((const __m256i *)(const void *)first);
    const __m256i upper = _mm256_loadu_si256((const __m256i *)(const void *)second);
    _mm512_storeu_si512(to,
                        _mm512_permutex2var_epi64(_mm512_castsi256_si512(lower), turns, _mm512_castsi256_si512(upper)));
#else
    for (int i = 0; i < 4; i++) {
        memcpy(to + 2 * i * OF_PAIR, first + i * OF_PAIR, OF_PAIR * sizeof *to);
        memcpy(to + (2 * i + 1) * OF_PAIR, second + i * OF_PAIR, OF_PAIR * sizeof *to);
    }
#endif
}

typedef struct {
    thin_work all;
    int64_t parts, singles; /* parts of four channels, of one */
    int64_t part, single;   /* numbers of such a part of a line's cells */
    int64_t cell;           /* of all parts */
    bool streams;           /* y goes past the caches: it is large, and has whole vectors of float32 */
} forward_work;

/* Where a tap (four on each axis) of a channel lies in the depth. The numbers of pairs of terms are 16 apart where the
 * weight is packed. */
static int64_t number_of(const forward_work *w, int64_t tap, int64_t channel)
{
    const int64_t first = tap / 16, second = tap / 4 % 4, third = tap % 4, single = channel - w->parts * PART;
    const int64_t line = second / 2 * OF_PAIR + first % 2 * 2 + second % 2;
    const int64_t step =
        single < 0 ? (channel / PART * 2 + first / 2) * 4 + third : w->parts * 8 + single * 2 + first / 2;
    const int64_t number = single < 0 ? line * PART + channel % PART : third * LINES + line;
    return step * DEPTH + (w->all.terms == 1 ? number : number % 2 * SIDE + number / 2);
}

/* Channels 16 * piece … of y. numbers: [SIDE][2 * row] */
static void pack_for_result(const forward_work *w, const vt_matrix *weight, int64_t piece, float *numbers, pair *to)
{
    const int64_t in = w->all.shape.in, columns = 2 * w->all.row;
    const vt_matrix rows = {.data = numbers,
                            .rows = SIDE,
                            .columns = columns,
                            .stride = columns,
                            .type = w->all.terms == 1 ? VT_BFLOAT16 : VT_FLOAT32};
    memset(numbers, 0, (size_t)(SIDE * columns) * sizeof *numbers);
    for (int64_t i = 0; i < smaller(SIDE, w->all.shape.out - piece * SIDE); i++) {
        float row[NUMBERS];
        for (int64_t c = 0; c < in; c++) {
            for (int64_t tap = 0; tap < TAPS; tap += LANES) {
                const vector taps = load_elements(weight, (piece * SIDE + i) * weight->stride + c * TAPS + tap);
                for (int64_t l = 0; l < LANES; l++) row[number_of(w, tap + l, c)] = taps[l];
            }
        }
        for (int64_t k = 0; k < columns; k += LANES) store_elements(&rows, i * columns + k, load(row + k));
    }
    for (int64_t k = 0; k < w->all.steps; k++)
        pack_right_across(&rows, 0, k * DEPTH, to + (piece * w->all.steps + k) * w->all.terms * TILE_PAIRS);
}

/* Cells of two pairs of planes; pair u is at u % 2. The lines follow, and the parts of one channel of two pairs. */
static uint16_t *cells_of(const forward_work *w, uint16_t *cells, int64_t u)
{
    return cells + u % 2 * w->all.shape.side * w->all.terms * w->cell;
}

static int64_t singles_of_pair(const forward_work *w)
{
    return w->singles * w->all.terms * w->single / 2;
}

static int64_t cells_and_lines(const forward_work *w)
{
    return 2 * w->all.shape.side * w->all.terms * w->cell + 2 * 4 * w->all.line + 2 * singles_of_pair(w);
}

/* Four channels of a pair of lines: to the cells of the lines of y that see it. */
static void fill_part(const forward_work *w, const float *lines, uint16_t *upper, uint16_t *lower)
{
    const int64_t in = w->all.shape.in, line = w->all.line;
    for (int64_t p2 = 0; p2 < w->all.across; p2++, lines += in) {
        float numbers[SIDE];
        take_part(lines, line, numbers);
        for (int64_t i = 0; i < SIDE; i += LANES) {
            vector_half half[TERMS];
            halves_of_terms(w->all.terms, load(numbers + i), half);
            for (int64_t t = 0; t < w->all.terms; t++) {
                const int64_t at = t * w->cell + p2 * 2 * SIDE + i;
                if (upper != NULL) memcpy(upper + SIDE + at, &half[t], sizeof half[t]);
                if (lower != NULL) memcpy(lower + at, &half[t], sizeof half[t]);
            }
        }
    }
}

/* One channel of a pair of lines: to [terms][points][OF_PAIR]; together with those of the pair before: to the cells of
 * the line of y that sees both. */
static void fill_single(const forward_work *w, const float *lines, const uint16_t *before, uint16_t *own, uint16_t *to)
{
    const int64_t in = w->all.shape.in, line = w->all.line;
    for (int64_t at = 0; at < w->single / 2; at += SIDE, lines += 4 * in) {
        float numbers[SIDE];
        for (int p = 0; p < 4; p++)
            for (int l = 0; l < OF_PAIR; l++) numbers[p * OF_PAIR + l] = lines[p * in + l * line];
        for (int64_t i = 0; i < SIDE; i += LANES) {
            vector_half half[TERMS];
            halves_of_terms(w->all.terms, load(numbers + i), half);
            for (int64_t t = 0; t < w->all.terms; t++)
                memcpy(own + t * w->single / 2 + at + i, &half[t], sizeof half[t]);
        }
        for (int64_t t = 0; t < w->all.terms && to != NULL; t++)
            join_points(before + t * w->single / 2 + at, own + t * w->single / 2 + at, to + t * w->cell + 2 * at);
    }
}

/* Planes 2 u - 1 and 2 u of x: cells [side][terms][cell]. */
static void fill_cells(const forward_work *w, int64_t u, uint16_t *cells)
{
    const int64_t side = w->all.shape.side, line = w->all.line, terms = w->all.terms;
    uint16_t *to = cells_of(w, cells, u);
    float *lines = (float *)(cells + 2 * side * terms * w->cell);
    uint16_t *singles = (uint16_t *)(lines + OF_PAIR * line);
    for (int64_t v = 0; v <= side; v++) {
        uint16_t *upper = v > 0 ? to + (v - 1) * terms * w->cell : NULL;
        uint16_t *lower = v < side ? to + v * terms * w->cell : NULL;
        for (int64_t l = 0; l < OF_PAIR; l++)
            load_line(&w->all, 2 * u - 1 + l / 2, 2 * v - 1 + l % 2, lines + l * line);
        for (int64_t part = 0; part < w->parts; part++)
            fill_part(w, lines + part * PART, upper == NULL ? NULL : upper + part * w->part,
                      lower == NULL ? NULL : lower + part * w->part);
        for (int64_t i = 0; i < w->singles; i++) {
            uint16_t *own = singles + i * terms * w->single / 2;
            fill_single(w, lines + w->parts * PART + i, own + (1 - v % 2) * singles_of_pair(w),
                        own + v % 2 * singles_of_pair(w),
                        upper == NULL ? NULL : upper + w->parts * w->part + i * w->single);
        }
    }
}

/* A run of steps, added to the sums unless it is the first. Not inlined: one copy of each is enough. */
static __attribute__((noinline)) void multiply_cells(int terms, tile_block block, upcoming *ahead)
{
    if (terms == 1)
        multiply_block(1, true, true, block, prefetch_beside, ahead);
    else
        multiply_block(TERMS, true, true, block, prefetch_beside, ahead);
}

/* Sums [BLOCK × BLOCK] of a panel of y, of cells `distance` numbers apart. */
static void multiply_parts(const forward_work *w, const uint16_t *cells, int64_t distance, int64_t point, int64_t panel,
                           float *sums, int64_t width, upcoming ahead)
{
    const int terms = w->all.terms;
    tile_block block = {.sums = sums, .width = width};
    block.a.term = w->cell / 2;
    block.b = (packed){.tiles = w->all.right + 2 * panel * w->all.steps * terms * TILE_PAIRS,
                       .piece = w->all.steps * terms * TILE_PAIRS};
    ahead.steps = w->all.steps;
    /* cppcheck-suppress-begin invalidPointerCast ; numbers are read two at a time */
    for (int64_t i = 0; i < 2 * w->parts; i++, block.b.tiles += block.steps * terms * TILE_PAIRS) {
        const int64_t row = 2 * PART * LINES; /* numbers from a point of y to the next */
        block.a.tiles = (const pair *)(cells + i % 2 * distance + i / 2 * w->part + point * row);
        block.a.row = row * 2, block.a.piece = SIDE * row / 2, block.a.step = SIDE, block.steps = 4;
        multiply_cells(terms, block, &ahead);
        block.add = true;
    }
    for (int64_t i = 0; i < w->singles; i++, block.b.tiles += block.steps * terms * TILE_PAIRS) {
        const int64_t row = 2 * LINES;
        block.a.tiles = (const pair *)(cells + w->parts * w->part + i * w->single + point * row);
        block.a.row = row * 2, block.a.piece = SIDE * row / 2, block.a.step = distance / 2, block.steps = 2;
        multiply_cells(terms, block, &ahead);
        block.add = true;
    }
    /* cppcheck-suppress-end invalidPointerCast */
}

/* Planes first … of y. memory: sums, cells, lines. */
static void forward_planes(const forward_work *w, int64_t first, int64_t end, float *sums)
{
    const int64_t side = w->all.shape.side, width = w->all.panels * BLOCK, line = w->all.terms * w->cell;
    const product_result to = {.result = w->all.y};
    uint16_t *cells = (uint16_t *)(sums + BLOCK * width);
    fill_cells(w, first, cells);
    for (int64_t q0 = first; q0 < end; q0++) {
        fill_cells(w, q0 + 1, cells);
        for (int64_t block = 0; block < w->all.blocks; block++) {
            const int64_t point = block * BLOCK, row = q0 * side * side + point;
            const uint16_t *own = cells_of(w, cells, q0) + point / side * line;
            for (int64_t panel = 0; panel < w->all.panels; panel++) {
                upcoming ahead = {0};
                if (!w->streams) { /* a part of the block's rows beside each panel */
                    const int64_t r = piece_begin(BLOCK, w->all.panels, panel);
                    ahead = rows_of(&w->all.y, row + r, piece_begin(BLOCK, w->all.panels, panel + 1) - r, 0, width);
                }
                multiply_parts(w, own, cells_of(w, cells, q0 + 1) - cells_of(w, cells, q0), point % side, panel,
                               sums + panel * BLOCK, width, ahead);
            }
            if (w->streams) {
                for (int64_t r = 0; r < BLOCK; r++)
                    for (int64_t c = 0; c < w->all.y.columns; c += LANES)
                        stream(w->all.y.data + (row + r) * w->all.y.stride + c, load(sums + r * width + c));
            } else {
                finish_block(&to, sums, width, row, BLOCK, 0, width);
            }
        }
    }
}

void VT_KERNEL(vt_thin_convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                            vt_matrix weight, vt_matrix y)
{
    forward_work w = {.all = work_of(shape, x.type), .parts = shape->in / PART, .singles = shape->in % PART};
    w.streams = y.type == VT_FLOAT32 && y.stride % LANES == 0 && may_stream(y.data, y.rows, y.columns);
    w.all.steps = 2 * shape->in;
    w.all.panels = pieces(shape->out, BLOCK);
    w.part = w.all.across * LINES * PART;
    w.single = pieces(w.all.across, 4) * 4 * LINES;
    w.cell = w.parts * w.part + w.singles * w.single;
    const int64_t groups = pieces(shape->side, PLANES), packing = SIDE * 2 * 2 * w.all.row;
    const int64_t own = 2 * BLOCK * w.all.panels * BLOCK + cells_and_lines(&w);
    pair *right =
        vt_cpu_shared(backend, (size_t)(2 * w.all.panels * w.all.steps * w.all.terms * TILE_PAIRS) * sizeof *right);
    if (right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(own > packing ? own : packing) * sizeof(uint16_t)))
        return;
    w.all.right = right;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < 2 * w.all.panels; piece++)
            pack_for_result(&w, &weight, piece, vt_cpu_scratch(backend), right);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < shape->batch * groups; item++) {
            forward_work cube = w;
            cube.all = of_cube(&w.all, item / groups, x, y);
            forward_planes(&cube, item % groups * PLANES, smaller(item % groups * PLANES + PLANES, shape->side),
                           vt_cpu_scratch(backend));
        }
        if (w.streams) stream_end();
        tiles_release();
    }
}
