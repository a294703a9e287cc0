/* y = x weightᵀ and dx = dy weight on tiles, strip of rows by strip (product.c). */
#ifndef VT_BACKEND_CPU_AMX_STRIPS_H
#define VT_BACKEND_CPU_AMX_STRIPS_H

#include "backend/cpu/amx/runs.h"

/* How many pairs a piece of an operand of this type has. */
static int64_t piece_pairs(vt_type type, int64_t steps)
{
    return steps * terms_of(type) * TILE_PAIRS;
}

typedef struct {
    vt_matrix left;
    product_result to;
    packed right;
    int64_t steps, panels; /* in panels of BLOCK columns */
} strip_work;

enum { WIDE = 4 }; /* panels that are stored together, for longer pieces of the result's rows */

/* Rows of a matrix of results, `columns` columns. */
static upcoming rows_of(const vt_matrix *matrix, int64_t first, int64_t rows, int64_t column, int64_t columns)
{
    int64_t size = (int64_t)vt_type_size(matrix->type), count = smaller(columns, matrix->columns - column);
    return (upcoming){.memory = (char *)matrix->data + (first * matrix->stride + column) * size,
                      .row = matrix->stride * size,
                      .bytes = count * size,
                      .rows = rows};
}

/* How many blocks of a strip with this many rows need no packing: those of whole tiles in bfloat16. */
static int64_t blocks_in_place(const vt_matrix *left, int64_t rows)
{
    bool pairs = left->type == VT_BFLOAT16 && left->stride % 2 == 0 && (uintptr_t)left->half % sizeof(pair) == 0;
    return pairs && left->columns % DEPTH == 0 ? rows / BLOCK : 0;
}

/* Returns such a block, from row `row` on. */
static packed in_matrix(const vt_matrix *left, int64_t row)
{
    /* cppcheck-suppress invalidPointerCast ; numbers are read two at a time */
    return (packed){.tiles = (const pair *)left->data + row * left->stride / 2,
                    .piece = SIDE * left->stride / 2,
                    .row = left->stride * (int64_t)sizeof *left->half,
                    .step = SIDE};
}

/* Rows first … of the panels begin … end - 1. */
static void multiply_strip(const strip_work *w, int64_t first, int64_t rows, int64_t begin, int64_t end, pair *memory)
{
    int terms = terms_of(w->left.type);
    int64_t piece = piece_pairs(w->left.type, w->steps), blocks = pieces(rows, BLOCK);
    int64_t in_place = blocks_in_place(&w->left, rows);
    for (int64_t i = 2 * in_place; i < 2 * blocks; i++) {
        for (int64_t k = 0; k < w->steps; k++) {
            int64_t row = first + i * SIDE, next = k + 1 < w->steps ? row : row + SIDE;
            look_ahead_rows(&w->left, next, smaller(SIDE, w->left.rows - next), (k + 1) % w->steps * DEPTH,
                            smaller(((k + 1) % w->steps + 1) * DEPTH, w->left.columns), 0);
            pack_left_rows(&w->left, row, k * DEPTH, memory + i * piece + k * terms * TILE_PAIRS);
        }
    }
    for (int64_t panel = begin; panel < end; panel += WIDE) {
        int64_t wide = smaller(WIDE, end - panel);
        for (int64_t block = 0; block < blocks; block++) {
            int64_t row = first + block * BLOCK, count = smaller(BLOCK, rows - block * BLOCK);
            packed left = {.tiles = memory + 2 * block * piece, .piece = piece};
            if (block < in_place) left = in_matrix(&w->left, row);
            float sums[BLOCK * WIDE * BLOCK];
            for (int64_t i = 0; i < wide; i++) {
                packed right = {.tiles = w->right.tiles + 2 * (panel + i) * w->right.piece, .piece = w->right.piece};
                int64_t r = piece_begin(count, wide, i), rows_here = piece_begin(count, wide, i + 1) - r;
                multiply(terms, left, right, w->steps, sums + i * BLOCK, WIDE * BLOCK, false,
                         rows_of(&w->to.result, row + r, rows_here, panel * BLOCK, wide * BLOCK));
            }
            finish_block(&w->to, sums, WIDE * BLOCK, row, count, panel * BLOCK, wide * BLOCK);
        }
    }
}

/* CACHE: half of a second-level cache. MOST_DEEP_PANELS: so many have sums that leave room in it. */
enum { CACHE = 1 << 20, MOST_DEEP_PANELS = 64 };

/* Rows first … of the panels begin … end - 1, run by run. memory: a run's part of the strip, then the sums [rows ×
 * panels]. */
static void multiply_deep(const strip_work *w, int64_t first, int64_t rows, int64_t begin, int64_t end, pair *memory)
{
    const int terms = terms_of(w->left.type);
    const int64_t step = terms * TILE_PAIRS, blocks = pieces(rows, BLOCK), width = (end - begin) * BLOCK;
    const int64_t in_place = blocks_in_place(&w->left, rows);
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    float *sums = (float *)(memory + 2 * blocks * RUN * step);
    for (int64_t k = 0; k < w->steps; k += RUN) {
        const int64_t steps = smaller(RUN, w->steps - k);
        for (int64_t i = 2 * in_place; i < 2 * blocks; i++) {
            const int64_t row = first + i * SIDE;
            for (int64_t s = k; s < k + steps; s++) {
                look_ahead_rows(&w->left, row, smaller(SIDE, w->left.rows - row), (s + RUN) * DEPTH,
                                smaller((s + RUN + 1) * DEPTH, w->left.columns), 0);
                pack_left_rows(&w->left, row, s * DEPTH, memory + (i * RUN + s - k) * step);
            }
        }
        for (int64_t panel = begin; panel < end; panel++) {
            const packed right = {.tiles = w->right.tiles + 2 * panel * w->right.piece + k * step,
                                  .piece = w->right.piece};
            for (int64_t block = 0; block < blocks; block++) {
                packed left = {.tiles = memory + 2 * block * RUN * step, .piece = RUN * step};
                if (block < in_place) {
                    left = in_matrix(&w->left, first + block * BLOCK);
                    left.tiles += k * SIDE;
                }
                multiply(terms, left, right, steps, sums + block * BLOCK * width + (panel - begin) * BLOCK, width,
                         k > 0, (upcoming){0});
            }
        }
    }
    finish_block(&w->to, sums, width, first, rows, begin * BLOCK, width);
}

/* Where not even one block of rows would fit the cache: strips of as many rows as whose part in a run, and sums, do;
 * with few rows the panels are divided among threads, too. */
static void multiply_deep_strips(vt_backend *backend, const strip_work *w)
{
    const int64_t step = terms_of(w->left.type) * TILE_PAIRS, threads = vt_cpu_threads(backend);
    const int64_t of_block = 2 * RUN * step + w->panels * BLOCK * BLOCK, blocks = pieces(w->to.result.rows, BLOCK);
    const int64_t most = CACHE / (of_block * (int64_t)sizeof(pair)), size = most > 1 ? most : 1;
    const shares strips = share_out(blocks, smaller(size, pieces(blocks, threads)), threads);
    const int64_t groups = strips.pieces < threads ? smaller(w->panels, pieces(2 * threads, strips.pieces)) : 1;
    if (!vt_cpu_scratch_reserve(backend, (size_t)(size * of_block) * sizeof(pair))) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t work = 0; work < strips.pieces * groups; work++) {
            const int64_t strip = work / groups, group = work % groups, first = BLOCK * share_begin(&strips, strip);
            const int64_t end = smaller(w->to.result.rows, BLOCK * share_begin(&strips, strip + 1));
            multiply_deep(w, first, end - first, piece_begin(w->panels, groups, group),
                          piece_begin(w->panels, groups, group + 1), vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}

/* The rows of a strip fill up to half of the second-level cache, and each thread gets several strips; with few rows the
 * panels are divided among threads, too. None of this changes the order of the sums. */
static void multiply_strips(vt_backend *backend, const strip_work *w)
{
    enum { MOST = 8 };
    size_t block_bytes = (size_t)(2 * piece_pairs(w->left.type, w->steps)) * sizeof(pair);
    int64_t threads = vt_cpu_threads(backend), blocks = pieces(w->to.result.rows, BLOCK);
    int64_t size = smaller(MOST, CACHE / (int64_t)block_bytes);
    while (size > 1 && blocks < 4 * threads * size) size--;
    if (size < 1) size = 1;
    shares strips = share_out(blocks, size, threads);
    int64_t groups = strips.pieces < threads ? smaller(w->panels, pieces(2 * threads, strips.pieces)) : 1;
    if (!vt_cpu_scratch_reserve(backend, (size_t)size * block_bytes)) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t work = 0; work < strips.pieces * groups; work++) {
            int64_t strip = work / groups, group = work % groups, first = BLOCK * share_begin(&strips, strip);
            int64_t end = smaller(w->to.result.rows, BLOCK * share_begin(&strips, strip + 1));
            multiply_strip(w, first, end - first, piece_begin(w->panels, groups, group),
                           piece_begin(w->panels, groups, group + 1), vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}

/* ---- the same for fewer rows than the weight has: the rows are packed for all threads, and each thread packs the
 * weight's panels that it works on, run by run, so that the weight is read once and not written again. Terms of the
 * weight's rows are packed as they lie, as a left operand: then the sums are transposed, not the weight. ---- */

enum { SOME_ROWS = 512, SOME_PANELS = 8 };

typedef struct {
    strip_work strip;
    vt_matrix weight;
    bool across;      /* the result's columns are rows of the weight */
    bool transposed;  /* the weight's panels are left operands */
    const pair *rows; /* packed: [blocks][2][steps], unless in place */
} panel_work;

static void pack_panels(const panel_work *w, int64_t begin, int64_t end, int64_t k, int64_t steps, pair *to)
{
    enum { AHEAD = 4 }; /* steps that a row is read ahead */
    const int64_t step = terms_of(w->weight.type) * TILE_PAIRS;
    if (w->across) {
        for (int64_t i = 2 * begin; i < 2 * end; i++) {
            const int64_t rows = smaller(SIDE, w->weight.rows - i * SIDE);
            for (int64_t s = k; s < k + steps; s++) {
                pair *tile = to + ((i - 2 * begin) * RUN + s - k) * step;
                look_ahead_rows(&w->weight, i * SIDE, rows, (s + AHEAD) * DEPTH,
                                smaller((s + AHEAD + 1) * DEPTH, w->weight.columns), 0);
                if (w->transposed)
                    pack_left_rows(&w->weight, i * SIDE, s * DEPTH, tile);
                else
                    pack_right_across(&w->weight, i * SIDE, s * DEPTH, tile);
            }
        }
        return;
    }
    for (int64_t s = k; s < k + steps; s++) {
        for (int64_t i = 2 * begin; i < 2 * end; i++) {
            const int64_t row = (s + 1) * DEPTH;
            look_ahead_rows(&w->weight, row, smaller(DEPTH, w->weight.rows - row), i * SIDE,
                            smaller((i + 1) * SIDE, w->weight.columns), 0);
            pack_right_along(&w->weight, s * DEPTH, i * SIDE, to + ((i - 2 * begin) * RUN + s - k) * step);
        }
    }
}

/* to [columns × rows] = transposed from [rows × columns], whole tiles. */
static void transpose_sums(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r += LANES) {
        for (int64_t c = 0; c < columns; c += LANES) {
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++) square[i] = load(from + (r + i) * columns + c);
            transpose(square);
            for (int64_t i = 0; i < LANES; i++) store(to + (c + i) * rows + r, square[i]);
        }
    }
}

/* memory: the packed panels, then the sums [rows × panels], and transposed. */
static void multiply_panels(const panel_work *w, int64_t begin, int64_t end, pair *memory)
{
    const int terms = terms_of(w->weight.type);
    const int64_t step = terms * TILE_PAIRS, rows = w->strip.to.result.rows, blocks = pieces(rows, BLOCK);
    const int64_t in_place = w->transposed ? 0 : blocks_in_place(&w->strip.left, rows);
    const int64_t piece = w->strip.steps * step, width = (end - begin) * BLOCK, across = blocks * BLOCK;
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    float *sums = (float *)(memory + SOME_PANELS * 2 * RUN * step);
    for (int64_t k = 0; k < w->strip.steps; k += RUN) {
        const int64_t steps = smaller(RUN, w->strip.steps - k);
        pack_panels(w, begin, end, k, steps, memory);
        for (int64_t block = 0; block < blocks; block++) {
            packed of_rows = {.tiles = w->rows + 2 * block * piece + k * step, .piece = piece};
            if (block < in_place) {
                of_rows = in_matrix(&w->strip.left, block * BLOCK);
                of_rows.tiles += k * SIDE;
            }
            for (int64_t panel = 0; panel < end - begin; panel++) {
                const packed of_weight = {.tiles = memory + panel * 2 * RUN * step, .piece = RUN * step};
                if (w->transposed)
                    multiply(terms, of_weight, of_rows, steps, sums + panel * BLOCK * across + block * BLOCK, across,
                             k > 0, (upcoming){0});
                else
                    multiply(terms, of_rows, of_weight, steps, sums + block * BLOCK * width + panel * BLOCK, width,
                             k > 0, (upcoming){0});
            }
        }
    }
    if (w->transposed) {
        transpose_sums(sums, width, across, sums + width * across);
        sums += width * across;
    }
    finish_block(&w->strip.to, sums, width, 0, rows, begin * BLOCK, width);
}

static void multiply_each_panel(vt_backend *backend, panel_work *w)
{
    const int64_t step = terms_of(w->weight.type) * TILE_PAIRS, rows = w->strip.to.result.rows;
    const int64_t threads = vt_cpu_threads(backend), blocks = pieces(rows, BLOCK), piece = w->strip.steps * step;
    const int64_t groups = pieces(w->strip.panels, smaller(SOME_PANELS, pieces(w->strip.panels, 2 * threads)));
    w->transposed = w->across && terms_of(w->weight.type) > 1;
    const int64_t first = w->transposed ? 0 : 2 * blocks_in_place(&w->strip.left, rows);
    const int64_t own = SOME_PANELS * (2 * RUN * step + (w->transposed ? 2 : 1) * blocks * BLOCK * BLOCK);
    pair *packed_rows = vt_cpu_shared(backend, (size_t)(2 * blocks * piece) * sizeof *packed_rows);
    if (packed_rows == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof *packed_rows)) return;
    w->rows = packed_rows;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for collapse(2) schedule(static)
        for (int64_t i = first; i < 2 * blocks; i++) {
            for (int64_t k = 0; k < w->strip.steps; k++) {
                if (w->transposed)
                    pack_right_across(&w->strip.left, i * SIDE, k * DEPTH, packed_rows + i * piece + k * step);
                else
                    pack_left_rows(&w->strip.left, i * SIDE, k * DEPTH, packed_rows + i * piece + k * step);
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t group = 0; group < groups; group++)
            multiply_panels(w, piece_begin(w->strip.panels, groups, group),
                            piece_begin(w->strip.panels, groups, group + 1), vt_cpu_scratch(backend));
        tiles_release();
    }
}

/* across: the columns of the right operand are rows of `weight`. */
static void multiply_weight(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across, product_result to)
{
    strip_work w = {
        .left = left, .to = to, .steps = pieces(left.columns, DEPTH), .panels = pieces(to.result.columns, BLOCK)};
    int64_t step = terms_of(weight.type) * TILE_PAIRS;
    if (left.rows <= SOME_ROWS && (4 * left.rows <= to.result.columns || (across && 8 * left.rows <= weight.columns))) {
        multiply_each_panel(backend, &(panel_work){.strip = w, .weight = weight, .across = across});
        return;
    }
    w.right.piece = piece_pairs(weight.type, w.steps);
    pair *right = vt_cpu_shared(backend, (size_t)(2 * w.panels * w.right.piece) * sizeof *right);
    if (right == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < w.steps; k++) {
        for (int64_t i = 0; i < 2 * w.panels; i++) {
            pair *tile = right + i * w.right.piece + k * step;
            if (across)
                pack_right_across(&weight, i * SIDE, k * DEPTH, tile);
            else
                pack_right_along(&weight, k * DEPTH, i * SIDE, tile);
        }
    }
    w.right.tiles = right;
    if (2 * w.right.piece * (int64_t)sizeof *right > CACHE && w.panels <= MOST_DEEP_PANELS)
        multiply_deep_strips(backend, &w);
    else
        multiply_strips(backend, &w);
}

#endif
