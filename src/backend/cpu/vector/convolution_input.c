/* Convolutions by tiles: dx (convolution_values.h). First every tile's values, then what each point of x gets from the
 * tiles that have it. */
#include "backend/cpu/vector/convolution_tiles.h"

/* For dx: row o, columns (sublattice, channels c … c + LANES - 1 of x). */
static void pack_for_input(const tiling *t, const vt_matrix *weight, int64_t o, int64_t c, float *to)
{
    const int64_t count = smaller(LANES, t->shape.in - c);
    vector values[216];
    load_kernels(weight, o * weight->stride + c * TAPS, TAPS, count, values);
    for (int s = 0; s < SUBLATTICES; s++) {
        const int64_t column = s * t->shape.in + c, panel = column / PANEL, at = column % PANEL;
        for (int j = 0; j < PRODUCTS; j++) {
            const vector value = values[value_place(j, s)];
            float *row = to + ((panel * PRODUCTS + j) * t->shape.out + o) * PANEL;
            float *next = row + PRODUCTS * t->shape.out * PANEL; /* the same row of the next panel */
            if (at + count <= PANEL)
                store_up_to(row + at, value, count);
            else
                for (int64_t i = 0; i < count; i++) *(at + i < PANEL ? row + at + i : next + at + i - PANEL) = value[i];
        }
    }
}

typedef struct {
    tiling tiles;
    vt_matrix dy;
    const float *right;
    float *values; /* [tiles][PRODUCTS][columns], column (sublattice, channel): of the cubes that are worked on */
    int64_t strip, panels;
} input_work;

/* Tiles first … of the cubes that begin with tile `base`, for one j on the first axis. */
static void input_strip(const input_work *w, int64_t base, int64_t first, int64_t tiles, int j, float *left)
{
    const int64_t out = w->tiles.shape.out, row = out + PADDING, columns = w->panels * PANEL;
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        tile_place(&w->tiles, base + first + tile, at);
        for (int64_t c = 0; c < out; c += LANES) {
            const int64_t count = smaller(LANES, out - c);
            vector products[PLANE];
            spread_gradient(&w->tiles, &w->dy, at, j, c, count, products);
            for (int p = 0; p < PLANE; p++) store_up_to(left + (p * tiles + tile) * row + c, products[p], count);
        }
    }
    for (int64_t panel = 0; panel < w->panels; panel++) {
        for (int p = 0; p < PLANE; p++) {
            const int product = PLANE * j + p;
            multiply(left + p * tiles * row, row, tiles, w->right + (panel * PRODUCTS + product) * out * PANEL, out,
                     w->values + (first * PRODUCTS + product) * columns + panel * PANEL, PRODUCTS * columns);
        }
    }
}

void VT_KERNEL(vt_tiled_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                        vt_matrix weight, vt_matrix dx)
{
    enum { TILES_AT_ONCE = 512 };
    input_work w = {.tiles = tiling_of(shape), .dy = dy, .panels = pieces(SUBLATTICES * shape->in, PANEL)};
    const int64_t columns = w.panels * PANEL, row = shape->out + PADDING, lines = 4 * shape->side * shape->side;
    const int64_t cubes = smaller(shape->batch, pieces(TILES_AT_ONCE, w.tiles.of_cube));
    const int64_t packed = PRODUCTS * shape->out * columns, values = cubes * w.tiles.of_cube * PRODUCTS * columns;
    float *right = vt_cpu_shared(backend, (size_t)(packed + values + LANES) * sizeof *right);
    w.strip = tiles_of_strip(row);
    if (right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(w.strip * PLANE * row) * sizeof *right)) return;
    w.right = right;
    w.values = right + packed;
    if (SUBLATTICES * shape->in < columns) memset(right, 0, (size_t)packed * sizeof *right);
#pragma omp parallel for collapse(2) schedule(static) /* a thread writes rows of the same panels one after another */
    for (int64_t first = 0; first < shape->in; first += PANEL)
        for (int64_t o = 0; o < shape->out; o++)
            for (int64_t c = first; c < smaller(first + PANEL, shape->in); c += LANES)
                pack_for_input(&w.tiles, &weight, o, c, right);
    for (int64_t cube = 0; cube < shape->batch; cube += cubes) {
        const int64_t now = smaller(cubes, shape->batch - cube), tiles = now * w.tiles.of_cube;
        const given_values given = {w.values, cube, columns, shape->in};
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
        for (int64_t first = 0; first < tiles; first += w.strip)
            for (int j = 0; j < 3; j++)
                input_strip(&w, cube * w.tiles.of_cube, first, smaller(w.strip, tiles - first), j,
                            vt_cpu_scratch(backend));
#pragma omp parallel for schedule(static)
        for (int64_t line = 0; line < now * lines; line++) collect(&w.tiles, &given, line, &dx);
    }
}
