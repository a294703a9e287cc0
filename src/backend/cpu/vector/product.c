/* Linear layers' products. The right operand is packed once, for all threads, into blocks that the tile
 * (product_tile.h) reads in order. The left operand is read in place, or, if it has 16 bits, packed by each thread for
 * the strip of rows that it works on; for a weight's gradient, whose sums run over the rows, both are packed block by
 * block, except short rows of float32. Packing also widens 16-bit numbers and transposes, so neither needs a copy of
 * its own. This file is also compiled for pairs of bfloat16 numbers (product_tile.h); other operands then go to the
 * kernels without pairs. Each sum is added up in runs of at most DEPTH products, and the runs in order, by one thread:
 * the bits do not depend on the number of threads. */
#include "backend/cpu/vector/product_pack.h"
#include "backend/cpu/vector/product_parts.h"

/* Whether these kernels take the operands; otherwise the kernels without pairs do. along_a, along_b: the depth runs
 * along the matrix's rows. Then pairs are read where they lie, so rows must have an even length and begin at a multiple
 * of 4 bytes. */
static bool is_taken(const vt_matrix *a, bool along_a, const vt_matrix *b, bool along_b)
{
    const vt_matrix *const both[] = {a, b};
    const bool along[] = {along_a, along_b};
    for (int i = 0; i < 2 && NUMBERS == 2; i++) {
        if (both[i]->type != VT_BFLOAT16) return false;
        if (along[i] && (both[i]->columns % 2 != 0 || both[i]->stride % 2 != 0 || (uintptr_t)both[i]->half % 4 != 0))
            return false;
    }
    return true;
}

/* The same memory as the tile reads it: a matrix of float32, for pairs with half as many columns. */
static vt_matrix lanes_of(vt_matrix matrix)
{
    if (NUMBERS == 1) return matrix;
    matrix.type = VT_FLOAT32;
    matrix.columns /= NUMBERS;
    matrix.stride /= NUMBERS;
    return matrix;
}

/* Prefetches a tile of the result while its last sums are computed. */
static void look_ahead(const vt_matrix *result, int64_t first, int64_t rows, int64_t column)
{
    look_ahead_rows(result, first, rows, column, smaller(column + PANEL, result->columns), 1);
}

/* ---- y = x weightᵀ and dx = dy weight: strips of rows ---- */

typedef struct {
    vt_matrix left;
    product_result to;
    const float *right;
    int64_t deep, runs, panels; /* number of runs of the sums */
} strip_work;

/* A strip's memory: the sums of one panel [rows × PANEL], and a 16-bit left operand as [runs][rows × ROW_STRIDE]. */
static int64_t strip_floats(const strip_work *w, int64_t rows)
{
    return rows * (PANEL + (w->left.type == VT_FLOAT32 ? 0 : w->runs * ROW_STRIDE));
}

static void pack_left(const strip_work *w, int64_t first, int64_t rows, float *to)
{
    for (int64_t run = 0; run < w->runs; run++) {
        int64_t begin = piece_begin(w->deep, w->runs, run), end = piece_begin(w->deep, w->runs, run + 1);
        for (int64_t r = 0; r < rows; r++, to += ROW_STRIDE) {
            int64_t index = (first + r) * w->left.stride, k = begin;
            for (; k + LANES <= end; k += LANES) store(to + k - begin, load_elements(&w->left, index + k));
            if (k < end) store_part(to + k - begin, load_some(&w->left, index + k, end - k), end - k);
        }
    }
}

/* Not inlined: one copy is enough. */
static __attribute__((noinline)) void finish_sums(const product_result *to, const float *sums, int64_t first,
                                                  int64_t rows, int64_t column)
{
    finish_block(to, sums, PANEL, first, rows, column, PANEL);
}

/* Rows first … of the panels begin … end - 1. */
static void multiply_strip(const strip_work *w, int64_t first, int64_t rows, int64_t begin, int64_t end, float *memory)
{
    float *sums = memory, *packed = memory + rows * PANEL;
    bool in_place = w->left.type == VT_FLOAT32;
    int64_t tiles = pieces(rows, MOST_ROWS), stride = panel_stride(w->deep);
    int64_t left_stride = in_place ? w->left.stride : ROW_STRIDE;
    if (!in_place) pack_left(w, first, rows, packed);
    for (int64_t panel = begin; panel < end; panel++) {
        for (int64_t run = 0; run < w->runs; run++) {
            int64_t k = piece_begin(w->deep, w->runs, run), depth = piece_begin(w->deep, w->runs, run + 1) - k;
            const float *right = w->right + panel * stride + k * PANEL;
            const float *left = in_place ? w->left.data + first * left_stride + k : packed + run * rows * ROW_STRIDE;
            bool last = run + 1 == w->runs;
            upcoming next = {(const char *)(right + stride), (int64_t)sizeof(float) * PANEL / tiles};
            for (int64_t tile = 0; tile < tiles; tile++, next.memory += depth * next.step) {
                int64_t r = piece_begin(rows, tiles, tile), count = piece_begin(rows, tiles, tile + 1) - r;
                if (last) look_ahead(&w->to.result, first + r, count, panel * PANEL);
                if (last && w->to.finish != FINISH_SUM) look_ahead(&w->to.active, first + r, count, panel * PANEL);
                product_by_rows(count, left + r * left_stride, left_stride, right, depth, sums + r * PANEL, PANEL,
                                run > 0, next);
                /* in one pass, while the sums are in the first-level cache: the rows are often a power of two apart, so
                 * only few of them fit it */
                if (last) finish_sums(&w->to, sums + r * PANEL, first + r, count, panel * PANEL);
            }
        }
    }
}

/* The rows of a strip fill about a third of the second-level cache, and each thread gets several strips; with few rows
 * the panels are divided among threads, too. None of this changes the order of the sums. */
static void multiply_strips(vt_backend *backend, const strip_work *w)
{
    int64_t threads = vt_cpu_threads(backend), tiles = pieces(w->to.result.rows, MOST_ROWS),
            size = w->runs > 2 ? 8 : 16;
    while (size > 1 && tiles < 4 * threads * size) size--;
    shares strips = share_out(tiles, size, threads);
    int64_t groups = strips.pieces < threads ? smaller(w->panels, pieces(2 * threads, strips.pieces)) : 1;
    size_t bytes = (size_t)strip_floats(w, size * MOST_ROWS) * sizeof(float);
    if (!vt_cpu_scratch_reserve(backend, bytes)) return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t work = 0; work < strips.pieces * groups; work++) {
        int64_t strip = work / groups, group = work % groups, first = MOST_ROWS * share_begin(&strips, strip);
        int64_t end = smaller(w->to.result.rows, MOST_ROWS * share_begin(&strips, strip + 1));
        multiply_strip(w, first, end - first, piece_begin(w->panels, groups, group),
                       piece_begin(w->panels, groups, group + 1), vt_cpu_scratch(backend));
    }
}

/* to = left weightᵀ if `across`, else left weight. */
static void multiply_weight(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across, product_result to)
{
    enum { ROWS = 16 };
    strip_work w = {.left = left,
                    .to = to,
                    .deep = left.columns,
                    .runs = pieces(left.columns, DEPTH),
                    .panels = pieces(to.result.columns, PANEL)};
    const int64_t stride = panel_stride(w.deep);
    if (across)
        weight.rows = to.result.columns;
    else
        weight.columns = to.result.columns;
    if (panels_suit(&left, to.result.columns)) {
        VT_KERNEL(vt_panels_multiply)(backend, left, weight, across, to);
        return;
    }
    float *right = vt_cpu_shared(backend, (size_t)(w.panels * stride) * sizeof(float));
    if (right == NULL) return;
    if (across) {
#pragma omp parallel for schedule(static)
        for (int64_t panel = 0; panel < w.panels; panel++)
            pack_right_transposed(&weight, panel * PANEL, right + panel * stride);
    } else {
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < w.deep; k += ROWS)
            pack_right_rows(&weight, k, smaller(k + ROWS, w.deep), stride, right);
    }
    w.right = right;
    multiply_strips(backend, &w);
}

void VT_VECTOR(linear_forward)(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                               const uint16_t *rounded, vt_matrix y)
{
    const product_result to = {.result = y, .bias = bias};
    if (x.rows <= FEW_ROWS)
        VT_KERNEL(vt_few_rows_forward)(backend, x, weight, bias, y);
    else if (is_taken(&x, true, &weight, true))
        multiply_weight(backend, lanes_of(x), lanes_of(weight), true, to);
    else
        vt_cpu_vectors(backend)->linear_forward(backend, x, weight, bias, rounded, y);
}

void VT_VECTOR(linear_gelu_forward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                    const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    const product_result to = {hidden, active, bias, kind == VT_GELU_ERF ? FINISH_ERF : FINISH_TANH};
    if (is_taken(&x, true, &weight, true))
        multiply_weight(backend, lanes_of(x), lanes_of(weight), true, to);
    else
        vt_cpu_vectors(backend)->linear_gelu_forward(backend, kind, x, weight, bias, rounded, hidden, active);
}

void VT_VECTOR(linear_backward_input)(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    if (dy.rows <= FEW_ROWS)
        VT_KERNEL(vt_few_rows_backward_input)(backend, dy, weight, dx);
    else if (is_taken(&dy, true, &weight, false))
        multiply_weight(backend, lanes_of(dy), weight, false, (product_result){.result = dx});
    else
        vt_cpu_vectors(backend)->linear_backward_input(backend, dy, weight, dx);
}

/* ---- dweight += dyᵀ x: the rows in blocks; x is packed for all threads, dy by each thread for its own columns, or
 * both are read in place ---- */

typedef struct {
    vt_matrix x, dy;
    float *dweight, *dbias;
    double *bias_sums;     /* [dy.columns] */
    int64_t tiles, panels; /* of dweight's rows (at most COLUMN_STRIDE each) and columns */
    int64_t depth;         /* steps of this block */
    bool last;             /* of the blocks */
    bool in_place;         /* neither operand is packed */
    const float *right;    /* [panels][panel_stride(depth)]: this block of x, packed */
} gradient_work;

static int64_t tile_begin(const gradient_work *w, int64_t tile)
{
    return smaller(w->dy.columns, MOST_ROWS * piece_begin(pieces(w->dy.columns, MOST_ROWS), w->tiles, tile));
}

enum {
    MOST_TILES = 3,                               /* of a rectangle */
    LEAST_COLUMNS = COLUMN_STRIDE - 2 * MOST_ROWS /* of a tile that is reduced so that all threads have equally many */
};

/* Up to COLUMN_STRIDE columns of step k. */
INLINE void pack_columns(const vt_matrix *from, int64_t k, int64_t column, float *to)
{
    int64_t left = from->columns - column;
    for (int64_t c = 0; c < smaller(COLUMN_STRIDE, left); c += LANES) {
        store(to + c, load_step(from, k, column + c, left - c));
    }
}

/* The columns of tiles first … end - 1 of dy's block, as [tiles][depth × COLUMN_STRIDE]; anything after a tile's own
 * columns is not read. */
static void pack_left_columns(const gradient_work *w, int64_t first, int64_t end, float *to)
{
    enum { AHEAD = 12 };
    int64_t begin[MOST_TILES + 1], count = end - first, tile_floats = w->depth * COLUMN_STRIDE;
    for (int64_t t = 0; t <= count; t++) begin[t] = tile_begin(w, first + t);
    for (int64_t k = 0; k < w->depth; k++, to += COLUMN_STRIDE) {
        if (k + AHEAD < w->depth) look_ahead_rows(&w->dy, NUMBERS * (k + AHEAD), NUMBERS, begin[0], begin[count], 0);
        for (int64_t t = 0; t < count; t++) pack_columns(&w->dy, k, begin[t], to + t * tile_floats);
    }
}

/* Where a tile's columns of dy begin: behind those of the tiles that were packed from `first` on, or in place. Rows are
 * left_stride apart. */
static const float *left_of(const gradient_work *w, int64_t tile, int64_t first, const float *packed)
{
    return w->in_place ? w->dy.data + tile_begin(w, tile) : packed + (tile - first) * w->depth * COLUMN_STRIDE;
}

static int64_t left_stride(const gradient_work *w)
{
    return w->in_place ? w->dy.stride : COLUMN_STRIDE;
}

/* The sum of the numbers in a lane. */
INLINE float sum_of_lane(const float *lane)
{
#if defined(VT_PAIRS)
    uint16_t pair[2];
    memcpy(pair, lane, sizeof pair);
    return vt_bfloat16_widen(pair[0]) + vt_bfloat16_widen(pair[1]);
#else
    return *lane;
#endif
}

/* The bias's sums of a tile's columns, from the block: runs of 64 in float32, their sums in float64. */
static void add_bias_sums(const gradient_work *w, int64_t tile, const float *left)
{
    int64_t stride = left_stride(w), c = tile_begin(w, tile), count = tile_begin(w, tile + 1) - c;
    for (int64_t begin = 0; begin < w->depth; begin += 64) {
        float sum[COLUMN_STRIDE] = {0};
        for (int64_t k = begin; k < smaller(begin + 64, w->depth); k++)
            for (int64_t i = 0; i < count; i++) sum[i] += sum_of_lane(left + k * stride + i);
        for (int64_t i = 0; i < count; i++) w->bias_sums[c + i] += (double)sum[i];
    }
    for (int64_t i = 0; i < count && w->last; i++) w->dbias[c + i] += (float)w->bias_sums[c + i];
}

/* Rows first … of dweight, the columns of one panel. */
static void add_rows(const gradient_work *w, int64_t first, int64_t rows, const float *left, int64_t panel,
                     upcoming next)
{
    int64_t columns = w->x.columns, column = panel * PANEL;
    const float *right = w->in_place ? w->x.data + column : w->right + panel * panel_stride(w->depth);
    int64_t right_stride = w->in_place ? w->x.stride : PANEL;
    float *to = w->dweight + first * columns + column;
    if (column + PANEL <= columns) {
        vt_matrix result = vt_matrix_make(w->dweight, w->dy.columns, columns);
        look_ahead(&result, first, rows, column);
        product_by_columns(rows, left, left_stride(w), right, right_stride, w->depth, to, columns, true, next);
        return;
    }
    float sums[MOST_ROWS * PANEL];
    product_by_columns(rows, left, left_stride(w), right, right_stride, w->depth, sums, PANEL, false, next);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; column + c < columns; c++) to[r * columns + c] += sums[r * PANEL + c];
}

static void add_tile(const gradient_work *w, int64_t tile, const float *left, int64_t panel, upcoming next)
{
    int64_t first = tile_begin(w, tile), rows = tile_begin(w, tile + 1) - first, parts = pieces(rows, MOST_ROWS);
    next.step /= parts;
    for (int64_t part = 0; part < parts; part++, next.memory += w->depth * next.step) {
        int64_t begin = piece_begin(rows, parts, part), end = piece_begin(rows, parts, part + 1);
        add_rows(w, first + begin, end - begin, left + begin, panel, next);
    }
}

/* Divides dweight into rectangles of tiles × panels, a few for each thread, which packs the rectangle's part of dy. */
typedef struct {
    int64_t tile_groups, panel_groups;
} rectangles;

/* Also sets w->tiles: equally many for each thread and rectangle, all of nearly the same size. */
static rectangles cut(gradient_work *w, int64_t threads)
{
    int64_t least = pieces(w->dy.columns, COLUMN_STRIDE), tiles = MOST_TILES;
    while (tiles > 1 && pieces(least, tiles) < 3 * threads) tiles--;
    int64_t groups = pieces(pieces(least, tiles), threads) * threads;
    if (groups * tiles * LEAST_COLUMNS > w->dy.columns) groups = pieces(least, tiles);
    w->tiles = groups * tiles;
    return (rectangles){groups, groups < 3 * threads ? smaller(w->panels, pieces(3 * threads, groups)) : 1};
}

static void add_rectangle(const gradient_work *w, rectangles all, int64_t index, float *packed)
{
    int64_t tile_group = index / all.panel_groups, panel_group = index % all.panel_groups;
    int64_t first = piece_begin(w->tiles, all.tile_groups, tile_group);
    int64_t end = piece_begin(w->tiles, all.tile_groups, tile_group + 1);
    int64_t last_panel = piece_begin(w->panels, all.panel_groups, panel_group + 1);
    int64_t stride = panel_stride(w->depth);
    if (!w->in_place) pack_left_columns(w, first, end, packed);
    for (int64_t panel = piece_begin(w->panels, all.panel_groups, panel_group); panel < last_panel; panel++) {
        upcoming next = {(const char *)(w->right + (panel + 1) * stride),
                         (int64_t)sizeof(float) * PANEL / (end - first)};
        for (int64_t tile = first; tile < end; tile++, next.memory += w->depth * next.step)
            add_tile(w, tile, left_of(w, tile, first, packed), panel, next);
    }
    for (int64_t tile = first; tile < end && panel_group == 0 && w->dbias != NULL; tile++)
        add_bias_sums(w, tile, left_of(w, tile, first, packed));
}

/* Whether both operands are read in place: with AVX-512 (with AVX2 it was slower), if rows are short. Then a block of
 * them fills less than half of the second-level cache, and they do not compete for the same cache lines. x must consist
 * of whole panels, because a tile reads whole ones. */
static bool is_in_place(const vt_matrix *x, const vt_matrix *dy)
{
    enum { MOST_COLUMNS = 640 };
    return LANES == 16 && NUMBERS == 1 && x->type == VT_FLOAT32 && dy->type == VT_FLOAT32 && x->columns % PANEL == 0 &&
           x->stride + dy->stride <= MOST_COLUMNS;
}

void VT_VECTOR(linear_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    enum { ROWS = 16 };
    if (x.rows <= FEW_ROWS) {
        VT_KERNEL(vt_few_rows_backward_weight)(backend, x, dy, dweight, dbias);
        return;
    }
    if (!is_taken(&x, false, &dy, false)) {
        vt_cpu_vectors(backend)->linear_backward_weight(backend, x, dy, dweight, dbias);
        return;
    }
    gradient_work all = {.x = x, .dy = dy, .dweight = dweight, .dbias = dbias, .in_place = is_in_place(&x, &dy)};
    all.panels = pieces(x.columns, PANEL);
    rectangles cuts = cut(&all, vt_cpu_threads(backend));
    const int64_t deep = pieces(x.rows, NUMBERS), blocks = pieces(deep, DEPTH), most = pieces(deep, blocks);
    int64_t bias_room = (dy.columns + 7) / 8 * 8, right = all.in_place ? 0 : all.panels * panel_stride(most);
    size_t scratch = (size_t)(pieces(all.tiles, cuts.tile_groups) * most * COLUMN_STRIDE) * sizeof(float);
    double *shared = vt_cpu_shared(backend, (size_t)bias_room * sizeof(double) + (size_t)(2 * right) * sizeof(float));
    if (shared == NULL || !vt_cpu_scratch_reserve(backend, scratch)) return;
    memset(shared, 0, (size_t)dy.columns * sizeof(double));
    all.bias_sums = shared;
    /* cppcheck-suppress invalidPointerCast ; the memory after the sums */
    float *packed = (float *)(shared + bias_room);
#pragma omp parallel
    for (int64_t block = 0; block < blocks; block++) { /* while one block is read, the next is packed: two alternate */
        gradient_work w = all;
        float *to = packed + block % 2 * right;
        const int64_t begin = piece_begin(deep, blocks, block);
        w.depth = piece_begin(deep, blocks, block + 1) - begin;
        w.last = block + 1 == blocks;
        w.right = to;
        w.x = from_row(x, NUMBERS * begin);
        w.dy = from_row(dy, NUMBERS * begin);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < (w.in_place ? 0 : w.depth); k += ROWS)
            pack_right_rows(&w.x, k, smaller(k + ROWS, w.depth), panel_stride(w.depth), to);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t index = 0; index < cuts.tile_groups * cuts.panel_groups; index++)
            add_rectangle(&w, cuts, index, vt_cpu_scratch(backend));
    }
}
