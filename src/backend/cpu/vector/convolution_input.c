/* Convolutions by tiles: dx (convolution_values.h). First every tile's values, then what each point of x gets from the
 * tiles that have it. */
#include "backend/cpu/vector/convolution_tiles.h"
#include "backend/cpu/vector/convolution_values.h"

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
    vt_matrix dy, dx;
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

/* On one axis, the values that a point of x is in: of tile u, product j, with a sign. */
typedef struct {
    int64_t u;
    int j;
    float sign;
} share;

/* Returns how many, at most 3. Point 0 of a tile is point 4 of the one before, and 1 is 5. */
static int shares_of(int64_t across, int64_t p, share of[3])
{
    const int64_t s = ~p & 1, m = (p + 1 - s) / 2, u = m / 2;
    int count = 0;
    if (m % 2 == 1) {
        of[0] = (share){u, 0, -1};
        of[1] = (share){u, 1, 1};
        of[2] = (share){u, 2, 1};
        return 3;
    }
    if (u < across) of[count++] = (share){u, 0, 1};
    if (u > 0) of[count++] = (share){u - 1, 2, -1};
    return count;
}

/* Of one point of x: the values' first channels, and their signs. */
static void add_terms(const input_work *w, const float *const from[27], const float sign[27], int terms, int64_t to)
{
    const int64_t in = w->tiles.shape.in;
    for (int64_t c = 0; c < in; c += LANES) {
        vector sum = {0};
        for (int i = 0; i < terms; i++) sum += splat(sign[i]) * load(from[i] + c);
        store_elements_up_to(&w->dx, to + c, sum, in - c);
    }
}

/* Line `line` of x, of the cubes that begin with cube `cube`. */
static void collect(const input_work *w, int64_t cube, int64_t line)
{
    const int64_t side = 2 * w->tiles.shape.side, across = w->tiles.across, in = w->tiles.shape.in;
    const int64_t columns = w->panels * PANEL, own = line / side / side, at[2] = {line / side % side, line % side};
    const int64_t sublattice = (~at[0] & 1) << 2 | (~at[1] & 1) << 1;
    share first[3], second[3], third[3];
    const float *begin[9];
    float begin_sign[9];
    int begins = 0;
    const int count = shares_of(across, at[0], first), others = shares_of(across, at[1], second);
    for (int a = 0; a < count; a++) {
        for (int b = 0; b < others; b++, begins++) {
            const int64_t tile = ((own * across + first[a].u) * across + second[b].u) * across;
            begin[begins] = w->values + (tile * PRODUCTS + 9 * first[a].j + 3 * second[b].j) * columns;
            begin_sign[begins] = first[a].sign * second[b].sign;
        }
    }
    for (int64_t p = 0; p < side; p++) {
        const float *from[27];
        float sign[27];
        int terms = 0;
        const int last = shares_of(across, p, third);
        for (int i = 0; i < begins; i++) {
            for (int c = 0; c < last; c++, terms++) {
                from[terms] = begin[i] + (third[c].u * PRODUCTS + third[c].j) * columns + (sublattice | (~p & 1)) * in;
                sign[terms] = begin_sign[i] * third[c].sign;
            }
        }
        add_terms(w, from, sign, terms, ((cube * side * side + line) * side + p) * w->dx.stride);
    }
}

void VT_KERNEL(vt_tiled_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                        vt_matrix weight, vt_matrix dx)
{
    enum { TILES_AT_ONCE = 512 };
    input_work w = {.tiles = tiling_of(shape), .dy = dy, .dx = dx, .panels = pieces(SUBLATTICES * shape->in, PANEL)};
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
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
        for (int64_t first = 0; first < tiles; first += w.strip)
            for (int j = 0; j < 3; j++)
                input_strip(&w, cube * w.tiles.of_cube, first, smaller(w.strip, tiles - first), j,
                            vt_cpu_scratch(backend));
#pragma omp parallel for schedule(static)
        for (int64_t line = 0; line < now * lines; line++) collect(&w, cube, line);
    }
}
