/* Convolutions of float32 over many points on tiles: the 27 products of vector/convolution_values.h are products of
 * terms (terms.h). ("Tiles" of points are called cells here, because tiles are registers.)
 *
 * For y and dx, the weight's values are packed once for all threads, [PRODUCTS][pieces of 16 columns][steps] tiles. The
 * vectors make the values of some cells (a strip) as float32 numbers; each of the 27 operands is split into terms
 * beside the product before it. The depth of dweight's products is the cells: the terms of dy's values of some hundred
 * cells lie in memory, and each thread makes those of x for three products at a time, beside the three before.
 * Channels of x are rounded up, so that a piece of 16 columns has one sublattice.
 * Sums run in a fixed order, by one thread each: the bits do not depend on the number of threads. */
#include "backend/cpu/amx/convolution_values.h"
#include "backend/cpu/amx/beside.h"
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

/* Numbers of a row of values. */
static int64_t row_of(const value_work *w)
{
    return w->deep + PADDING;
}

/* Values of `count` cells of x, of all channels: to [PLANE][STRIP][row]. */
static void fill_values(const value_work *w, int64_t first, int64_t count, int j, float *to)
{
    const int64_t in = w->cells.shape.in, row = row_of(w);
    for (int64_t cell = 0; cell < count; cell++) {
        int64_t at[4];
        tile_place(&w->cells, first + cell, at);
        for (int64_t i = 0; i < w->in; i += LANES) {
            vector values[72] = {{0}};
            if (i < in) spread_tile(&w->cells, &w->from, at, j, i, in - i, values);
            for (int p = 0; p < PLANE; p++)
                for (int s = 0; s < SUBLATTICES; s++)
                    store(to + (p * STRIP + cell) * row + s * w->in + i, values[plane_place(p, s)]);
        }
    }
}

/* The same of dy: products. */
static void fill_products(const value_work *w, int64_t first, int64_t count, int j, float *to)
{
    const int64_t out = w->cells.shape.out, row = row_of(w);
    for (int64_t cell = 0; cell < count; cell++) {
        int64_t at[4];
        tile_place(&w->cells, first + cell, at);
        for (int64_t i = 0; i < w->deep; i += LANES) {
            vector products[PLANE] = {{0}};
            if (i < out) spread_gradient(&w->cells, &w->from, at, j, i, out - i, products);
            for (int p = 0; p < PLANE; p++) store(to + (p * STRIP + cell) * row + i, products[p]);
        }
    }
}

/* ---- products of packed operands ---- */

/* sums [blocks × 32][panels × 32], `width` apart, (+)= left × right; both [pieces][steps] tiles. One operand is read
 * once, 32 rows or columns at a time, the next of which are prefetched; the other one is read again for each of them.
 * streams_left, a constant: the left one is read once. */
INLINE void multiply_packed(bool streams_left, const pair *left, int64_t blocks, const pair *right, int64_t panels,
                            int64_t steps, float *sums, int64_t width, bool add, beside_product *beside)
{
    const int64_t piece = steps * STEP, outer = streams_left ? blocks : panels, inner = streams_left ? panels : blocks;
    for (int64_t n = 0; n < outer; n++) {
        const pair *next = (streams_left ? left : right) + 2 * (n + 1) * piece;
        beside->ahead = (const char *)next;
        beside->end = (const char *)(n + 1 < outer ? next + 2 * piece : next);
        for (int64_t i = 0; i < inner; i++) {
            const int64_t row = streams_left ? n : i, panel = streams_left ? i : n;
            const tile_block block = {.a = {.tiles = left + 2 * row * piece, .piece = piece},
                                      .b = {.tiles = right + 2 * panel * piece, .piece = piece},
                                      .steps = steps,
                                      .sums = sums + row * BLOCK * width + panel * BLOCK,
                                      .width = width,
                                      .add = add};
            multiply_block(TERMS, true, true, block, do_beside, beside);
        }
    }
}

/* float32 numbers, and the tiles for their terms. */
typedef struct {
    const float *from;
    int64_t row, steps;
    pair *to;
    int64_t r, k; /* of the next unit: a row's numbers of a step */
} split_work;

static void split_units(void *work, int64_t count)
{
    split_work *w = work;
    for (; count > 0; count--) {
        const float *from = w->from + w->r * w->row + w->k * DEPTH;
        pair *to = w->to + (w->r / SIDE * w->steps + w->k) * STEP + w->r % SIDE * SIDE;
        for (int64_t p = 0; p < SIDE; p += LANES) store_terms(load(from + p), load(from + SIDE + p), to + p);
        if (++w->k == w->steps) w->k = 0, w->r++;
    }
}

/* The nine products of plane j. Those of product p go to sums + p * of_sums, [count × columns] with rows `width` apart.
 * values: [PLANE][STRIP][row]. left: room for the terms of two products. */
static void multiply_plane(const value_work *w, int j, const float *values, int64_t count, pair *left, float *sums,
                           int64_t of_sums, int64_t width)
{
    const int64_t blocks = pieces(count, BLOCK), panels = w->columns / BLOCK, of_left = STRIP / SIDE * w->steps * STEP;
    split_work next = {.from = values, .row = row_of(w), .steps = w->steps, .to = left};
    split_units(&next, count * w->steps);
    for (int p = 0; p < PLANE; p++) {
        beside_product beside = {.pack = split_units, .work = &next};
        next.from += STRIP * next.row;
        next.to = left + (p + 1) % 2 * of_left;
        next.r = 0;
        if (p + 1 < PLANE) beside.pace = spread(count * w->steps, blocks * panels * w->steps * PLACES);
        multiply_packed(false, left + p % 2 * of_left, blocks, right_piece(w, PLANE * j + p, 0), panels, w->steps,
                        sums + p * of_sums, width, false, &beside);
        finish_beside(&beside);
    }
}

/* memory: a plane of values, the plane's sums, the results, and two products' terms. */
static void result_strip(const value_work *w, int64_t first, int64_t count, float *memory)
{
    float *values = memory, *sums = values + PLANE * STRIP * row_of(w), *results = sums + PLANE * STRIP * w->columns;
    /* cppcheck-suppress invalidPointerCast ; the memory after the numbers */
    pair *left = (pair *)(results + STRIP * 8 * w->columns);
    memset(results, 0, (size_t)(count * 8 * w->columns) * sizeof *results);
    for (int j = 0; j < 3; j++) {
        fill_values(w, first, count, j, values);
        multiply_plane(w, j, values, count, left, sums, STRIP * w->columns, w->columns);
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
    const int64_t strip = STRIP * (PLANE * (row_of(&w) + w.columns) + 8 * w.columns + 2 * w.steps * STEP / SIDE);
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
    const int64_t width = PRODUCTS * w->columns;
    /* cppcheck-suppress invalidPointerCast ; the memory after the numbers */
    pair *left = (pair *)(memory + PLANE * STRIP * row_of(w));
    fill_products(w, base + first, count, j, memory);
    multiply_plane(w, j, memory, count, left, w->values + first * width + PLANE * j * w->columns, w->columns, width);
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
    const int64_t strip = STRIP * (PLANE * row_of(&w) + 2 * w.steps * STEP / SIDE);
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

/* ---- dweight: of each product, sums [channel of y][sublattice, channel of x] over all cells. A piece of work is a
 * line, the three products with one j0 and one j1, of some channels of x in the two sublattices with one s0 and one s1.
 * Its values of x, and those of the next piece, stay in the second-level cache. ---- */

enum {
    CELLS = 256, /* whose terms are in memory */
    LINE = 3,    /* products of a line */
    LINES = PRODUCTS / LINE,
    PAIRS = SUBLATTICES / 2
};

typedef struct {
    tiling cells;
    vt_matrix x, dy;
    int64_t out;          /* channels of y, rounded up */
    int64_t some, groups; /* channels of x in a piece of work; how many such groups */
    int64_t columns;      /* of a piece: some channels of two sublattices */
    int64_t first, steps; /* of the cells whose terms are in memory */
    pair *left;           /* terms of the values of dy: [PRODUCTS][pieces of 16][steps] tiles */
    float *sums;          /* of the pieces of work [LINES][groups][PAIRS], each [LINE][out][columns + PADDING] */
} gradient_work;

/* 32 cells of 16 channels of dy. */
static void pack_gradient(const gradient_work *w, int j, int64_t step, int64_t piece)
{
    enum { AHEAD = 4 };
    float numbers[PLANE][DEPTH * SIDE] = {{0}};
    const int64_t first = w->first + step * DEPTH, c = piece * SIDE;
    for (int64_t i = 0; i < smaller(DEPTH, w->cells.count - first); i++) {
        int64_t at[4];
        tile_place(&w->cells, smaller(first + i + AHEAD, w->cells.count - 1), at);
        for (int place = 0; place < 8; place++)
            look_ahead_rows(&w->dy, result_row(&w->cells, at, place), 1, c, smaller(c + SIDE, w->dy.columns), 0);
        tile_place(&w->cells, first + i, at);
        for (int64_t part = 0; part < smaller(SIDE, w->cells.shape.out - c); part += LANES) {
            vector products[PLANE];
            spread_gradient(&w->cells, &w->dy, at, j, c + part, w->cells.shape.out - c - part, products);
            for (int p = 0; p < PLANE; p++) store(numbers[p] + i * SIDE + part, products[p]);
        }
    }
    for (int p = 0; p < PLANE; p++) {
        const vt_matrix matrix = vt_matrix_make(numbers[p], DEPTH, SIDE);
        pack_left_columns(&matrix, 0, 0,
                          w->left + (((PLANE * j + p) * w->out / SIDE + piece) * w->steps + step) * STEP);
    }
}

/* A piece of work, and the memory for its values: [LINE][two sublattices, pieces of 16 channels][steps] tiles. */
typedef struct {
    const gradient_work *all;
    int64_t line, channel; /* channel: its first */
    int j[2], s[2];        /* on the first two axes */
    int64_t unit;          /* the next one: a row of pairs, of two cells */
    pair *right;
} line_work;

static line_work piece_of_work(const gradient_work *all, int64_t index, pair *right)
{
    const int64_t line = index / PAIRS / all->groups, group = index / PAIRS % all->groups;
    return (line_work){.all = all,
                       .line = line,
                       .channel = group * all->some,
                       .j = {(int)(line / 3), (int)(line % 3)},
                       .s = {(int)(index % PAIRS / 2), (int)(index % 2)},
                       .right = right};
}

/* What values of a cell are made of; nothing beyond the last. */
static line_sources sources_of(const line_work *w, int64_t cell)
{
    int64_t at[4];
    if (cell >= w->all->cells.count) return (line_sources){0};
    tile_place(&w->all->cells, cell, at);
    return find_lines(&w->all->cells, at, w->j, w->s);
}

/* A row of pairs, of two cells; the points of those that come later are prefetched. */
static void pack_cells(const line_work *w, int64_t unit)
{
    enum { AHEAD = 2 };
    const gradient_work *all = w->all;
    const int64_t step = unit / SIDE, row = unit % SIDE, cell = all->first + step * DEPTH + row, steps = all->steps;
    const int64_t later = all->first + (unit + AHEAD) / SIDE * DEPTH + (unit + AHEAD) % SIDE;
    line_sources from[2];
    for (int half = 0; half < 2; half++) {
        const line_sources soon = sources_of(w, later + half * SIDE);
        prefetch_lines(&all->cells, &all->x, &soon, w->channel, all->some);
        from[half] = sources_of(w, cell + half * SIDE);
    }
    for (int64_t c = 0; c < all->some; c += LANES) {
        const int64_t channel = w->channel + c, left = all->x.columns - channel;
        vector values[2][6];
        for (int half = 0; half < 2; half++)
            spread_line(&all->cells, &all->x, &from[half], channel, left > 0 ? left : 0, values[half]);
        for (int k = 0; k < 6; k++) { /* sublattice k / 3, product k % 3 */
            const int64_t piece = (k % 3 * 2 + k / 3) * all->some / SIDE + c / SIDE;
            store_terms(values[0][k], values[1][k], w->right + (piece * steps + step) * STEP + row * SIDE + c % SIDE);
        }
    }
}

static void pack_next_cells(void *work, int64_t count)
{
    line_work *w = work;
    for (; count > 0; count--) pack_cells(w, w->unit++);
}

/* Whether x is part of longer rows, as a skip connection's channels are: it is read many times, and each time the
 * processor fetches the other parts, too. So it is first copied, in rows without gaps. */
static bool is_copied(const vt_matrix *x)
{
    return x->type == VT_FLOAT32 && x->stride >= x->columns + SIDE;
}

/* Where the sums of a product of piece `index` begin. */
static float *sums_of(const gradient_work *w, int64_t index, int product)
{
    return w->sums + (index * LINE + product) * w->out * (w->columns + PADDING);
}

/* Pieces of work begin … end - 1; the values of each are packed beside the products of the one before. right: room for
 * two. */
static void add_pieces(const gradient_work *all, int64_t begin, int64_t end, pair *right)
{
    const int64_t of_left = all->out / SIDE * all->steps * STEP, of_right = all->columns / SIDE * all->steps * STEP;
    const int64_t blocks = all->out / BLOCK, panels = all->columns / BLOCK, units = all->steps * SIDE;
    line_work next = piece_of_work(all, begin, right);
    pack_next_cells(&next, units);
    for (int64_t index = begin; index < end; index++) {
        const line_work now = next;
        beside_product beside = {.pack = pack_next_cells, .work = &next};
        next = piece_of_work(all, index + 1, right + (index + 1 - begin) % 2 * LINE * of_right);
        if (index + 1 < end) beside.pace = spread(units, LINE * blocks * panels * all->steps * PLACES);
        for (int p = 0; p < LINE; p++)
            multiply_packed(true, all->left + (now.line * LINE + p) * of_left, blocks, now.right + p * of_right, panels,
                            all->steps, sums_of(all, index, p), all->columns + PADDING, all->first > 0, &beside);
        finish_beside(&beside);
    }
}

/* Channels c … c + LANES - 1 of x, channel o of y. */
static void gather_kernels(const gradient_work *w, int64_t o, int64_t c, float *dweight)
{
    const int64_t row = w->columns + PADDING;
    vector values[216];
    for (int p = 0; p < PRODUCTS; p++)
        for (int s = 0; s < SUBLATTICES; s++)
            values[value_place(p, s)] =
                load(sums_of(w, (p / LINE * w->groups + c / w->some) * PAIRS + s / 2, p % LINE) + o * row +
                     s % 2 * w->some + c % w->some);
    add_kernels(values, dweight + (o * w->cells.shape.in + c) * TAPS, TAPS, w->cells.shape.in - c);
}

void VT_KERNEL(vt_tiles_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                     vt_matrix dy, float *dweight)
{
    gradient_work w = {.cells = tiling_of(shape), .x = x, .dy = dy, .out = rounded_up(shape->out, BLOCK)};
    w.some = shape->in > BLOCK ? 2 * BLOCK : BLOCK;
    w.groups = pieces(shape->in, w.some);
    w.columns = 2 * w.some;
    const int64_t most = smaller(CELLS, rounded_up(w.cells.count, DEPTH)) / DEPTH * STEP; /* pairs of 16 channels */
    const int64_t work = LINES * w.groups * PAIRS, parts = smaller(vt_cpu_threads(backend), work);
    const int64_t sums = work * LINE * w.out * (w.columns + PADDING), left = PRODUCTS * w.out / SIDE * most;
    const int64_t copied = is_copied(&x) ? x.rows * x.columns : 0;
    w.sums = vt_cpu_shared(backend, (size_t)(sums + left + copied) * sizeof *w.sums);
    if (w.sums == NULL || !vt_cpu_scratch_reserve(backend, (size_t)(2 * LINE * w.columns / SIDE * most) * sizeof(pair)))
        return;
    /* cppcheck-suppress invalidPointerCast ; the memory after the sums */
    w.left = (pair *)(w.sums + sums);
    if (copied > 0) w.x = vt_matrix_make(w.sums + sums + left, x.rows, x.columns);
#pragma omp parallel firstprivate(w)
    {
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < (copied > 0 ? x.rows : 0); r++)
            memcpy(w.x.data + r * x.columns, x.data + r * x.stride, (size_t)x.columns * sizeof(float));
        for (w.first = 0; w.first < w.cells.count; w.first += CELLS) {
            w.steps = pieces(smaller(CELLS, w.cells.count - w.first), DEPTH);
#pragma omp for collapse(3) schedule(static)
            for (int j = 0; j < 3; j++)
                for (int64_t step = 0; step < w.steps; step++)
                    for (int64_t piece = 0; piece < w.out / SIDE; piece++) pack_gradient(&w, j, step, piece);
#pragma omp for schedule(static)
            for (int64_t part = 0; part < parts; part++)
                add_pieces(&w, piece_begin(work, parts, part), piece_begin(work, parts, part + 1),
                           vt_cpu_scratch(backend));
        }
        tiles_release();
#pragma omp for collapse(2) schedule(static)
        for (int64_t o = 0; o < shape->out; o++)
            for (int64_t c = 0; c < shape->in; c += LANES) gather_kernels(&w, o, c, dweight);
    }
}
