/* Convolutions over cubes of bfloat16 on tiles. The operand with points is laid out once as a volume in which a tile's
 * 16 rows follow one another wherever it begins, so that all 64 taps are products of tiles that are read in place.
 * Float32 takes 27 products of terms instead of 64 (convolution_values.c). Few channels of x, as in the first layer and
 * the last: convolution_thin.c. Few points stay with vector/, but for y and dx of a cube of 8³ (float32:
 * convolution_few.c).
 *
 * On each axis, tap s + 2 d (s, d: 0 or 1) of point q of y sees point 2 (q + d) - 1 + s of x: point q + d of sublattice
 * s. A row of x's volume is a cell, with the channels of all eight sublattices (y, and the weight's gradient); a row of
 * dy's volume is a point, which gives point h of sublattice s of dx, that is 2 h + 1 - s, from points h + 1 - s - d. So
 * each sum runs over eight offsets d, and a volume has a copy for each offset on the last axis: then the lines of a
 * plane follow one another without a gap. Beyond the cube all is 0.
 * Sums run in a fixed order, by one thread each: the bits do not depend on the number of threads. */
#include "backend/cpu/amx/convolution_few.h"
#include "backend/cpu/amx/convolution_thin.h"
#include "backend/cpu/amx/convolution_values.h"
#include "backend/cpu/amx/convolution_volume.h"
#include "backend/cpu/amx/runs.h"

enum { LEAST_POINTS = 1024, LEAST_CHANNELS = 32, GROUP = DEPTH };

/* The terms of the operands, if these go by tiles here; 0: the vectors have them. In bfloat16 y and dx of a cube of 8³
 * points go by tiles, too; its dweight is faster without them. */
static int terms_on_tiles(const vt_convolution *shape, const vt_matrix *a, const vt_matrix *b, bool for_weight)
{
    const int terms = terms_of(a->type);
    const int64_t least = terms == 1 && !for_weight && shape->side >= 8 ? LEAST_POINTS / 2 : LEAST_POINTS;
    if (terms != terms_of(b->type) || (terms > 1 && shape->side % 2 != 0) ||
        smaller(shape->in, shape->out) < LEAST_CHANNELS ||
        shape->batch * shape->side * shape->side * shape->side < least)
        return 0;
    return terms;
}

/* Whether x (or dx) has few channels, and convolution_thin.c takes the operands. */
static bool is_thin(const vt_convolution *shape, const vt_matrix *a, const vt_matrix *b)
{
    return terms_of(a->type) == terms_of(b->type) && shape->in <= MOST_THIN && shape->out >= LEAST_CHANNELS &&
           shape->side % 32 == 0;
}

/* ---- the weight: [classes][CORNERS][pieces of 16 columns][steps] tiles ---- */

/* The kernels of 32 numbers of the depth × 16 columns, which lie `deep_step` and `column_step` apart in the weight:
 * to [TAPS][GROUP][SIDE]. */
static void load_kernels(const vt_matrix *weight, int64_t index, int64_t deep_step, int64_t deep, int64_t column_step,
                         int64_t columns, float *to)
{
    for (int64_t k = 0; k < GROUP; k++) {
        for (int64_t tap = 0; tap < TAPS; tap += LANES) {
            for (int64_t c = 0; c < SIDE; c += LANES) {
                vector square[LANES];
                for (int64_t i = 0; i < LANES; i++)
                    square[i] = k < deep && c + i < columns
                                    ? load_elements(weight, index + k * deep_step + (c + i) * column_step + tap)
                                    : (vector){0};
                transpose(square);
                for (int64_t i = 0; i < LANES; i++) store(to + ((tap + i) * GROUP + k) * SIDE + c, square[i]);
            }
        }
    }
}

/* from [GROUP][SIDE]. */
static void pack_kernels(const float *from, pair *to)
{
    for (int64_t p = 0; p < SIDE; p++)
        for (int64_t c = 0; c < SIDE; c += LANES)
            store_pairs(to + p * SIDE + c, load(from + 2 * p * SIDE + c), load(from + (2 * p + 1) * SIDE + c));
}

/* ---- y and dx: sums over eight offsets of rows of a volume × the weight ---- */

typedef struct {
    vt_convolution shape;
    bool forward;
    vt_matrix weight, from, to; /* from: x or dy, to: y or dx, of one cube */
    int classes;                /* dx has a class of results for each sublattice */
    int64_t steps, panels;      /* of the depth; of BLOCK columns */
    int64_t lowest, across;     /* offset on an axis; points of the volume on an axis */
    int64_t copies, row;        /* of the volume; pairs of a row: an odd number of cache lines */
    const pair *right;
    pair *volume;
} volume_work;

static int64_t steps_of(int64_t channels)
{
    return pieces(channels, DEPTH);
}

static int64_t right_tile(const volume_work *w, int kind, int d, int64_t piece)
{
    return ((kind * CORNERS + d) * 2 * w->panels + piece) * w->steps * TILE_PAIRS;
}

static void pack_weight(const volume_work *w, int64_t piece, int64_t group, float *kernels, pair *right)
{
    const int64_t deep = w->forward ? w->shape.in : w->shape.out, columns = w->forward ? w->shape.out : w->shape.in;
    const int64_t deep_step = w->forward ? TAPS : w->weight.stride, column_step = w->forward ? w->weight.stride : TAPS;
    const int64_t k = group * GROUP, c = piece * SIDE;
    load_kernels(&w->weight, k * deep_step + c * column_step, deep_step, deep - k, column_step, columns - c, kernels);
    for (int s = 0; s < CORNERS; s++) {
        const int64_t step = w->forward ? s * steps_of(w->shape.in) + group : group;
        for (int d = 0; d < CORNERS; d++)
            pack_kernels(kernels + tap_of(s, d) * GROUP * SIDE,
                         right + right_tile(w, w->forward ? 0 : s, d, piece) + step * TILE_PAIRS);
    }
}

/* Channels of one point of x or dy, 0 in row -1. */
static void copy_channels(const vt_matrix *from, int64_t row, int64_t steps, pair *to)
{
    for (int64_t c = 0; c < steps * DEPTH; c += SIDE, to += SIDE / 2)
        copy_inside(false, from, row < 0 ? from->rows : row, c, to);
}

/* Line `line` of the volume, in all copies: copy e has point h + lowest + e at place h. */
static void fill_line(const volume_work *w, int64_t line)
{
    const int64_t side = w->shape.side, of_copy = w->across * w->across * side * w->row;
    const int64_t size = (int64_t)sizeof(pair) * w->row, each = steps_of(w->shape.in);
    for (int64_t i = 0; i < w->across; i++) {
        const int64_t at[3] = {line / w->across + w->lowest, line % w->across + w->lowest, i + w->lowest};
        pair *first = NULL;
        for (int64_t copy = 0; copy < w->copies; copy++) {
            if (i < copy || i - copy >= side) continue;
            pair *to = w->volume + copy * of_copy + (line * side + i - copy) * w->row;
            if (first != NULL) {
                memcpy(to, first, (size_t)size);
                continue;
            }
            first = to;
            for (int s = 0; s < (w->forward ? CORNERS : 1); s++)
                copy_channels(&w->from, w->forward ? row_of_cell(side, at, s) : row_of_point(side, at),
                              w->forward ? each : w->steps, to + s * each * SIDE);
        }
    }
}

/* The volume's row that row i of plane h needs at offset d of a class. */
static const pair *volume_row(const volume_work *w, int kind, int d, int64_t h, int64_t i)
{
    int64_t e[3];
    for (int axis = 0; axis < 3; axis++)
        e[axis] = (w->forward ? on_axis(d, axis) : 1 - on_axis(kind, axis) - on_axis(d, axis)) - w->lowest;
    return w->volume + (((e[2] * w->across + h + e[0]) * w->across + e[1]) * w->shape.side + i) * w->row;
}

/* Row i of plane h of a class. */
static int64_t result_row(const volume_work *w, int kind, int64_t h, int64_t i)
{
    const int64_t side = w->shape.side, at[3] = {h, i / side, i % side};
    return w->forward ? row_of_point(side, at) : row_of_result(side, at, kind);
}

enum { STRIP = 8, SLAB = 1 << 19 }; /* blocks of rows that are computed together; bytes of the weight beside them */

/* Blocks first … end - 1 (of 32 rows, counted plane by plane), panels begin … last - 1. */
static void multiply_volume(const volume_work *w, int kind, int64_t first, int64_t end, int64_t begin, int64_t last,
                            float *sums)
{
    const int64_t plane = w->shape.side * w->shape.side, blocks = pieces(plane, BLOCK), width = (last - begin) * BLOCK;
    const int64_t tile = w->steps * TILE_PAIRS;
    const product_result to = {.result = w->to};
    for (int d = 0; d < CORNERS; d++) {
        for (int64_t block = first; block < end; block++) {
            const packed left = {.tiles = volume_row(w, kind, d, block / blocks, block % blocks * BLOCK),
                                 .piece = SIDE * w->row,
                                 .row = w->row * (int64_t)sizeof(pair),
                                 .step = SIDE};
            for (int64_t panel = begin; panel < last; panel++) {
                const packed right = {.tiles = w->right + right_tile(w, kind, d, 2 * panel), .piece = tile};
                multiply(1, left, right, w->steps, sums + (block - first) * BLOCK * width + (panel - begin) * BLOCK,
                         width, d > 0, (upcoming){0});
            }
        }
    }
    for (int64_t block = first; block < end; block++) {
        const int64_t i = block % blocks * BLOCK, rows = smaller(BLOCK, plane - i);
        for (int64_t r = 0; r < rows; r++)
            finish_block(&to, sums + ((block - first) * BLOCK + r) * width, width,
                         result_row(w, kind, block / blocks, i + r), 1, begin * BLOCK, width);
    }
}

static void convolve(vt_backend *backend, const vt_convolution *shape, vt_matrix from, vt_matrix weight, vt_matrix to,
                     bool forward)
{
    volume_work w = {.shape = *shape, .forward = forward, .weight = weight};
    const int64_t side = shape->side, deep = forward ? shape->in : shape->out;
    w.classes = forward ? 1 : CORNERS;
    w.steps = (forward ? CORNERS : 1) * steps_of(deep);
    w.panels = pieces(to.columns, BLOCK);
    w.lowest = forward ? 0 : -1;
    w.copies = forward ? 2 : 3;
    w.across = side + w.copies - 1;
    w.row = w.steps * SIDE | SIDE;
    const int64_t all = pieces(side * side, BLOCK) * side, rows = w.copies * w.across * w.across * side + BLOCK;
    const int64_t right = right_tile(&w, w.classes, 0, 0), tile = w.steps * TILE_PAIRS;
    const int64_t fit = smaller(w.panels, SLAB / (2 * tile * (int64_t)sizeof(pair)) + 1);
    const int64_t groups = pieces(w.panels, fit), strips = pieces(all, smaller(STRIP, pieces(all, 8)));
    const int64_t own = STRIP * BLOCK * BLOCK * fit + TAPS * GROUP * SIDE;
    pair *memory = vt_cpu_shared(backend, (size_t)(right + rows * w.row) * sizeof *memory);
    if (memory == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof(float))) return;
    w.right = memory;
    w.volume = memory + right;
    memset(w.volume + (rows - BLOCK) * w.row, 0, (size_t)(BLOCK * w.row) * sizeof *memory);
#pragma omp parallel
    {
        float *scratch = vt_cpu_scratch(backend);
        tiles_configure();
#pragma omp for collapse(2) schedule(static)
        for (int64_t piece = 0; piece < 2 * w.panels; piece++)
            for (int64_t group = 0; group < steps_of(deep); group++) pack_weight(&w, piece, group, scratch, memory);
        for (int64_t cube = 0; cube < shape->batch; cube++) {
            volume_work own_cube = w;
            own_cube.from = from_row(from, cube * from.rows / shape->batch);
            own_cube.to = from_row(to, cube * to.rows / shape->batch);
#pragma omp for schedule(static)
            for (int64_t line = 0; line < w.across * w.across; line++) fill_line(&own_cube, line);
#pragma omp for collapse(3) schedule(dynamic, 1)
            for (int64_t strip = 0; strip < strips; strip++)
                for (int kind = 0; kind < w.classes; kind++)
                    for (int64_t group = 0; group < groups; group++)
                        multiply_volume(&own_cube, kind, piece_begin(all, strips, strip),
                                        piece_begin(all, strips, strip + 1), piece_begin(w.panels, groups, group),
                                        piece_begin(w.panels, groups, group + 1), scratch);
        }
        tiles_release();
    }
}

static const vt_backend *vectors(const vt_backend *backend)
{
    return &((const vt_cpu_state *)backend->state)->vectors;
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    const int terms = terms_on_tiles(shape, &x, &weight, false);
    if (is_thin(shape, &x, &weight))
        VT_KERNEL(vt_thin_convolution_forward)(backend, shape, x, weight, y);
    else if (terms > 1)
        VT_KERNEL(vt_tiles_convolution_forward)(backend, shape, x, weight, y);
    else if (terms == 1)
        convolve(backend, shape, x, weight, y, true);
    else if (VT_KERNEL(vt_few_points_suit)(shape, x, weight, y))
        VT_KERNEL(vt_few_points_convolve)(backend, shape, x, weight, y, true);
    else
        vectors(backend)->convolution_forward(backend, shape, x, weight, y);
}

static void convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight,
                                       vt_matrix dx)
{
    const int terms = terms_on_tiles(shape, &dy, &weight, false);
    if (is_thin(shape, &dy, &weight))
        VT_KERNEL(vt_thin_convolution_backward_input)(backend, shape, dy, weight, dx);
    else if (terms > 1)
        VT_KERNEL(vt_tiles_convolution_backward_input)(backend, shape, dy, weight, dx);
    else if (terms == 1)
        convolve(backend, shape, dy, weight, dx, false);
    else if (VT_KERNEL(vt_few_points_suit)(shape, dy, weight, dx))
        VT_KERNEL(vt_few_points_convolve)(backend, shape, dy, weight, dx, false);
    else
        vectors(backend)->convolution_backward_input(backend, shape, dy, weight, dx);
}

/* ---- dweight += dyᵀ times the cells of x at each offset ---- */

typedef struct {
    vt_convolution shape;
    vt_matrix x, dy; /* of one cube */
    float *dweight;
    int64_t plane_steps, steps; /* of a plane of y, of a cube */
    int64_t blocks;             /* of BLOCK channels of dy */
    int64_t copy, row;          /* rows of a copy of the volume; pairs of a row */
    const pair *left;           /* dy: [pieces of 16 channels][steps] tiles */
} gradient_work;

/* 32 channels of a sublattice, as pairs of rows f and f + 1: a tile of a right operand begins at any row. table
 * [copy + 1]. */
static void fill_pairs(const gradient_work *w, int s, int64_t c, int64_t *table, pair *to)
{
    const int64_t side = w->shape.side, lines = (side + 1) * (side + 1);
    for (int64_t copy = 0; copy < 2; copy++) {
        for (int64_t f = 0; f <= w->copy; f++) {
            const int64_t line = f / side, at[3] = {line / (side + 1), line % (side + 1), f % side + copy};
            const int64_t row = line < lines ? row_of_cell(side, at, s) : -1;
            table[f] = row < 0 ? w->x.rows : row;
        }
        for (int64_t f = 0; f < w->copy; f++, to += w->row)
            for (int64_t i = 0; i < BLOCK; i += LANES)
                store_pairs(to + i, load_inside(false, &w->x, table[f], c + i),
                            load_inside(false, &w->x, table[f + 1], c + i));
    }
}

/* dweight of sublattice s and 32 channels of x. sums [blocks][CORNERS][BLOCK × BLOCK]. */
static void add_gradient(const gradient_work *w, int s, int64_t c, float *sums, pair *volume)
{
    const int64_t side = w->shape.side, in = w->shape.in;
    for (int64_t step = 0, run; step < w->steps; step += run) {
        const int64_t plane = step / w->plane_steps, i = step % w->plane_steps;
        run = smaller(RUN, w->plane_steps - i); /* not beyond the plane */
        for (int64_t block = 0; block < w->blocks; block++) {
            const packed left = {.tiles = w->left + (2 * block * w->steps + step) * TILE_PAIRS,
                                 .piece = w->steps * TILE_PAIRS};
            for (int d = 0; d < CORNERS; d++) {
                const int64_t line = (plane + on_axis(d, 0)) * (side + 1) + on_axis(d, 1);
                const packed right = {.tiles = volume + (on_axis(d, 2) * w->copy + line * side + i * DEPTH) * w->row,
                                      .piece = SIDE,
                                      .row = 2 * w->row * (int64_t)sizeof(pair),
                                      .step = DEPTH * w->row};
                multiply(1, left, right, run, sums + (block * CORNERS + d) * BLOCK * BLOCK, BLOCK, step > 0,
                         (upcoming){0});
            }
        }
    }
    for (int64_t o = 0; o < w->shape.out; o++) {
        for (int64_t i = 0; i < smaller(BLOCK, in - c); i++) {
            float *kernel = w->dweight + (o * in + c + i) * TAPS;
            for (int d = 0; d < CORNERS; d++)
                kernel[tap_of(s, d)] += sums[((o / BLOCK * CORNERS + d) * BLOCK + o % BLOCK) * BLOCK + i];
        }
    }
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    const int terms = terms_on_tiles(shape, &x, &dy, true);
    if (is_thin(shape, &x, &dy)) {
        VT_KERNEL(vt_thin_convolution_backward_weight)(backend, shape, x, dy, dweight);
        return;
    }
    if (terms > 0 && shape->stores)
        backend->zero(backend, dweight, (size_t)(TAPS * shape->in * shape->out) * sizeof *dweight);
    if (terms > 1) VT_KERNEL(vt_tiles_convolution_backward_weight)(backend, shape, x, dy, dweight);
    if (terms == 0) vectors(backend)->convolution_backward_weight(backend, shape, x, dy, dweight);
    if (terms != 1) return;
    const int64_t side = shape->side, plane = side * side, groups = pieces(shape->in, BLOCK);
    gradient_work w = {.shape = *shape, .dweight = dweight};
    w.plane_steps = pieces(plane, DEPTH);
    w.steps = side * w.plane_steps;
    w.blocks = pieces(shape->out, BLOCK);
    w.copy = (side + 1) * (side + 1) * side + BLOCK;
    w.row = 3 * SIDE; /* 32 pairs, and a cache line between rows */
    const int64_t left = 2 * w.blocks * w.steps * TILE_PAIRS, table = 2 * pieces(w.copy + SIDE, 8) * 8;
    const int64_t sums = w.blocks * CORNERS * BLOCK * BLOCK, own = table + sums + 2 * w.copy * w.row;
    pair *memory = vt_cpu_shared(backend, (size_t)left * sizeof *memory);
    if (memory == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof *memory)) return;
    w.left = memory;
#pragma omp parallel
    {
        int64_t *rows = vt_cpu_scratch(backend);
        float *own_sums = (float *)rows + table;
        tiles_configure();
        for (int64_t cube = 0; cube < shape->batch; cube++) {
            gradient_work own_cube = w;
            own_cube.x = from_row(x, 8 * cube * side * plane);
            own_cube.dy = from_row(dy, cube * side * plane);
#pragma omp for collapse(2) schedule(static)
            for (int64_t piece = 0; piece < 2 * w.blocks; piece++) {
                for (int64_t step = 0; step < w.steps; step++) {
                    vt_matrix of_plane = from_row(own_cube.dy, step / w.plane_steps * plane);
                    of_plane.rows = plane;
                    pack_left_columns(&of_plane, step % w.plane_steps * DEPTH, piece * SIDE,
                                      memory + (piece * w.steps + step) * TILE_PAIRS);
                }
            }
#pragma omp for schedule(static) /* a thread has all sublattices of the same channels, whose kernels are neighbours */
            for (int64_t item = 0; item < groups * CORNERS; item++) {
                pair *volume = (pair *)(own_sums + sums);
                fill_pairs(&own_cube, (int)(item % CORNERS), item / CORNERS * BLOCK, rows, volume);
                add_gradient(&own_cube, (int)(item % CORNERS), item / CORNERS * BLOCK, own_sums, volume);
            }
        }
        tiles_release();
    }
}

void VT_KERNEL(vt_tiles_convolution_fill)(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
}
