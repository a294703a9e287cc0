/* Convolutions by tiles: y (convolution_values.h). */
#include "backend/cpu/vector/convolution_tiles.h"

/* For y: row (sublattice, channel c of x), columns of panel `panel`. */
static void pack_for_result(const tiling *t, const vt_matrix *weight, int64_t panel, int64_t c, float *to)
{
    const int64_t deep = SUBLATTICES * t->shape.in;
    vector values[216];
    for (int64_t part = 0; part < PANEL; part += LANES) {
        const int64_t first = panel * PANEL + part;
        load_kernels(weight, first * weight->stride + c * TAPS, weight->stride, t->shape.out - first, values);
        for (int j = 0; j < PRODUCTS; j++)
            for (int s = 0; s < SUBLATTICES; s++)
                store(to + ((panel * PRODUCTS + j) * deep + s * t->shape.in + c) * PANEL + part,
                      values[value_place(j, s)]);
    }
}

typedef struct {
    tiling tiles;
    vt_matrix x, y;
    const float *right;
    int64_t strip, strips, panels, groups; /* tiles of a strip; panels are divided in groups */
} forward_work;

static int64_t left_row(const forward_work *w)
{
    return SUBLATTICES * w->tiles.shape.in + PADDING;
}

static int64_t result_columns(const forward_work *w)
{
    return pieces(w->panels, w->groups) * PANEL;
}

/* left [PLANE][tiles][left_row]. */
static void pack_values(const forward_work *w, int64_t first, int64_t tiles, int j, float *left)
{
    const int64_t row = left_row(w), in = w->tiles.shape.in;
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        tile_place(&w->tiles, first + tile, at);
        for (int64_t c = 0; c < in; c += LANES) {
            const int64_t count = smaller(LANES, in - c);
            vector values[72];
            spread_tile(&w->tiles, &w->x, at, j, c, count, values);
            for (int p = 0; p < PLANE; p++)
                for (int s = 0; s < SUBLATTICES; s++)
                    store_up_to(left + (p * tiles + tile) * row + s * in + c, values[plane_place(p, s)], count);
        }
    }
}

static void forward_strip(const forward_work *w, int64_t strip, int64_t group, float *memory)
{
    const int64_t first = strip * w->strip, tiles = smaller(w->strip, w->tiles.count - first), row = left_row(w);
    const int64_t deep = SUBLATTICES * w->tiles.shape.in, columns = result_columns(w);
    const int64_t begin = piece_begin(w->panels, w->groups, group), end = piece_begin(w->panels, w->groups, group + 1);
    float *left = memory, *sums = left + PLANE * w->strip * row, *results = sums + PLANE * w->strip * PANEL;
    memset(results, 0, (size_t)(tiles * 8 * columns) * sizeof *results);
    for (int j = 0; j < 3; j++) {
        pack_values(w, first, tiles, j, left);
        for (int64_t panel = begin; panel < end; panel++) {
            for (int p = 0; p < PLANE; p++)
                multiply(left + p * tiles * row, row, tiles,
                         w->right + (panel * PRODUCTS + PLANE * j + p) * deep * PANEL, deep, sums + p * tiles * PANEL,
                         PANEL);
            add_results(sums, tiles, PANEL, PANEL, tiles, j, results + (panel - begin) * PANEL, columns);
        }
    }
    const product_result to = {.result = w->y};
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        tile_place(&w->tiles, first + tile, at);
        for (int place = 0; place < 8; place++)
            finish_block(&to, results + (8 * tile + place) * columns, columns, result_row(&w->tiles, at, place), 1,
                         begin * PANEL, (end - begin) * PANEL);
    }
}

void VT_KERNEL(vt_tiled_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                 vt_matrix y)
{
    forward_work w = {.tiles = tiling_of(shape), .x = x, .y = y, .panels = pieces(shape->out, PANEL)};
    const int64_t deep = SUBLATTICES * shape->in, threads = vt_cpu_threads(backend);
    float *right = vt_cpu_shared(backend, (size_t)(w.panels * PRODUCTS * deep * PANEL) * sizeof *right);
    w.strip = tiles_of_strip(left_row(&w));
    w.strips = pieces(w.tiles.count, w.strip);
    w.groups = w.strips < 2 * threads ? smaller(w.panels, pieces(2 * threads, w.strips)) : 1;
    const int64_t floats = w.strip * (PLANE * (left_row(&w) + PANEL) + 8 * result_columns(&w));
    if (right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)floats * sizeof *right)) return;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t panel = 0; panel < w.panels; panel++)
        for (int64_t c = 0; c < shape->in; c++) pack_for_result(&w.tiles, &weight, panel, c, right);
    w.right = right;
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
    for (int64_t strip = 0; strip < w.strips; strip++)
        for (int64_t group = 0; group < w.groups; group++) forward_strip(&w, strip, group, vt_cpu_scratch(backend));
}
