/* y = x weightᵀ and dx = dy weight where the weight has more elements than the rows: each thread packs the panels of
 * the weight that it works on, run by run, so that the weight is read once, and what is packed stays in the cache. */
#include "backend/cpu/vector/product_pack.h"
#include "backend/cpu/vector/product_parts.h"

enum { GROUP = 256 / PANEL }; /* panels that are packed side by side: long pieces of the weight's rows */

typedef struct {
    vt_matrix left, weight;
    product_result to;
    bool across;        /* the result's columns are rows of the weight */
    int64_t deep, runs; /* number of runs of the sums */
} panel_work;

/* Steps k … k + depth - 1 of columns column … column + columns - 1 of the product. */
static void pack_group(const panel_work *w, int64_t column, int64_t columns, int64_t k, int64_t depth, float *to)
{
    const int64_t stride = panel_stride(DEPTH);
    if (w->across) {
        const vt_matrix run = vt_matrix_columns(w->weight, k, depth);
        for (int64_t c = 0; c < columns; c += PANEL) pack_right_transposed(&run, column + c, to + c / PANEL * stride);
        return;
    }
    const vt_matrix run = from_row(vt_matrix_columns(w->weight, column, columns), NUMBERS * k);
    for (int64_t i = 0; i < depth; i++) {
        enum { AHEAD = 16 };
        if (NUMBERS * (i + AHEAD) < run.rows) look_ahead_rows(&run, NUMBERS * (i + AHEAD), NUMBERS, 0, columns, 0);
        pack_right_rows(&run, i, i + 1, stride, to);
    }
}

/* memory: a run's packed panels, then the sums [rows × GROUP panels]. */
static void multiply_group(const panel_work *w, int64_t column, int64_t columns, float *memory)
{
    const int64_t rows = w->to.result.rows, stride = panel_stride(DEPTH), tiles = pieces(rows, MOST_ROWS);
    const int64_t width = GROUP * PANEL;
    float *sums = memory + GROUP * stride;
    for (int64_t run = 0; run < w->runs; run++) {
        const int64_t k = piece_begin(w->deep, w->runs, run), depth = piece_begin(w->deep, w->runs, run + 1) - k;
        pack_group(w, column, columns, k, depth, memory);
        for (int64_t c = 0; c < columns; c += PANEL) {
            const float *right = memory + c / PANEL * stride;
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t r = piece_begin(rows, tiles, tile);
                product_by_rows(piece_begin(rows, tiles, tile + 1) - r, w->left.data + r * w->left.stride + k,
                                w->left.stride, right, depth, sums + r * width + c, width, run > 0,
                                (upcoming){(const char *)right, 0});
            }
        }
    }
    finish_block(&w->to, sums, width, 0, rows, column, columns);
}

/* The left operand as float32; false: no memory. */
static bool widen(vt_backend *backend, vt_matrix *left)
{
    const vt_matrix from = *left;
    if (from.type == VT_FLOAT32) return true;
    float *to = vt_cpu_shared(backend, (size_t)(from.rows * from.columns) * sizeof *to);
    if (to == NULL) return false;
    *left = vt_matrix_make(to, from.rows, from.columns);
    vt_half_convert(from, *left);
    return true;
}

void VT_KERNEL(vt_panels_multiply)(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across,
                                   product_result to)
{
    panel_work w = {.left = left, .weight = weight, .to = to, .across = across, .deep = left.columns};
    const int64_t columns = to.result.columns, each = GROUP * PANEL, groups = pieces(columns, each);
    w.runs = pieces(w.deep, DEPTH);
    if (!widen(backend, &w.left) ||
        !vt_cpu_scratch_reserve(backend, (size_t)(GROUP * panel_stride(DEPTH) + left.rows * each) * sizeof(float)))
        return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t group = 0; group < groups; group++)
        multiply_group(&w, group * each, smaller(each, columns - group * each), vt_cpu_scratch(backend));
}
