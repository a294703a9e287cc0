/* y and dx of float32 over one cube of 8³ points: plain sums over the 64 taps on tiles, as products of terms. x or dy
 * is laid out as a volume, as in convolution.c, so that its tiles are read in place. The weight has more numbers than x
 * and is read once: each thread packs a slice of it beside the products of the slice before. Two slices, the part of
 * the volume that they meet, and their sums stay in the second-level cache. */
#include "backend/cpu/amx/convolution_few.h"

#include "backend/cpu/amx/beside.h"
#include "backend/cpu/amx/convolution_volume.h"
#include "backend/cpu/amx/runs.h"

enum {
    OF_LINE = 16,    /* taps with one place on the first axis: a cache line of the weight */
    OFFSETS = 4,     /* of a sublattice's taps on the other two axes */
    SLICE_ROWS = 64, /* rows of pairs in a slice, each in OF_LINE tiles */
    SLICE_PAIRS = SLICE_ROWS * TERMS * TILE_PAIRS,
    TAPS_AT_ONCE = 2,
    UNITS_OF_ROW = 2 + OF_LINE / TAPS_AT_ONCE,
    UNITS = SLICE_ROWS * UNITS_OF_ROW
};

/* A slice is OF_LINE taps of
 *   y:  32 channels of x × 64 of y. A part of the volume is four sublattices of these channels of x.
 *   dx: 64 channels of y × 32 of x, whose four sublattices have sums of their own. A part is these channels of y. */
typedef struct {
    vt_convolution shape;
    bool forward;
    vt_matrix from, weight, to;
    int64_t groups, parts, points;
    int64_t copies, across, row; /* of the volume; pairs of a row: an odd number of cache lines */
    int64_t steps, panels;       /* at each offset: 32 numbers of the depth; of a group: 32 sums */
    pair *volume;                /* [parts][copies][across][across][side] rows [steps][TERMS] */
} few_work;

/* A slice, which is packed unit by unit. */
typedef struct {
    const few_work *all;
    int64_t group, part, tap;         /* of the first axis */
    int64_t unit;                     /* the next one */
    float numbers[2][OF_LINE * SIDE]; /* of the row of pairs that is being packed: [tap][column] */
    pair *to;                         /* [panels][OFFSETS][2][steps] tiles */
} slice;

/* The slices of some groups, part by part. The first axis's sublattice belongs to y's parts, to dx's groups. */
static slice slice_of(const few_work *w, int64_t first, int64_t groups, int64_t index, pair *memory)
{
    const int64_t group = first + index / 2 % groups;
    slice s = {.all = w, .part = index / 2 / groups, .to = memory + index % 2 * SLICE_PAIRS};
    s.group = w->forward ? group : group / 2;
    s.tap = (w->forward ? s.part : group) % 2 + 2 * (index % 2);
    return s;
}

/* A row of pairs joins 16 numbers with 16 others, at each tap. Where the first ones begin in the weight (deep 0), or
 * the others, which lie `deep` numbers further on. */
static const float *row_place(const slice *s, int64_t row, int64_t deep)
{
    const few_work *w = s->all;
    const int64_t p = row % SIDE, i = row / SIDE;
    const int64_t out = w->forward ? (s->group * 4 + i) * SIDE : (s->part * 2 + i % 2) * DEPTH + p;
    const int64_t in = w->forward ? s->part / 2 * DEPTH + p : (s->group * 2 + i / 2) * SIDE;
    return w->weight.data + out * w->weight.stride + in * TAPS + s->tap * OF_LINE + deep;
}

/* A row of pairs takes UNITS_OF_ROW units: two squares of numbers are transposed, then they become terms. */
static void pack_unit(slice *s)
{
    const few_work *w = s->all;
    const int64_t row = s->unit / UNITS_OF_ROW, unit = s->unit % UNITS_OF_ROW, i = row / SIDE;
    s->unit++;
    if (unit < 2) {
        const int64_t column = w->forward ? w->weight.stride : TAPS;
        const int64_t deep = unit * SIDE * (w->forward ? TAPS : w->weight.stride);
        const float *from = row_place(s, row, deep), *next = row_place(s, smaller(row + 1, SLICE_ROWS - 1), deep);
        for (int64_t c = 0; c < SIDE; c += LANES) {
            for (int64_t tap = 0; tap < OF_LINE; tap += LANES) {
                vector square[LANES];
                for (int64_t k = 0; k < LANES; k++) {
                    square[k] = load(from + (c + k) * column + tap);
                    __builtin_prefetch(next + (c + k) * column);
                }
                transpose(square);
                for (int64_t k = 0; k < LANES; k++) store(s->numbers[unit] + (tap + k) * SIDE + c, square[k]);
            }
        }
        return;
    }
    for (int64_t tap = (unit - 2) * TAPS_AT_ONCE; tap < (unit - 1) * TAPS_AT_ONCE; tap++) {
        const int64_t sublattice = tap / 4 % 2 * 2 + tap % 2, offset = tap / 8 * 2 + tap / 2 % 2;
        const int64_t tile = w->forward ? ((i / 2 * OFFSETS + offset) * 2 + i % 2) * w->steps + sublattice
                                        : ((sublattice * OFFSETS + offset) * 2 + i / 2) * w->steps + i % 2;
        for (int64_t c = 0; c < SIDE; c += LANES)
            store_terms(load(s->numbers[0] + tap * SIDE + c), load(s->numbers[1] + tap * SIDE + c),
                        s->to + tile * TERMS * TILE_PAIRS + row % SIDE * SIDE + c);
    }
}

static void pack_units(void *work, int64_t count)
{
    for (; count > 0; count--) pack_unit(work);
}

/* A line of the volume; `line` counts those of all parts and copies. */
static void fill_line(const few_work *w, int64_t line)
{
    const int64_t side = w->shape.side, a = w->across, lowest = w->forward ? 0 : -1;
    const int64_t copy = line / a / a % w->copies, part = line / a / a / w->copies;
    for (int64_t i = 0; i < side; i++) {
        const int64_t at[3] = {line / a % a + lowest, line % a + lowest, i + copy + lowest};
        pair *to = w->volume + (line * side + i) * w->row;
        for (int64_t step = 0; step < w->steps; step++, to += TERMS * SIDE) {
            const int64_t row = w->forward ? row_of_cell(side, at, (int)(part % 2 * 4 + step)) : row_of_point(side, at);
            const int64_t column = DEPTH * (w->forward ? part / 2 : part * 2 + step);
            for (int64_t p = 0; p < SIDE; p += LANES) {
                vector lower[TERMS] = {{0}}, upper[TERMS] = {{0}};
                if (row >= 0) {
                    split(load(w->from.data + row * w->from.stride + column + p), lower);
                    split(load(w->from.data + row * w->from.stride + column + SIDE + p), upper);
                }
                for (int t = 0; t < TERMS; t++) store_term_pairs(lower[t], upper[t], to + t * SIDE + p);
            }
        }
    }
}

/* to [32 × 32] += the products of a slice's panel, at an offset, and 32 rows of the volume. */
static void multiply_tiles(const slice *s, int64_t panel, int64_t offset, const pair *rows, float *to,
                           beside_product *beside)
{
    const few_work *w = s->all;
    const int64_t piece = w->steps * TERMS * TILE_PAIRS, width = w->panels * BLOCK;
    float more[BLOCK * BLOCK];
    const tile_block block = {.a = {.tiles = rows,
                                    .piece = SIDE * w->row,
                                    .row = w->row * (int64_t)sizeof(pair),
                                    .step = TERMS * SIDE,
                                    .term = SIDE},
                              .b = {.tiles = s->to + (panel * OFFSETS + offset) * 2 * piece, .piece = piece},
                              .steps = w->steps,
                              .sums = more,
                              .width = BLOCK};
    multiply_block(TERMS, true, true, block, do_beside, beside);
    for (int64_t r = 0; r < BLOCK; r++)
        for (int64_t c = 0; c < BLOCK; c += LANES)
            store(to + r * width + c, load(to + r * width + c) + load(more + r * BLOCK + c));
}

/* Planes begin … end - 1 of sums [points × panels] += the products of a slice. Point q of y needs cell q + d of the
 * volume, point h of sublattice s of dx needs point h + 1 - s - d. */
static void multiply_slice(const slice *s, int64_t begin, int64_t end, float *sums, beside_product *beside)
{
    const few_work *w = s->all;
    const int64_t side = w->shape.side, plane = side * side, width = w->panels * BLOCK;
    const int64_t e0 = w->forward ? s->tap / 2 : 2 - s->tap % 2 - s->tap / 2;
    for (int64_t e2 = 0; e2 < w->copies; e2++) {
        for (int64_t e1 = 0; e1 < w->copies; e1++) {
            for (int64_t point = begin * plane; point < end * plane; point += BLOCK) {
                const int64_t line = ((s->part * w->copies + e2) * w->across + point / plane + e0) * w->across + e1;
                const pair *rows = w->volume + (line * side + point % plane) * w->row;
                for (int64_t panel = 0; panel < w->panels; panel++) {
                    const int64_t d1 = w->forward ? e1 : 2 - panel / 2 - e1, d2 = w->forward ? e2 : 2 - panel % 2 - e2;
                    if (d1 >= 0 && d1 < 2 && d2 >= 0 && d2 < 2)
                        multiply_tiles(s, panel, 2 * d1 + d2, rows, sums + point * width + panel * BLOCK, beside);
                }
            }
        }
    }
}

static void store_sums(const slice *s, int64_t begin, int64_t end, const float *sums)
{
    const few_work *w = s->all;
    const int64_t side = w->shape.side, width = w->panels * BLOCK;
    const product_result to = {.result = w->to};
    for (int64_t point = begin * side * side; point < end * side * side; point++) {
        for (int64_t panel = 0; panel < w->panels; panel++) {
            const int64_t h[3] = {point / side / side, point / side % side, point % side};
            const int kind = (int)(s->tap % 2 * 4 + panel);
            const int64_t row = w->forward ? point : row_of_result(side, h, kind);
            finish_block(&to, sums + point * width + panel * BLOCK, width, row, 1,
                         (w->forward ? s->group * 2 + panel : s->group) * BLOCK, BLOCK);
        }
    }
}

/* Planes begin … end - 1 of some groups. memory: two slices, then the sums. */
static void multiply_groups(const few_work *w, int64_t first, int64_t groups, int64_t begin, int64_t end, pair *memory)
{
    const int64_t side = w->shape.side, of_group = w->points * w->panels * BLOCK, count = 2 * w->parts * groups;
    const int64_t places = (end - begin) * side * side / BLOCK * SLICE_ROWS / 2 * PLACES;
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    float *sums = (float *)(memory + 2 * SLICE_PAIRS);
    if (groups == 0) return;
    memset(sums, 0, (size_t)(groups * of_group) * sizeof *sums);
    slice next = slice_of(w, first, groups, 0, memory);
    pack_units(&next, UNITS);
    for (int64_t index = 0; index < count; index++) {
        float *of_slice = sums + index / 2 % groups * of_group;
        const slice now = next;
        beside_product beside = {.pack = pack_units, .work = &next};
        if (index + 1 < count) {
            next = slice_of(w, first, groups, index + 1, memory);
            beside.pace = spread(UNITS, places);
        }
        multiply_slice(&now, begin, end, of_slice, &beside);
        finish_beside(&beside);
        if (now.part == w->parts - 1 && index % 2 == 1) store_sums(&now, begin, end, of_slice);
    }
}

bool VT_KERNEL(vt_few_points_suit)(const vt_convolution *shape, vt_matrix from, vt_matrix weight, vt_matrix to)
{
    return from.type == VT_FLOAT32 && weight.type == VT_FLOAT32 && to.type == VT_FLOAT32 && shape->batch == 1 &&
           shape->side == 8 && shape->in % DEPTH == 0 && shape->out % (2 * DEPTH) == 0;
}

void VT_KERNEL(vt_few_points_convolve)(vt_backend *backend, const vt_convolution *shape, vt_matrix from,
                                       vt_matrix weight, vt_matrix to, bool forward)
{
    const int64_t side = shape->side, threads = vt_cpu_threads(backend);
    few_work w = {.shape = *shape, .forward = forward, .from = from, .weight = weight, .to = to};
    w.points = side * side * side;
    w.groups = forward ? shape->out / (2 * BLOCK) : shape->in / BLOCK * 2;
    w.parts = forward ? shape->in / DEPTH * 2 : shape->out / (2 * DEPTH);
    w.copies = forward ? 2 : 3;
    w.across = side + w.copies - 1;
    w.steps = forward ? 4 : 2;
    w.panels = forward ? 2 : 4;
    w.row = (w.steps * TERMS + 1) * SIDE;
    /* Threads divide the groups; if these are few, the planes, too. */
    const int64_t cuts = smaller(side, pieces(threads, w.groups)), of_cut = pieces(threads, cuts);
    const int64_t lines = w.parts * w.copies * w.across * w.across;
    const int64_t own = 2 * SLICE_PAIRS + pieces(w.groups, of_cut) * w.points * w.panels * BLOCK;
    w.volume = vt_cpu_shared(backend, (size_t)(lines * side * w.row) * sizeof *w.volume);
    if (w.volume == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof(pair))) return;
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(static)
        for (int64_t line = 0; line < lines; line++) fill_line(&w, line);
#pragma omp for schedule(static)
        for (int64_t work = 0; work < cuts * of_cut; work++) {
            const int64_t first = piece_begin(w.groups, of_cut, work / cuts), cut = work % cuts;
            multiply_groups(&w, first, piece_begin(w.groups, of_cut, work / cuts + 1) - first,
                            piece_begin(side, cuts, cut), piece_begin(side, cuts, cut + 1), vt_cpu_scratch(backend));
        }
        tiles_release();
    }
}
