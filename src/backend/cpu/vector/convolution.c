/* Convolutions over cubes as products whose left operand is packed, strip by strip, straight from the volume, and whose
 * right operand is the weight, packed once with its taps in the order of the volume. A data gradient is eight products,
 * one for each parity of a point's three coordinates, because the points of one parity see the same eight taps; where a
 * point has few channels, one product makes the terms of all taps, which are then collected. Sums run in a fixed order:
 * the bits do not depend on the number of threads. */
#include "backend/cpu/vector/convolution_view.h"
#include "backend/cpu/vector/product_parts.h"
#include "backend/cpu/vector/product_tile.h"

static int64_t panel_stride(int64_t deep)
{
    return (deep + 1) * PANEL;
}

/* ---- the right operand ---- */

/* Part `part` of panel `panel` of weightᵀ, channel c of the input: a row of the panel for each tap. */
static void pack_channel(const vt_matrix *weight, int64_t in, int64_t panel, int64_t c, float *to)
{
    for (int64_t part = 0; part < PANEL; part += LANES) {
        const int64_t first = panel * PANEL + part, rows = weight->rows - first;
        for (int64_t tap = 0; tap < TAPS; tap += LANES) {
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++)
                square[i] =
                    i < rows ? load_elements(weight, (first + i) * weight->stride + c * TAPS + tap) : (vector){0};
            transpose(square);
            for (int64_t i = 0; i < LANES; i++) store(to + ((tap + i) * in + c) * PANEL + part, square[i]);
        }
    }
}

/* Channel o of the output, for the data gradient: a row of the panel in the product of each tap's parity. */
static void pack_for_parities(const vt_matrix *weight, int64_t in, int64_t panel, int64_t o, int64_t parity_stride,
                              float *to)
{
    for (int64_t part = 0; part < PANEL; part += LANES) {
        const int64_t first = panel * PANEL + part, columns = in - first;
        for (int64_t tap = 0; tap < TAPS; tap += LANES) {
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++)
                square[i] =
                    i < columns ? load_elements(weight, o * weight->stride + (first + i) * TAPS + tap) : (vector){0};
            transpose(square);
            for (int64_t i = 0; i < LANES; i++)
                store(to + parity_of(tap + i) * parity_stride + (place_of(tap + i) * weight->rows + o) * PANEL + part,
                      square[i]);
        }
    }
}

/* ---- the left operand, and the product ---- */

typedef struct {
    view from[PARITIES];
    int count; /* of products: 1, or PARITIES */
    vt_matrix result;
    const float *right; /* [count][panels][panel_stride(deep)] */
    int64_t rows, deep, runs, panels;
} volume_work;

/* Numbers begin … end - 1 of a row of the left operand. */
INLINE void pack_row(const view *from, const int64_t at[4], int64_t begin, int64_t end, float *to)
{
    for (int64_t k = begin; k < end;) {
        const int64_t tap = k / from->volume.columns, c = k % from->volume.columns;
        const int64_t count = smaller(from->volume.columns - c, end - k), row = view_row(from, at, tap);
        int64_t i = 0;
        if (row < 0) {
            memset(to, 0, (size_t)count * sizeof *to);
        } else {
            const int64_t index = row * from->volume.stride + c;
            for (; i + LANES <= count; i += LANES) store(to + i, load_elements(&from->volume, index + i));
            if (i < count) store_part(to + i, load_some(&from->volume, index + i, count - i), count - i);
        }
        k += count;
        to += count;
    }
}

static void pack_strip(const volume_work *w, const view *from, int64_t first, int64_t rows, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t at[4];
        view_place(from, first + r, at);
        for (int64_t run = 0; run < w->runs; run++)
            pack_row(from, at, piece_begin(w->deep, w->runs, run), piece_begin(w->deep, w->runs, run + 1),
                     to + (run * rows + r) * ROW_STRIDE);
    }
}

static void store_rows(const volume_work *w, const view *from, const float *sums, int64_t first, int64_t rows,
                       int64_t panel)
{
    const product_result to = {.result = w->result};
    for (int64_t r = 0; r < rows; r++)
        finish_block(&to, sums + r * PANEL, PANEL, view_result(from, first + r), 1, panel * PANEL, PANEL);
}

/* Rows first … of product `product`, panels begin … end - 1. */
static void multiply_strip(const volume_work *w, int product, int64_t first, int64_t rows, int64_t begin, int64_t end,
                           float *memory)
{
    const view *from = &w->from[product];
    float *sums = memory, *packed = memory + rows * PANEL;
    const int64_t tiles = pieces(rows, MOST_ROWS), stride = panel_stride(w->deep);
    pack_strip(w, from, first, rows, packed);
    for (int64_t panel = begin; panel < end; panel++) {
        for (int64_t run = 0; run < w->runs; run++) {
            const int64_t k = piece_begin(w->deep, w->runs, run), depth = piece_begin(w->deep, w->runs, run + 1) - k;
            const float *right = w->right + (product * w->panels + panel) * stride + k * PANEL;
            upcoming next = {(const char *)(right + depth * PANEL), (int64_t)sizeof(float) * PANEL / tiles};
            for (int64_t tile = 0; tile < tiles; tile++, next.memory += depth * next.step) {
                const int64_t r = piece_begin(rows, tiles, tile), count = piece_begin(rows, tiles, tile + 1) - r;
                product_by_rows(count, packed + (run * rows + r) * ROW_STRIDE, ROW_STRIDE, right, depth,
                                sums + r * PANEL, PANEL, run > 0, next);
            }
        }
        store_rows(w, from, sums, first, rows, panel);
    }
}

static void multiply(vt_backend *backend, const volume_work *w)
{
    const int64_t threads = vt_cpu_threads(backend), tiles = pieces(w->rows, MOST_ROWS);
    int64_t size = w->runs > 2 ? 8 : 16;
    while (size > 1 && tiles * w->count < 4 * threads * size) size--;
    const int64_t strips = pieces(tiles, size), items = strips * w->count;
    const int64_t groups = items < 2 * threads ? smaller(w->panels, pieces(4 * threads, items)) : 1;
    const size_t floats = (size_t)(size * MOST_ROWS * (PANEL + w->runs * ROW_STRIDE));
    if (!vt_cpu_scratch_reserve(backend, floats * sizeof(float))) return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t work = 0; work < items * groups; work++) {
        const int64_t item = work / groups, group = work % groups, first = item / w->count * size * MOST_ROWS;
        multiply_strip(w, (int)(item % w->count), first, smaller(w->rows - first, size * MOST_ROWS),
                       piece_begin(w->panels, groups, group), piece_begin(w->panels, groups, group + 1),
                       vt_cpu_scratch(backend));
    }
}

static bool take_right(vt_backend *backend, volume_work *w)
{
    w->runs = pieces(w->deep, DEPTH);
    w->right = vt_cpu_shared(backend, (size_t)(w->count * w->panels * panel_stride(w->deep)) * sizeof(float));
    return w->right != NULL;
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    volume_work w = {.from = {view_of_input(shape, x)}, .count = 1, .result = y, .rows = y.rows};
    w.deep = TAPS * shape->in;
    w.panels = pieces(shape->out, PANEL);
    if (!take_right(backend, &w)) return;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t panel = 0; panel < w.panels; panel++)
        for (int64_t c = 0; c < shape->in; c++)
            pack_channel(&weight, shape->in, panel, c, (float *)(uintptr_t)w.right + panel * panel_stride(w.deep));
    multiply(backend, &w);
}

/* The terms of all taps of one sample, and then their sums. */
static void collect(const vt_convolution *shape, const float *terms, int64_t sample, vt_matrix dx)
{
    const int64_t side = 2 * shape->side, rows = side * side * side;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at[3] = {r / side / side, r / side % side, r % side};
        int64_t from[8];
        for (int64_t i = 0; i < 8; i++) {
            const int64_t row = collected_row(shape->side, at, i);
            from[i] = row < 0 ? -1 : row * shape->in * TAPS + collected_tap(at, i);
        }
        for (int64_t c = 0; c < shape->in; c++) {
            float sum = 0;
            for (int64_t i = 0; i < 8; i++) sum += from[i] < 0 ? 0 : terms[from[i] + c * TAPS];
            store_some(&dx, (sample * rows + r) * dx.stride + c, splat(sum), 1);
        }
    }
}

static void by_terms(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    const int64_t rows = shape->side * shape->side * shape->side, columns = TAPS * shape->in;
    float *terms = vt_cpu_stand_in_memory(backend, (size_t)(rows * columns) * sizeof *terms);
    if (terms == NULL) return;
    for (int64_t sample = 0; sample < shape->batch; sample++) {
        vt_matrix own = from_row(dy, sample * rows);
        own.rows = rows;
        backend->linear_backward_input(backend, own, weight, vt_matrix_make(terms, rows, columns));
        collect(shape, terms, sample, dx);
    }
}

static void convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight,
                                       vt_matrix dx)
{
    if (2 * shape->in < PANEL) {
        by_terms(backend, shape, dy, weight, dx);
        return;
    }
    volume_work w = {.count = PARITIES, .result = dx, .rows = dy.rows};
    for (int parity = 0; parity < PARITIES; parity++) w.from[parity] = view_of_parity(shape, dy, parity);
    w.deep = 8 * shape->out;
    w.panels = pieces(shape->in, PANEL);
    if (!take_right(backend, &w)) return;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t panel = 0; panel < w.panels; panel++)
        for (int64_t o = 0; o < shape->out; o++)
            pack_for_parities(&weight, shape->in, panel, o, w.panels * panel_stride(w.deep),
                              (float *)(uintptr_t)w.right + panel * panel_stride(w.deep));
    multiply(backend, &w);
}

/* ---- the weight's gradient ---- */

/* A thread's part: some channels of the output, and panels of columns, which are (tap, channel of the input) as in a
 * volume. Whole panels of channels are taken for a run of taps together, so that the sums can be turned round. */
enum { RUN = 16, COLUMNS = COLUMN_STRIDE };

typedef struct {
    view from;
    vt_matrix dy;
    float *dweight;
    int64_t in, out;
    bool whole; /* panels lie within a tap */
} weight_work;

static int64_t panels_of(const weight_work *w)
{
    return w->whole ? RUN : 1;
}

/* Where the columns of panel `index` of part `part` begin. */
static int64_t panel_column(const weight_work *w, int64_t part, int64_t index)
{
    if (!w->whole) return part * PANEL;
    const int64_t channel_panels = w->in / PANEL;
    return (part / channel_panels * RUN + index) * w->in + part % channel_panels * PANEL;
}

static void pack_left(const weight_work *w, int64_t first, int64_t depth, int64_t begin, int64_t end, float *to)
{
    for (int64_t k = 0; k < depth; k++, to += COLUMNS) {
        const int64_t index = (first + k) * w->dy.stride;
        for (int64_t c = begin; c < end; c += LANES)
            store(to + c - begin,
                  end - c >= LANES ? load_elements(&w->dy, index + c) : load_some(&w->dy, index + c, end - c));
    }
}

static void pack_right(const weight_work *w, int64_t first, int64_t depth, int64_t column, float *to)
{
    const int64_t end = smaller(column + PANEL, TAPS * w->in);
    for (int64_t k = 0; k < depth; k++, to += PANEL) {
        int64_t at[4];
        view_place(&w->from, first + k, at);
        pack_row(&w->from, at, column, end, to);
        if (end - column < PANEL) memset(to + end - column, 0, (size_t)(PANEL - (end - column)) * sizeof *to);
    }
}

/* sums [RUN][COLUMNS × PANEL]: of one panel of channels, for RUN taps. */
static void add_turned(const weight_work *w, const float *sums, int64_t begin, int64_t end, int64_t column)
{
    const int64_t tap = column / w->in, channel = column % w->in;
    for (int64_t o = begin; o < end; o++) {
        for (int64_t c = 0; c < PANEL; c += LANES) {
            for (int64_t t = 0; t < RUN; t += LANES) {
                vector square[LANES];
                for (int64_t i = 0; i < LANES; i++)
                    square[i] = load(sums + ((t + i) * COLUMNS + o - begin) * PANEL + c);
                transpose(square);
                for (int64_t i = 0; i < LANES; i++) {
                    float *to = w->dweight + (o * w->in + channel + c + i) * TAPS + tap + t;
                    store(to, load(to) + square[i]);
                }
            }
        }
    }
}

static void add_one_by_one(const weight_work *w, const float *sums, int64_t begin, int64_t end, int64_t column)
{
    for (int64_t o = begin; o < end; o++) {
        for (int64_t k = column; k < smaller(column + PANEL, TAPS * w->in); k++)
            w->dweight[(o * w->in + k % w->in) * TAPS + k / w->in] += sums[(o - begin) * PANEL + k - column];
    }
}

static void add_part(const weight_work *w, int64_t begin, int64_t end, int64_t part, float *memory)
{
    float *left = memory, *right = left + DEPTH * COLUMNS, *sums = right + DEPTH * PANEL;
    const int64_t rows = w->dy.rows, blocks = pieces(rows, DEPTH), tiles = pieces(end - begin, MOST_ROWS);
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = piece_begin(rows, blocks, block), depth = piece_begin(rows, blocks, block + 1) - first;
        pack_left(w, first, depth, begin, end, left);
        for (int64_t index = 0; index < panels_of(w); index++) {
            float *to = sums + index * COLUMNS * PANEL;
            pack_right(w, first, depth, panel_column(w, part, index), right);
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t r = piece_begin(end - begin, tiles, tile);
                product_by_columns(piece_begin(end - begin, tiles, tile + 1) - r, left + r, right, depth,
                                   to + r * PANEL, PANEL, block > 0, (upcoming){(const char *)right, 0});
            }
        }
    }
    if (w->whole)
        add_turned(w, sums, begin, end, panel_column(w, part, 0));
    else
        add_one_by_one(w, sums, begin, end, panel_column(w, part, 0));
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    const weight_work w = {.from = view_of_input(shape, x),
                           .dy = dy,
                           .dweight = dweight,
                           .in = shape->in,
                           .out = shape->out,
                           .whole = shape->in % PANEL == 0};
    const int64_t parts = w.whole ? TAPS / RUN * (shape->in / PANEL) : pieces(TAPS * shape->in, PANEL);
    const int64_t groups = pieces(shape->out, COLUMNS);
    const size_t floats = (size_t)(DEPTH * (COLUMNS + PANEL) + panels_of(&w) * COLUMNS * PANEL + LANES);
    if (!vt_cpu_scratch_reserve(backend, floats * sizeof(float))) return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < parts * groups; item++) {
        const int64_t group = item % groups;
        add_part(&w, piece_begin(shape->out, groups, group), piece_begin(shape->out, groups, group + 1), item / groups,
                 vt_cpu_scratch(backend));
    }
}

void VT_KERNEL(vt_vector_convolution_fill)(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
}
