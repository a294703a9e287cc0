/* Convolutions over cubes by Winograd's minimal filtering. On one axis a convolution of kernel 4 and stride 2 is two of
 * kernel 2 and stride 1: of the odd points of x with taps 0 and 2, and of its even points with taps 1 and 3. Two
 * results y0 = d0 a + d1 b and y1 = d1 a + d2 b take three products instead of four:
 *
 *     (d0 - d1) a     d1 (a + b)     (d1 - d2) b;     y0 = first + second, y1 = second - third
 *
 * (S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray, Fast Algorithms for Convolutional
 * Neural Networks, 2016.) So a tile of 2³ points of y needs 6³ points of x, and 27 products instead of 64, each over
 * the channels of all eight sublattices. Only sums, differences and factors of one occur, so little accuracy is lost.
 * Both gradients are the transposes of these three steps.
 *
 * On each axis, point i of a tile u is point 4 u - 1 + i of x; it belongs to sublattice i % 2, whose taps are i % 2 and
 * i % 2 + 2. "Value (s, j)" is product j of sublattice s, at place 3 s + j. Sums run in a fixed order: the bits do not
 * depend on the number of threads. */
#include "backend/cpu/vector/convolution_tiles.h"
#include "backend/cpu/vector/product_parts.h"
#include "backend/cpu/vector/product_tile.h"

enum {
    TAPS = 64,
    SUBLATTICES = 8,
    PRODUCTS = 27,              /* of a tile */
    PLANE = 9,                  /* products with one j on the first axis */
    CACHED = 150000,            /* floats of a left operand that stay in the second-level cache */
    MOST_TILES = 8 * MOST_ROWS, /* of a strip */
    PADDING = 16                /* after a row of the left operand, so that rows do not compete for cache lines */
};

typedef struct {
    vt_convolution shape;
    int64_t across, of_cube, count; /* tiles along an axis, of a cube, and of all */
} tiling;

static tiling tiling_of(const vt_convolution *shape)
{
    tiling t = {.shape = *shape, .across = shape->side / 2};
    t.of_cube = t.across * t.across * t.across;
    t.count = shape->batch * t.of_cube;
    return t;
}

/* at: the cube, and the tile's coordinates in it. */
static void tile_place(const tiling *t, int64_t tile, int64_t at[4])
{
    at[3] = tile % t->across;
    tile /= t->across;
    at[2] = tile % t->across;
    tile /= t->across;
    at[1] = tile % t->across;
    at[0] = tile / t->across;
}

/* The row of y of point `place` (0 … 7) of a tile. */
static int64_t result_row(const tiling *t, const int64_t at[4], int place)
{
    int64_t row = at[0];
    for (int axis = 0; axis < 3; axis++) row = row * t->shape.side + 2 * at[1 + axis] + (place >> (2 - axis) & 1);
    return row;
}

INLINE vector load_count(const vt_matrix *from, int64_t index, int64_t count)
{
    return count >= LANES ? load_elements(from, index) : load_some(from, index, count);
}

INLINE void store_count(float *to, vector value, int64_t count)
{
    if (count >= LANES)
        store(to, value);
    else
        store_part(to, value, count);
}

static int64_t tiles_of_strip(int64_t row)
{
    const int64_t fit = CACHED / (PLANE * row) / MOST_ROWS * MOST_ROWS;
    return fit < 2 * MOST_ROWS ? 2 * MOST_ROWS : smaller(fit, MOST_TILES);
}

/* to [rows × PANEL] = left right. */
static void multiply(const float *left, int64_t left_stride, int64_t rows, const float *right, int64_t deep, float *to,
                     int64_t to_stride)
{
    const int64_t runs = pieces(deep, DEPTH), tiles = pieces(rows, MOST_ROWS);
    for (int64_t run = 0; run < runs; run++) {
        const int64_t k = piece_begin(deep, runs, run), depth = piece_begin(deep, runs, run + 1) - k;
        upcoming next = {(const char *)(right + (k + depth) * PANEL), (int64_t)sizeof(float) * PANEL / tiles};
        for (int64_t tile = 0; tile < tiles; tile++, next.memory += depth * next.step) {
            const int64_t r = piece_begin(rows, tiles, tile);
            product_by_rows(piece_begin(rows, tiles, tile + 1) - r, left + r * left_stride + k, left_stride,
                            right + k * PANEL, depth, to + r * to_stride, to_stride, run > 0, next);
        }
    }
}

/* ---- the weight: [panels][PRODUCTS][depth × PANEL] ---- */

/* Four taps become six values. */
INLINE void spread_taps(const vector *from, int64_t from_step, vector *to, int64_t to_step)
{
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        const vector first = from[s * from_step], last = from[(s + 2) * from_step];
        to[3 * s * to_step] = first;
        to[(3 * s + 1) * to_step] = first + last;
        to[(3 * s + 2) * to_step] = last;
    }
}

static void spread_kernel(const vector taps[TAPS], vector values[216])
{
    vector lines[96], planes[144];
    for (int i = 0; i < 16; i++) spread_taps(taps + 4 * i, 1, lines + 6 * i, 1);
    for (int i = 0; i < 24; i++) spread_taps(lines + i / 6 * 24 + i % 6, 6, planes + i / 6 * 36 + i % 6, 6);
    for (int i = 0; i < 36; i++) spread_taps(planes + i, 36, values + i, 36);
}

/* Where a value lies among 6³, by product and sublattice. */
static int value_place(int product, int sublattice)
{
    int place = 0, power = 9;
    for (int axis = 0; axis < 3; axis++, power /= 3)
        place = 6 * place + 3 * (sublattice >> (2 - axis) & 1) + product / power % 3;
    return place;
}

/* The kernels of `rows` channels, one in each lane; in the weight the channels are `step` apart. */
static void load_kernels(const vt_matrix *weight, int64_t index, int64_t step, int64_t rows, vector values[216])
{
    vector taps[TAPS];
    for (int64_t tap = 0; tap < TAPS; tap += LANES) {
        for (int64_t i = 0; i < LANES; i++)
            taps[tap + i] = i < rows ? load_elements(weight, index + i * step + tap) : (vector){0};
        transpose(taps + tap);
    }
    spread_kernel(taps, values);
}

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
                store_count(row + at, value, count);
            else
                for (int64_t i = 0; i < count; i++) *(at + i < PANEL ? row + at + i : next + at + i - PANEL) = value[i];
        }
    }
}

/* ---- a tile's values ---- */

/* Values of a line of six points, in their place. */
INLINE void spread_points(vector *line, int64_t step)
{
    vector d[6];
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) d[i] = line[i * step];
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        line[3 * s * step] = d[s] - d[s + 2];
        line[(3 * s + 1) * step] = d[s + 2];
        line[(3 * s + 2) * step] = d[s + 2] - d[s + 4];
    }
}

/* Channels c … of a tile of x: values (s, j) on the first axis for one j, as [2][6 × 6]. */
static void spread_tile(const tiling *t, const vt_matrix *x, const int64_t at[4], int j, int64_t c, int64_t count,
                        vector values[72])
{
    const int64_t side = 2 * t->shape.side, size[3] = {side * side, side, 1};
    int64_t offset[3][6]; /* in x's rows; -1: beyond the cube, where all is 0 */
    for (int axis = 0; axis < 3; axis++) {
        for (int i = 0; i < 6; i++) {
            const int64_t p = 4 * at[1 + axis] - 1 + i;
            offset[axis][i] = p < 0 || p >= side ? -1 : p * size[axis];
        }
    }
    const int64_t cube = at[0] * side * side * side;
    for (int s = 0; s < 2; s++) {
        const int64_t plus = offset[0][j == 0 ? s : s + 2], minus = j == 1 ? -1 : offset[0][j == 0 ? s + 2 : s + 4];
        for (int i = 0; i < 36; i++) {
            const int64_t b = offset[1][i / 6], a = offset[2][i % 6];
            vector value = {0};
            if (a >= 0 && b >= 0) {
                const int64_t row = cube + a + b;
                if (plus >= 0) value = load_count(x, (row + plus) * x->stride + c, count);
                if (minus >= 0) value -= load_count(x, (row + minus) * x->stride + c, count);
            }
            values[36 * s + i] = value;
        }
    }
    for (int i = 0; i < 12; i++) spread_points(values + 6 * i, 1);
    for (int i = 0; i < 12; i++) spread_points(values + i / 6 * 36 + i % 6, 6);
}

/* Of spread_tile's values, product j of a plane and sublattice s. */
INLINE int plane_place(int j, int s)
{
    return 36 * (s >> 2) + 6 * (3 * (s >> 1 & 1) + j / 3) + 3 * (s & 1) + j % 3;
}

/* Channels c … of a tile of dy: products with one j on the first axis. */
static void spread_gradient(const tiling *t, const vt_matrix *dy, const int64_t at[4], int j, int64_t c, int64_t count,
                            vector products[PLANE])
{
    vector plane[4], line[2][3];
    for (int i = 0; i < 4; i++) {
        const vector zero = {0};
        const vector first = j == 2 ? zero : load_count(dy, result_row(t, at, i) * dy->stride + c, count);
        const vector second = j == 0 ? zero : load_count(dy, result_row(t, at, 4 + i) * dy->stride + c, count);
        plane[i] = j == 2 ? -second : first + second;
    }
    for (int i = 0; i < 2; i++) {
        line[i][0] = plane[2 * i];
        line[i][1] = plane[2 * i] + plane[2 * i + 1];
        line[i][2] = -plane[2 * i + 1];
    }
    for (int i = 0; i < 3; i++) {
        products[i] = line[0][i];
        products[3 + i] = line[0][i] + line[1][i];
        products[6 + i] = -line[1][i];
    }
}

/* ---- y ---- */

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
                    store_count(left + (p * tiles + tile) * row + s * in + c, values[plane_place(p, s)], count);
        }
    }
}

/* Adds a plane's sums [PLANE][tiles][PANEL] to results [tiles][8][columns]. */
static void add_results(const float *sums, int64_t tiles, int j, float *results, int64_t columns)
{
    for (int64_t tile = 0; tile < tiles; tile++, results += 8 * columns) {
        for (int64_t part = 0; part < PANEL; part += LANES) {
            vector m[PLANE], line[6];
            for (int p = 0; p < PLANE; p++) m[p] = load(sums + (p * tiles + tile) * PANEL + part);
            for (int i = 0; i < 3; i++) {
                line[i] = m[i] + m[3 + i];
                line[3 + i] = m[3 + i] - m[6 + i];
            }
            for (int i = 0; i < 4; i++) {
                const vector *of = line + i / 2 * 3, value = i % 2 == 0 ? of[0] + of[1] : of[1] - of[2];
                float *first = results + i * columns + part, *second = first + 4 * columns;
                if (j < 2) store(first, load(first) + value);
                if (j > 0) store(second, load(second) + (j == 1 ? value : -value));
            }
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
            add_results(sums, tiles, j, results + (panel - begin) * PANEL, columns);
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

/* ---- dx: every tile's values, and then what each point of x gets from the tiles that have it ---- */

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
            for (int p = 0; p < PLANE; p++) store_count(left + (p * tiles + tile) * row + c, products[p], count);
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
        if (in - c >= LANES)
            store_elements(&w->dx, to + c, sum);
        else
            store_some(&w->dx, to + c, sum, in - c);
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

/* ---- dweight: a block of channels of x × a block of channels of dy, its products summed over all tiles ---- */

enum {
    BLOCK = 64,       /* channels of dy */
    BLOCK_TILES = 64, /* whose values are packed at once */
    MOST_PARTS = 8    /* of the tiles, each with sums of its own */
};

typedef struct {
    tiling tiles;
    vt_matrix x, dy;
    float *dweight;
    int64_t parts, x_blocks, y_blocks;
    int64_t channels;     /* of a block of x */
    int64_t in_group;     /* sublattices whose channels fit in COLUMN_STRIDE */
    int64_t groups, rows; /* of sublattices, and of the sums: (sublattice, channel) */
} weight_work;

static int64_t sums_of_plane(const weight_work *w)
{
    return PLANE * w->rows * BLOCK;
}

/* left [PLANE][groups][BLOCK_TILES][COLUMN_STRIDE]. */
static void pack_left(const weight_work *w, int64_t first, int64_t tiles, int j, int64_t c, float *left)
{
    const int64_t count = smaller(w->channels, w->tiles.shape.in - c);
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        vector values[72];
        tile_place(&w->tiles, first + tile, at);
        spread_tile(&w->tiles, &w->x, at, j, c, count, values);
        for (int p = 0; p < PLANE; p++) {
            for (int s = 0; s < SUBLATTICES; s++) {
                float *to = left + ((p * w->groups + s / w->in_group) * BLOCK_TILES + tile) * COLUMN_STRIDE;
                store_count(to + s % w->in_group * w->channels, values[plane_place(p, s)], w->channels);
            }
        }
    }
}

/* right [PLANE][BLOCK / PANEL][BLOCK_TILES][PANEL]. */
static void pack_right(const weight_work *w, int64_t first, int64_t tiles, int j, int64_t c, float *right)
{
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        tile_place(&w->tiles, first + tile, at);
        for (int64_t i = 0; i < BLOCK; i += LANES) {
            const int64_t count = w->tiles.shape.out - c - i;
            vector products[PLANE] = {{0}};
            if (count > 0) spread_gradient(&w->tiles, &w->dy, at, j, c + i, count, products);
            for (int p = 0; p < PLANE; p++)
                store(right + ((p * (BLOCK / PANEL) + i / PANEL) * BLOCK_TILES + tile) * PANEL + i % PANEL,
                      products[p]);
        }
    }
}

/* Adds up part `part` of the tiles: sums [PLANE][rows][BLOCK]. */
static void add_part(const weight_work *w, int64_t part, int j, int64_t x_block, int64_t y_block, float *memory,
                     float *sums)
{
    float *left = memory, *right = left + (PLANE * w->groups * BLOCK_TILES + 1) * COLUMN_STRIDE;
    const int64_t begin = piece_begin(w->tiles.count, w->parts, part);
    const int64_t end = piece_begin(w->tiles.count, w->parts, part + 1);
    for (int64_t first = begin; first < end; first += BLOCK_TILES) {
        const int64_t tiles = smaller(BLOCK_TILES, end - first);
        pack_left(w, first, tiles, j, x_block * w->channels, left);
        pack_right(w, first, tiles, j, y_block * BLOCK, right);
        for (int64_t item = 0; item < PLANE * w->groups * (BLOCK / PANEL); item++) {
            const int64_t panel = item % (BLOCK / PANEL), group = item / (BLOCK / PANEL) % w->groups;
            const int64_t p = item / (BLOCK / PANEL) / w->groups, sublattice = group * w->in_group;
            const int64_t rows = smaller(w->in_group, SUBLATTICES - sublattice) * w->channels;
            const int64_t parts = pieces(rows, MOST_ROWS);
            const float *a = left + (p * w->groups + group) * BLOCK_TILES * COLUMN_STRIDE;
            const float *b = right + (p * (BLOCK / PANEL) + panel) * BLOCK_TILES * PANEL;
            float *to = sums + (p * w->rows + sublattice * w->channels) * BLOCK + panel * PANEL;
            for (int64_t i = 0; i < parts; i++) {
                const int64_t r = piece_begin(rows, parts, i);
                product_by_columns(piece_begin(rows, parts, i + 1) - r, a + r, b, tiles, to + r * BLOCK, BLOCK,
                                   first > begin, (upcoming){(const char *)(to + (r + MOST_ROWS) * BLOCK), 0});
            }
        }
    }
}

/* Six values become four taps. */
INLINE void gather_taps(const vector *from, int64_t from_step, vector *to, int64_t to_step)
{
#pragma GCC unroll 2
    for (int s = 0; s < 2; s++) {
        const vector middle = from[(3 * s + 1) * from_step];
        to[s * to_step] = from[3 * s * from_step] + middle;
        to[(s + 2) * to_step] = middle + from[(3 * s + 2) * from_step];
    }
}

/* dweight += the kernels of channel c of x and LANES channels of dy from o on, whose values lie in the lanes. */
static void add_kernels(const weight_work *w, const vector values[216], int64_t c, int64_t o)
{
    vector planes[144], lines[96], taps[TAPS];
    for (int i = 0; i < 36; i++) gather_taps(values + i, 36, planes + i, 36);
    for (int i = 0; i < 24; i++) gather_taps(planes + i / 6 * 36 + i % 6, 6, lines + i / 6 * 24 + i % 6, 6);
    for (int i = 0; i < 16; i++) gather_taps(lines + 6 * i, 1, taps + 4 * i, 1);
    for (int64_t tap = 0; tap < TAPS; tap += LANES) {
        transpose(taps + tap);
        for (int64_t i = 0; i < smaller(LANES, w->tiles.shape.out - o); i++) {
            float *to = w->dweight + ((o + i) * w->tiles.shape.in + c) * TAPS + tap;
            store(to, load(to) + taps[tap + i]);
        }
    }
}

/* A channel of a block of x: sums [3][parts][PLANE][rows][BLOCK]. */
static void add_channel(const weight_work *w, const float *sums, int64_t x_block, int64_t y_block, int64_t channel)
{
    const int64_t c = x_block * w->channels + channel, o = y_block * BLOCK;
    vector values[216];
    for (int64_t i = 0; i < BLOCK && c < w->tiles.shape.in && o + i < w->tiles.shape.out; i += LANES) {
        for (int product = 0; product < PRODUCTS; product++) {
            for (int s = 0; s < SUBLATTICES; s++) {
                vector sum = {0};
                for (int64_t part = 0; part < w->parts; part++)
                    sum += load(sums + (product / PLANE * w->parts + part) * sums_of_plane(w) +
                                (product % PLANE * w->rows + s * w->channels + channel) * BLOCK + i);
                values[value_place(product, s)] = sum;
            }
        }
        add_kernels(w, values, c, o + i);
    }
}

void VT_KERNEL(vt_tiled_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                         float *dweight)
{
    weight_work w = {.tiles = tiling_of(shape), .x = x, .dy = dy, .dweight = dweight};
    w.channels = smaller(LANES, shape->in);
    w.in_group = smaller(SUBLATTICES, COLUMN_STRIDE / w.channels);
    w.groups = pieces(SUBLATTICES, w.in_group);
    w.rows = SUBLATTICES * w.channels;
    w.x_blocks = pieces(shape->in, w.channels);
    w.y_blocks = pieces(shape->out, BLOCK);
    /* few blocks: the tiles are divided, too, by the shape alone */
    const int64_t blocks = w.x_blocks * w.y_blocks, most = pieces(w.tiles.count, 4 * BLOCK_TILES);
    w.parts = smaller(smaller(most, MOST_PARTS), pieces(2 * MOST_PARTS, blocks));
    const int64_t at_once = smaller(blocks, 2 * vt_cpu_threads(backend));
    const int64_t own = 3 * w.parts * sums_of_plane(&w);
    const int64_t packed = (PLANE * w.groups * BLOCK_TILES + 1) * COLUMN_STRIDE + PLANE * BLOCK_TILES * BLOCK;
    float *sums = vt_cpu_shared(backend, (size_t)(at_once * own) * sizeof *sums);
    if (sums == NULL || !vt_cpu_scratch_reserve(backend, (size_t)packed * sizeof *sums)) return;
    for (int64_t block = 0; block < blocks; block += at_once) {
        const int64_t now = smaller(at_once, blocks - block);
#pragma omp parallel for schedule(dynamic, 1)
        for (int64_t item = 0; item < now * 3 * w.parts; item++) {
            const int64_t b = block + item / (3 * w.parts), part = item % w.parts;
            add_part(&w, part, (int)(item / w.parts % 3), b / w.y_blocks, b % w.y_blocks, vt_cpu_scratch(backend),
                     sums + item * sums_of_plane(&w));
        }
#pragma omp parallel for collapse(2) schedule(static)
        for (int64_t b = 0; b < now; b++)
            for (int64_t channel = 0; channel < w.channels; channel++)
                add_channel(&w, sums + b * own, (block + b) / w.y_blocks, (block + b) % w.y_blocks, channel);
    }
}
