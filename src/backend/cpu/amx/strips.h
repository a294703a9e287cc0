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

/* Multiplies the strips on all threads; with few rows the panels are divided among threads, too. bytes: of scratch
 * memory for each thread. */
static void run_strips(vt_backend *backend, const strip_work *w, shares strips, size_t bytes,
                       void multiply_one(const strip_work *w, int64_t first, int64_t rows, int64_t begin, int64_t end,
                                         pair *memory))
{
    const int64_t threads = vt_cpu_threads(backend);
    const int64_t groups = strips.pieces < threads ? smaller(w->panels, pieces(2 * threads, strips.pieces)) : 1;
    if (!vt_cpu_scratch_reserve(backend, bytes)) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t work = 0; work < strips.pieces * groups; work++) {
            const int64_t strip = work / groups, group = work % groups, first = BLOCK * share_begin(&strips, strip);
            const int64_t end = smaller(w->to.result.rows, BLOCK * share_begin(&strips, strip + 1));
            multiply_one(w, first, end - first, piece_begin(w->panels, groups, group),
                         piece_begin(w->panels, groups, group + 1), vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}

/* Where not even one block of rows fits the cache (backward of a language model's head): strips of as many rows as fit
 * it with their part of one run and their sums. */
static void multiply_deep_strips(vt_backend *backend, const strip_work *w)
{
    const int64_t step = terms_of(w->left.type) * TILE_PAIRS, threads = vt_cpu_threads(backend);
    const int64_t of_block = 2 * RUN * step + w->panels * BLOCK * BLOCK, blocks = pieces(w->to.result.rows, BLOCK);
    const int64_t most = CACHE / (of_block * (int64_t)sizeof(pair)), size = most > 1 ? most : 1;
    run_strips(backend, w, share_out(blocks, smaller(size, pieces(blocks, threads)), threads),
               (size_t)(size * of_block) * sizeof(pair), multiply_deep);
}

/* The rows of a strip fill up to half of the second-level cache, and each thread gets several strips. None of this
 * changes the order of the sums. */
static void multiply_strips(vt_backend *backend, const strip_work *w)
{
    enum { MOST = 8 };
    size_t block_bytes = (size_t)(2 * piece_pairs(w->left.type, w->steps)) * sizeof(pair);
    int64_t threads = vt_cpu_threads(backend), blocks = pieces(w->to.result.rows, BLOCK);
    int64_t size = smaller(MOST, CACHE / (int64_t)block_bytes);
    while (size > 1 && blocks < 4 * threads * size) size--;
    if (size < 1) size = 1;
    run_strips(backend, w, share_out(blocks, size, threads), (size_t)size * block_bytes, multiply_strip);
}

#endif
