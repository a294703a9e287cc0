/* Linear layers' products on tiles: of bfloat16 operands, and of float32 (and float16) operands as sums of bfloat16
 * terms (terms.h). The right operand is packed for all threads; each thread packs the left operand for the strip of
 * rows that it works on, unless the rows can be read as tiles where they lie (bfloat16); of deep products run by run,
 * so that a run's part of both operands stays in the cache. For a weight's gradient, which is computed block of rows by
 * block of rows, the operand with fewer columns is packed for all threads (by each thread for itself if its own columns
 * are few), the other by each thread for its own columns. Operands with different numbers of terms go to the vector
 * kernels.
 * Each sum is added up in runs, and the runs in order, by one thread: the bits do not depend on the number of
 * threads. */
#include <omp.h>

#include "backend/cpu/amx/strips.h"

/* to = left weightᵀ if `across`, else left weight. */
static void multiply_weight(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across, product_result to)
{
    strip_work w = {
        .left = left, .to = to, .steps = pieces(left.columns, DEPTH), .panels = pieces(to.result.columns, BLOCK)};
    int64_t step = terms_of(weight.type) * TILE_PAIRS;
    if (across)
        weight.rows = to.result.columns;
    else
        weight.columns = to.result.columns;
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

/* a has the product's rows: if these are few, the vector kernels read the weight once, as it lies. */
static bool on_tiles(const vt_matrix *a, const vt_matrix *b)
{
    return terms_of(a->type) == terms_of(b->type) && a->rows > FEW_ROWS;
}

/* The product of `left` and a weight has `columns` columns. Of a few hundred rows and a large weight, terms take as
 * long to pack as vectors take to multiply. */
static bool weight_on_tiles(const vt_matrix *left, const vt_matrix *weight, int64_t columns)
{
    return on_tiles(left, weight) && (terms_of(left->type) == 1 || !panels_suit(left, columns));
}

void VT_TILES(linear_forward)(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                              const uint16_t *rounded, vt_matrix y)
{
    if (weight_on_tiles(&x, &weight, y.columns))
        multiply_weight(backend, x, weight, true, (product_result){.result = y, .bias = bias});
    else
        vt_cpu_vectors(backend)->linear_forward(backend, x, weight, bias, rounded, y);
}

void VT_TILES(linear_gelu_forward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                   const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    const product_result to = {hidden, active, bias, kind == VT_GELU_ERF ? FINISH_ERF : FINISH_TANH};
    if (weight_on_tiles(&x, &weight, hidden.columns))
        multiply_weight(backend, x, weight, true, to);
    else
        vt_cpu_vectors(backend)->linear_gelu_forward(backend, kind, x, weight, bias, rounded, hidden, active);
}

void VT_TILES(linear_backward_input)(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    if (weight_on_tiles(&dy, &weight, dx.columns))
        multiply_weight(backend, dy, weight, false, (product_result){.result = dx});
    else
        vt_cpu_vectors(backend)->linear_backward_input(backend, dy, weight, dx);
}

/* ---- dweight += dyᵀ x: the rows in blocks; the operand with fewer columns is packed for all threads, the other by
 * each thread for its own columns ---- */

enum {
    BLOCK_ROWS = RUN * DEPTH, /* of x and dy, packed at once */
    GROUP = 8,                /* maximum number of pieces of columns that are packed side by side */
    MOST_BLOCKS = 8,          /* of a thread's own operand */
    /* From so many columns of its own on a thread packs the other operand for itself, too: what another core has just
     * written comes at a few GB/s. (Measured with two threads, from 64 columns on: docs/lab/steps-amx.md.) */
    COLUMNS_ALONE = 64
};

typedef struct {
    vt_matrix x, dy; /* the block's rows */
    float *dweight;
    double *bias_sums;    /* [dy.columns]; NULL: not wanted */
    int64_t steps;        /* the current block's */
    int64_t rows, panels; /* of dweight, in blocks of BLOCK */
    bool left_is_shared;  /* dy is, else x */
    const pair *shared;
} gradient_work;

/* Sums over the rows of a tile (its type is a constant) of columns column … column + 15: in float32, alternating among
 * SUMS vectors so that none waits for the one before; added to `sums`. */
INLINE void add_column_sums(vt_type type, vt_matrix from, int64_t row, int64_t column, float sums[SIDE])
{
    enum { SUMS = 4 };
    int64_t rows = smaller(DEPTH, from.rows - row);
    from.type = type;
    for (int64_t c = 0; c < smaller(SIDE, from.columns - column); c += LANES) {
        int64_t left = from.columns - column - c, index = row * from.stride + column + c, r = 0;
        vector sum[SUMS] = {{0}};
        for (; r + SUMS <= rows && left >= LANES; r += SUMS)
#pragma GCC unroll 4
            for (int64_t i = 0; i < SUMS; i++) sum[i] += load_elements(&from, index + (r + i) * from.stride);
        for (; r < rows; r++) sum[0] += load_elements_up_to(&from, index + r * from.stride, left);
        store(sums + c, load(sums + c) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
    }
}

static __attribute__((noinline)) void add_tile_sums(const vt_matrix *from, int64_t row, int64_t column,
                                                    float sums[SIDE])
{
    FOR_EACH_TYPE(from->type, add_column_sums, *from, row, column, sums);
}

/* Prefetches the rows of a tile that is packed soon. */
static void prefetch_tile(const vt_matrix *from, int64_t row, int64_t column)
{
    look_ahead_rows(from, row, smaller(DEPTH, from->rows - row), column, smaller(column + SIDE, from->columns), 0);
}

/* Packs pieces first … end - 1 of the columns of dy (left) or x, and adds up dy's columns for the bias. */
static void pack_columns(const gradient_work *w, bool left, int64_t first, int64_t end, bool bias, pair *to)
{
    const vt_matrix *from = left ? &w->dy : &w->x;
    int64_t step = terms_of(from->type) * TILE_PAIRS, piece = w->steps * step;
    bias = bias && left && w->bias_sums != NULL;
    for (int64_t group = first; group < end; group += GROUP) {
        int64_t last = smaller(group + GROUP, end);
        float sums[GROUP * SIDE] = {0};
        for (int64_t k = 0; k < w->steps; k++) {
            for (int64_t i = group; i < last; i++) {
                pair *tile = to + (i - first) * piece + k * step;
                prefetch_tile(from, (k + 1) * DEPTH, i * SIDE);
                if (left)
                    pack_left_columns(from, k * DEPTH, i * SIDE, tile);
                else
                    pack_right_along(from, k * DEPTH, i * SIDE, tile);
                if (bias) add_tile_sums(from, k * DEPTH, i * SIDE, sums + (i - group) * SIDE);
            }
        }
        int64_t begin = group * SIDE;
        for (int64_t c = begin; bias && c < smaller(last * SIDE, from->columns); c++)
            w->bias_sums[c] += (double)sums[c - begin];
    }
}

/* A group of `size` pieces of the shared operand. */
static void pack_shared(const gradient_work *w, int64_t group, int64_t size, bool bias, pair *to)
{
    int64_t first = group * size, columns = w->left_is_shared ? w->dy.columns : w->x.columns;
    pack_columns(w, w->left_is_shared, first, smaller(first + size, 2 * pieces(columns, BLOCK)), bias,
                 to + first * piece_pairs(w->x.type, w->steps));
}

/* A block of dweight, from the pieces at left and right. */
static void add_block(const gradient_work *w, int64_t row, int64_t panel, const pair *left, const pair *right)
{
    int64_t first = row * BLOCK, column = panel * BLOCK, columns = w->x.columns;
    int64_t rows = smaller(BLOCK, w->dy.columns - first), width = smaller(BLOCK, columns - column);
    int64_t piece = piece_pairs(w->x.type, w->steps);
    float sums[BLOCK * BLOCK];
    vt_matrix result = vt_matrix_make(w->dweight, w->dy.columns, columns);
    multiply(terms_of(w->x.type), (packed){.tiles = left, .piece = piece}, (packed){.tiles = right, .piece = piece},
             w->steps, sums, BLOCK, false, rows_of(&result, first, rows, column, width));
    for (int64_t r = 0; r < rows; r++) {
        float *to = w->dweight + (first + r) * columns + column;
        const float *from = sums + r * BLOCK;
        int64_t c = 0;
        for (; c + LANES <= width; c += LANES) store(to + c, load(to + c) + load(from + c));
        for (; c < width; c++) to[c] += from[c];
    }
}

/* Divides dweight into rectangles, equally many for each thread: a few blocks of a thread's own operand × many of the
 * shared one. The fewer rectangles, the longer the pieces of rows that a thread packs. */
typedef struct {
    int64_t own, shared; /* blocks of the operands' columns */
    int64_t own_groups, shared_groups;
} rectangles;

static rectangles cut(const gradient_work *w, int64_t threads)
{
    rectangles r = {w->left_is_shared ? w->panels : w->rows, w->left_is_shared ? w->rows : w->panels, 0, 1};
    int64_t size = MOST_BLOCKS;
    while (size > 1 && pieces(r.own, size) < 2 * threads) size--;
    r.own_groups = smaller(r.own, pieces(pieces(r.own, size), threads) * threads);
    if (r.own_groups < 2 * threads) r.shared_groups = smaller(r.shared, pieces(2 * threads, r.own_groups));
    return r;
}

static void add_rectangle(const gradient_work *w, const rectangles *all, int64_t index, pair *own)
{
    int64_t group = index / all->shared_groups, shared_group = index % all->shared_groups;
    int64_t begin = piece_begin(all->own, all->own_groups, group);
    int64_t end = piece_begin(all->own, all->own_groups, group + 1);
    int64_t last = piece_begin(all->shared, all->shared_groups, shared_group + 1);
    int64_t block = 2 * piece_pairs(w->x.type, w->steps);
    pack_columns(w, !w->left_is_shared, 2 * begin, 2 * end, shared_group == 0, own);
    for (int64_t j = piece_begin(all->shared, all->shared_groups, shared_group); j < last; j++) {
        for (int64_t i = begin; i < end; i++) {
            if (w->left_is_shared)
                add_block(w, j, i, w->shared + j * block, own + (i - begin) * block);
            else
                add_block(w, i, j, own + (i - begin) * block, w->shared + j * block);
        }
    }
}

void VT_TILES(linear_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    if (!on_tiles(&x, &dy)) {
        vt_cpu_vectors(backend)->linear_backward_weight(backend, x, dy, dweight, dbias);
        return;
    }
    gradient_work all = {.dweight = dweight, .left_is_shared = dy.columns < x.columns};
    all.rows = pieces(dy.columns, BLOCK);
    all.panels = pieces(x.columns, BLOCK);
    rectangles cuts = cut(&all, vt_cpu_threads(backend));
    const int64_t blocks = pieces(x.rows, BLOCK_ROWS);
    const int64_t most = 2 * piece_pairs(x.type, pieces(smaller(BLOCK_ROWS, x.rows), DEPTH));
    int64_t threads = vt_cpu_threads(backend), bias_room = (dy.columns + 7) / 8 * 8, pairs = cuts.shared * most;
    const bool alone = cuts.own * BLOCK >= COLUMNS_ALONE * threads;
    double *shared = vt_cpu_shared(backend, (size_t)bias_room * sizeof(double) +
                                                (size_t)((alone ? threads : 2) * pairs) * sizeof(pair));
    if (shared == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(MOST_BLOCKS * most) * sizeof(pair))) return;
    memset(shared, 0, (size_t)dy.columns * sizeof(double));
    if (dbias != NULL) all.bias_sums = shared;
    /* cppcheck-suppress invalidPointerCast ; the memory after the sums */
    pair *memory = (pair *)(shared + bias_room);
    int64_t size = smaller(GROUP, pieces(2 * cuts.shared, alone ? 1 : threads)); /* a group for each thread */
    int64_t groups = pieces(2 * cuts.shared, size);
#pragma omp parallel
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        tiles_configure();
        for (int64_t block = 0; block < blocks; block++) {
            gradient_work w = all;
            int64_t begin = block * BLOCK_ROWS, rows = smaller(BLOCK_ROWS, x.rows - begin);
            pair *to = memory + (alone ? thread : block % 2) * pairs; /* while one is read, the next is packed */
            w.x = from_row(x, begin);
            w.dy = from_row(dy, begin);
            w.x.rows = w.dy.rows = rows;
            w.steps = pieces(rows, DEPTH);
            w.shared = to;
            if (alone) {
                for (int64_t group = 0; group < groups; group++)
                    pack_shared(&w, group, size, group % team == thread, to);
#pragma omp barrier /* block by block, numbers are added to dweight */
            } else {
#pragma omp for schedule(static)
                for (int64_t group = 0; group < groups; group++) pack_shared(&w, group, size, true, to);
            }
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t index = 0; index < cuts.own_groups * cuts.shared_groups; index++)
                add_rectangle(&w, &cuts, index, vt_cpu_scratch(backend));
        }
        tiles_release();
    }
    for (int64_t c = 0; c < dy.columns && dbias != NULL; c++) dbias[c] += (float)all.bias_sums[c];
}
