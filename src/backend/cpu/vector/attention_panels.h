/* Attention in blocks, after Dao 2023 ("FlashAttention-2"): the running maximum and sum of each query's scores are
 * kept, so no matrix of queries × keys exists. attention_forward.c and attention_backward.c share this file.
 * A unit of work is a block of queries of one head of one sample (forward) or a block of its keys (backward), so that a
 * few heads keep many cores busy. The lanes of a vector are neighbouring queries (forward) or keys (backward): only the
 * unit's own block is transposed, everything else is read row by row, and head_dim needs no padding. A thread needs
 * memory for blocks, and in backward for one head's rows; the threads share O(queries) for each head, and in backward
 * its dq if the head has several units.
 * Matrices may have 16-bit types: blocks are widened when they are packed, results rounded when they are stored. */
#ifndef VT_BACKEND_CPU_VECTOR_ATTENTION_PANELS_H
#define VT_BACKEND_CPU_VECTOR_ATTENTION_PANELS_H

#include "backend/cpu/vector/attention_parts.h"
#include "backend/cpu/vector/tile.h"

enum {
    PANEL = 64,     /* maximum number of queries (backward: keys) whose scores are computed at once */
    GRAIN = 16,     /* a panel holds a multiple of this, except for the last one */
    MOST_PANELS = 8 /* panels of a unit: they share the packed keys (backward: the packed queries, and one sum for q's
                       gradient) */
};

/* `count` queries or keys are divided into `panels` of nearly the same size, and these into `blocks`, the units of
 * work. */
typedef struct {
    int64_t count, panels, blocks;
} division;

static division divide(int64_t count, int64_t most_panels)
{
    int64_t panels = pieces(count, PANEL);
    return (division){count, panels, pieces(panels, most_panels)};
}

/* Where a panel begins; for index `panels`, where the last one ends. */
static int64_t panel_begin(const division *d, int64_t panel)
{
    return smaller(d->count, GRAIN * piece_begin(pieces(d->count, GRAIN), d->panels, panel));
}

/* A unit's panels, and how many queries or keys they hold. */
typedef struct {
    const division *all;
    int64_t panel, panels, first, count;
} block_view;

static block_view view_block(const division *d, int64_t block)
{
    int64_t begin = piece_begin(d->panels, d->blocks, block), end = piece_begin(d->panels, d->blocks, block + 1);
    int64_t first = panel_begin(d, begin);
    return (block_view){d, begin, end - begin, first, panel_begin(d, end) - first};
}

/* The unit's panel `index`: its first query or key, counted within the unit, and how many. */
static int64_t view_panel(const block_view *b, int64_t index, int64_t *count)
{
    int64_t begin = panel_begin(b->all, b->panel + index);
    *count = panel_begin(b->all, b->panel + index + 1) - begin;
    return begin - b->first;
}

/* ---- products: not inlined, one copy of each is enough; rows in panels have PANEL numbers ---- */

/* scores [rows × vectors·LANES] = a [rows × depth] b. */
static __attribute__((noinline)) void multiply_scores(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                      float *scores, int64_t depth, lines_ahead *ahead)
{
    tile_columns(TILE_SET, rows, vectors, a, depth, 1, b, PANEL, scores, PANEL, depth,
                 (tile_beside){ahead, NULL, NULL});
}

/* sums [rows × vectors·LANES] += aᵀ b, a [depth × rows]. */
static __attribute__((noinline)) void add_transposed(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *sums, int64_t depth, lines_ahead *ahead)
{
    tile_columns(TILE_ADD, rows, vectors, a, 1, rows, b, PANEL, sums, PANEL, depth, (tile_beside){ahead, NULL, NULL});
}

/* ---- rows of a head, in and out ---- */

INLINE void add_head_ahead(lines_ahead *ahead, const head_view *h, const vt_matrix *matrix, int64_t first, int64_t rows)
{
    add_ahead(ahead, matrix, first, rows, h->column, h->dim);
}

/* to [rows × width] = the head's columns of rows first …, the rest of each row 0. */
static void pack_rows(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows, int64_t width, float *to)
{
    for (int64_t r = 0; r < rows; r++, to += width) {
        pack_row(from, (first + r) * from->stride + h->column, h->dim, to);
        for (int64_t d = h->dim; d < width; d++) to[d] = 0;
    }
}

/* to [dim × block] = scale · transposed rows first …, the rest 0. */
static void pack_transposed(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows, int64_t block,
                            float scale, float *to)
{
    int64_t r = 0;
    for (; r + LANES <= smaller(rows, block); r += LANES) {
        int64_t corner = (first + r) * from->stride + h->column, d = 0;
        for (; d + LANES <= h->dim; d += LANES) {
            vector square[LANES];
            for (int i = 0; i < LANES; i++) square[i] = load_elements(from, corner + i * from->stride + d);
            transpose(square);
            for (int i = 0; i < LANES; i++) store(to + (d + i) * block + r, scale * square[i]);
        }
        for (; d < h->dim; d++)
            for (int i = 0; i < LANES; i++)
                to[d * block + r + i] = scale * element(from, corner + i * from->stride + d);
    }
    for (; r < block; r++) {
        int64_t index = (first + r) * from->stride + h->column;
        for (int64_t d = 0; d < h->dim; d++) to[d * block + r] = r < rows ? scale * element(from, index + d) : 0;
    }
}

#endif
