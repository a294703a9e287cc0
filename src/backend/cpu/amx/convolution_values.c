/* Convolutions of float32 over many points on tiles: the 27 products of vector/convolution_values.h are products of
 * terms (terms.h). ("Tiles" of points are called cells here, because tiles are registers.)
 *
 * For y and dx, the weight's values are packed once for all threads, [PRODUCTS][pieces of 16 columns][steps] tiles. The
 * vectors make the values of some cells (a strip), which stay in the second-level cache as float32 numbers; each of the
 * 27 operands is then split into terms just before its product. The depth of dweight's products is the cells: nine
 * products' values of some hundred cells lie in memory at a time, and linear_backward_weight multiplies them.
 * Channels of x are rounded up to 16, so that a piece of 16 columns has one sublattice.
 * Sums run in a fixed order, by one thread each: the bits do not depend on the number of threads. */
#include "backend/cpu/amx/convolution_values.h"
#include "backend/cpu/amx/runs.h"
#include "backend/cpu/vector/convolution_values.h"

enum {
    STRIP = 128,   /* cells that are worked on together */
    GROUP = DEPTH, /* channels of y whose kernels are packed together for dx */
    STEP = TERMS * TILE_PAIRS
};

static int64_t rounded_up(int64_t count, int64_t multiple)
{
    return pieces(count, multiple) * multiple;
}

typedef struct {
    tiling cells;
    vt_matrix from, to;           /* x and y, or dy and dx */
    int64_t in;                   /* channels of x, rounded up */
    int64_t deep, steps, columns; /* of each product; columns: whole blocks */
    pair *right;
    float *values; /* dx: what each cell gives its points, [cells][PRODUCTS][columns] */
} value_work;

static pair *right_piece(const value_work *w, int product, int64_t piece)
{
    return w->right + (product * w->columns / SIDE + piece) * w->steps * STEP;
}

/* From numbers [deep][SIDE], whose rows are 0 from the operand's depth on. */
static void pack_piece(const value_work *w, int product, int64_t piece, int64_t first_step, int64_t deep, float *from)
{
    const vt_matrix numbers = {.data = from, .rows = deep, .columns = SIDE, .stride = SIDE, .type = VT_FLOAT32};
    for (int64_t k = 0; k * DEPTH < deep; k++)
        pack_right_along(&numbers, k * DEPTH, 0, right_piece(w, product, piece) + (first_step + k) * STEP);
}

/* ---- y: depth (sublattice, channel of x) ---- */

/* Columns of piece `piece`. numbers [PRODUCTS][deep][SIDE]. */
static void pack_for_result(const value_work *w, const vt_matrix *weight, int64_t piece, float *numbers)
{
    const int64_t in = w->cells.shape.in;
    for (int64_t part = 0; part < SIDE; part += LANES) {
        const int64_t o = piece * SIDE + part;
        for (int64_t c = 0; c < w->in; c++) {
            vector values[216] = {{0}};
            if (c < in)
                load_kernels(weight, o * weight->stride + c * TAPS, weight->stride, w->cells.shape.out - o, values);
            for (int j = 0; j < PRODUCTS; j++)
                for (int s = 0; s < SUBLATTICES; s++)
                    store(numbers + (j * w->deep + s * w->in + c) * SIDE + part, values[value_place(j, s)]);
        }
    }
    for (int j = 0; j < PRODUCTS; j++) pack_piece(w, j, piece, 0, w->deep, numbers + j * w->deep * SIDE);
}

/* Values of `count` cells of x, of all channels: to [PLANE][STRIP][row]. */
static void fill_values(const tiling *cells, const vt_matrix *x, int64_t first, int64_t count, int j, int64_t channels,
                        int64_t strip, int64_t row, float *to)
{
    for (int64_t cell = 0; cell < count; cell++) {
        int64_t at[4];
        tile_place(cells, first + cell, at);
        for (int64_t i = 0; i < channels; i += LANES) {
            vector values[72] = {{0}};
            if (i < cells->shape.in) spread_tile(cells, x, at, j, i, cells->shape.in - i, values);
            for (int p = 0; p < PLANE; p++)
                for (int s = 0; s < SUBLATTICES; s++)
                    store(to + (p * strip + cell) * row + s * channels + i, values[plane_place(p, s)]);
        }
    }
}

/* The same of dy: products. */
static void fill_products(const tiling *cells, const vt_matrix *dy, int64_t first, int64_t count, int j,
                          int64_t channels, int64_t strip, int64_t row, float *to)
{
    for (int64_t cell = 0; cell < count; cell++) {
        int64_t at[4];
        tile_place(cells, first + cell, at);
        for (int64_t i = 0; i < channels; i += LANES) {
            vector products[PLANE] = {{0}};
            if (i < cells->shape.out) spread_gradient(cells, dy, at, j, i, cells->shape.out - i, products);
            for (int p = 0; p < PLANE; p++) store(to + (p * strip + cell) * row + i, products[p]);
        }
    }
}

/* sums [count × columns] = one product. from [count][row] becomes terms in `left`. */
static void multiply_values(const value_work *w, int product, float *from, int64_t row, int64_t count, pair *left,
                            float *sums, int64_t width)
{
    const vt_matrix numbers = {.data = from, .rows = count, .columns = w->deep, .stride = row, .type = VT_FLOAT32};
    const int64_t blocks = pieces(count, BLOCK), piece = w->steps * STEP;
    for (int64_t i = 0; i < 2 * blocks; i++)
        for (int64_t k = 0; k < w->steps; k++)
            pack_left_rows(&numbers, i * SIDE, k * DEPTH, left + i * piece + k * STEP);
    for (int64_t panel = 0; panel < w->columns / BLOCK; panel++) {
        const packed b = {.tiles = right_piece(w, product, 2 * panel), .piece = piece};
        for (int64_t block = 0; block < blocks; block++)
            multiply(TERMS, (packed){.tiles = left + 2 * block * piece, .piece = piece}, b, w->steps,
                     sums + block * BLOCK * width + panel * BLOCK, width, false, (upcoming){0});
    }
}

/* memory: a plane of values, a product's terms, the plane's sums and the results. */
static void result_strip(const value_work *w, int64_t first, int64_t count, float *memory)
{
    const int64_t row = w->deep + PADDING;
    float *values = memory, *sums = values + PLANE * STRIP * row, *results = sums + PLANE * STRIP * w->columns;
    /* cppcheck-suppress invalidPointerCast ; the memory after the numbers */
    pair *left = (pair *)(results + STRIP * 8 * w->columns);
    memset(results, 0, (size_t)(count * 8 * w->columns) * sizeof *results);
    for (int j = 0; j < 3; j++) {
        fill_values(&w->cells, &w->from, first, count, j, w->in, STRIP, row, values);
        for (int p = 0; p < PLANE; p++)
            multiply_values(w, PLANE * j + p, values + p * STRIP * row, row, count, left, sums + p * STRIP * w->columns,
                            w->columns);
        add_results(sums, STRIP, w->columns, w->columns, count, j, results, w->columns);
    }
    const product_result to = {.result = w->to};
    for (int64_t cell = 0; cell < count; cell++) {
        int64_t at[4];
        tile_place(&w->cells, first + cell, at);
        for (int place = 0; place < 8; place++)
            finish_block(&to, results + (8 * cell + place) * w->columns, w->columns, result_row(&w->cells, at, place),
                         1, 0, w->columns);
    }
}

void VT_KERNEL(vt_tiles_convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                             vt_matrix weight, vt_matrix y)
{
    value_work w = {.cells = tiling_of(shape), .from = x, .to = y, .in = rounded_up(shape->in, SIDE)};
    w.deep = SUBLATTICES * w.in;
    w.steps = w.deep / DEPTH;
    w.columns = rounded_up(shape->out, BLOCK);
    const int64_t strip = STRIP * (PLANE * (w.deep + PADDING + w.columns) + 8 * w.columns + w.steps * STEP / SIDE);
    const int64_t packing = PRODUCTS * w.deep * SIDE;
    w.right = vt_cpu_shared(backend, (size_t)(PRODUCTS * w.columns / SIDE * w.steps * STEP) * sizeof *w.right);
    if (w.right == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(strip + packing) * sizeof(float))) return;
#pragma omp parallel
    {
        float *memory = vt_cpu_scratch(backend);
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < w.columns / SIDE; piece++) pack_for_result(&w, &weight, piece, memory);
#pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < w.cells.count; first += STRIP)
            result_strip(&w, first, smaller(STRIP, w.cells.count - first), memory);
        tiles_release();
    }
}

/* ---- dx: depth channel of y, columns (sublattice, channel of x) ---- */

/* Columns of channels c … c + 15 of all sublattices, depth of step `step`. numbers
 * [PRODUCTS][SUBLATTICES][GROUP][SIDE]. */
static void pack_for_input(const value_work *w, const vt_matrix *weight, int64_t c, int64_t step, float *numbers)
{
    const int64_t in = w->cells.shape.in, out = w->cells.shape.out;
    for (int64_t part = 0; part < SIDE; part += LANES) {
        for (int64_t i = 0; i < GROUP; i++) {
            const int64_t o = step * GROUP + i;
            vector values[216] = {{0}};
            if (o < out && c + part < in)
                load_kernels(weight, o * weight->stride + (c + part) * TAPS, TAPS, in - c - part, values);
            for (int j = 0; j < PRODUCTS; j++)
                for (int s = 0; s < SUBLATTICES; s++)
                    store(numbers + ((j * SUBLATTICES + s) * GROUP + i) * SIDE + part, values[value_place(j, s)]);
        }
    }
    for (int j = 0; j < PRODUCTS; j++)
        for (int s = 0; s < SUBLATTICES; s++)
            pack_piece(w, j, (s * w->in + c) / SIDE, step, GROUP, numbers + (j * SUBLATTICES + s) * GROUP * SIDE);
}

/* Of the cells that begin with cell `base`. */
static void input_strip(const value_work *w, int64_t base, int64_t first, int64_t count, int j, float *memory)
{
    const int64_t row = w->deep + PADDING, width = PRODUCTS * w->columns;
    /* cppcheck-suppress invalidPointerCast ; the memory after the numbers */
    pair *left = (pair *)(memory + PLANE * STRIP * row);
    fill_products(&w->cells, &w->from, base + first, count, j, w->deep, STRIP, row, memory);
    for (int p = 0; p < PLANE; p++)
        multiply_values(w, PLANE * j + p, memory + p * STRIP * row, row, count, left,
                        w->values + first * width + (PLANE * j + p) * w->columns, width);
}

void VT_KERNEL(vt_tiles_convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                                    vt_matrix weight, vt_matrix dx)
{
    enum { AT_ONCE = 512 }; /* cells, in whole cubes */
    value_work w = {.cells = tiling_of(shape), .from = dy, .to = dx, .in = rounded_up(shape->in, SIDE)};
    w.deep = rounded_up(shape->out, DEPTH);
    w.steps = w.deep / DEPTH;
    w.columns = SUBLATTICES * w.in;
    const int64_t cubes = smaller(shape->batch, pieces(AT_ONCE, w.cells.of_cube)),
                  lines = 4 * shape->side * shape->side;
    const int64_t strip = STRIP * (PLANE * (w.deep + PADDING) + w.steps * STEP / SIDE);
    const int64_t packing = PRODUCTS * SUBLATTICES * GROUP * SIDE;
    const int64_t right = PRODUCTS * w.columns / SIDE * w.steps * STEP;
    const int64_t values = rounded_up(cubes * w.cells.of_cube, BLOCK) * PRODUCTS * w.columns;
    w.right = vt_cpu_shared(backend, (size_t)(right + values) * sizeof *w.right);
    if (w.right == NULL ||
        !vt_cpu_scratch_reserve(backend, (size_t)(strip > packing ? strip : packing) * sizeof(float)))
        return;
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    w.values = (float *)(w.right + right);
#pragma omp parallel
    {
        float *memory = vt_cpu_scratch(backend);
        tiles_configure();
#pragma omp for collapse(2) schedule(static)
        for (int64_t c = 0; c < w.in; c += SIDE)
            for (int64_t step = 0; step < w.steps; step++) pack_for_input(&w, &weight, c, step, memory);
        for (int64_t cube = 0; cube < shape->batch; cube += cubes) {
            const int64_t now = smaller(cubes, shape->batch - cube), cells = now * w.cells.of_cube;
            const given_values given = {w.values, cube, w.columns, w.in};
#pragma omp for collapse(2) schedule(dynamic, 1)
            for (int64_t first = 0; first < cells; first += STRIP)
                for (int j = 0; j < 3; j++)
                    input_strip(&w, cube * w.cells.of_cube, first, smaller(STRIP, cells - first), j, memory);
#pragma omp for schedule(static)
            for (int64_t line = 0; line < now * lines; line++) collect(&w.cells, &given, line, &w.to);
        }
        tiles_release();
    }
}

/* ---- dweight: of each product, sums [out][sublattice, channel of x] over all cells ---- */

enum { CELLS = 768, SOME_CELLS = 8 }; /* whose values are in memory; that a thread makes at a time */

void VT_KERNEL(vt_tiles_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                     vt_matrix dy, float *dweight)
{
    const tiling cells = tiling_of(shape);
    const int64_t in = rounded_up(shape->in, SIDE), out = rounded_up(shape->out, SIDE);
    const int64_t row = SUBLATTICES * in + PADDING, y_row = out + PADDING, of_product = out * SUBLATTICES * in;
    const int64_t most = smaller(CELLS, cells.count), numbers = PRODUCTS * of_product + PLANE * most * (row + y_row);
    float *sums = vt_cpu_stand_in_memory(backend, (size_t)numbers * sizeof *sums);
    if (sums == NULL) return;
    float *x_values = sums + PRODUCTS * of_product, *y_values = x_values + PLANE * most * row;
    for (int64_t first = 0; first < cells.count; first += most) {
        const int64_t now = smaller(most, cells.count - first);
        for (int j = 0; j < 3; j++) {
#pragma omp parallel for schedule(static)
            for (int64_t cell = 0; cell < now; cell += SOME_CELLS) {
                const int64_t count = smaller(SOME_CELLS, now - cell);
                fill_values(&cells, &x, first + cell, count, j, in, most, row, x_values + cell * row);
                fill_products(&cells, &dy, first + cell, count, j, out, most, y_row, y_values + cell * y_row);
            }
            for (int64_t p = 0; p < PLANE; p++) {
                const vt_matrix of_y = vt_matrix_make(y_values + p * most * y_row, now, y_row);
                const vt_matrix of_x = vt_matrix_make(x_values + p * most * row, now, row);
                ((vt_cpu_state *)backend->state)
                    ->weight_gradient(backend, vt_matrix_columns(of_x, 0, SUBLATTICES * in),
                                      vt_matrix_columns(of_y, 0, out), sums + (PLANE * j + p) * of_product, NULL,
                                      first == 0);
            }
        }
    }
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t o = 0; o < shape->out; o++) {
        for (int64_t c = 0; c < shape->in; c += LANES) {
            vector values[216];
            for (int p = 0; p < PRODUCTS; p++)
                for (int s = 0; s < SUBLATTICES; s++)
                    values[value_place(p, s)] = load(sums + p * of_product + (o * SUBLATTICES + s) * in + c);
            add_kernels(values, dweight + (o * shape->in + c) * TAPS, TAPS, shape->in - c);
        }
    }
}
