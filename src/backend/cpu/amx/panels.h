/* y = x weightᵀ and dx = dy weight for fewer rows than the weight has (product.c). The rows are packed once for all
 * threads. Each thread packs the panels of the weight that it works on, slice by slice: some steps of the depth, of a
 * group of panels. It does so beside the products of the slice before. So the weight is read once, and its terms stay
 * in the second-level cache. Terms of the weight's rows are packed as they lie, as a left operand: then the sums are
 * transposed, not the weight. */
#ifndef VT_BACKEND_CPU_AMX_PANELS_H
#define VT_BACKEND_CPU_AMX_PANELS_H

#include "backend/cpu/amx/beside.h"
#include "backend/cpu/amx/strips.h"

enum { SOME_ROWS = 512, STEP = TERMS * TILE_PAIRS };

typedef struct {
    strip_work strip;
    vt_matrix weight;
    bool across;          /* the result's columns are rows of the weight */
    bool transposed;      /* the weight's panels are left operands */
    int64_t blocks;       /* of BLOCK rows */
    int64_t first_packed; /* pieces of SIDE rows before it are read in place */
    int64_t run, runs;    /* steps of a slice; slices of the depth */
    int64_t piece;        /* pairs of `run` tiles */
    int64_t wide, groups; /* most panels of a group; groups */
    pair *rows;           /* [runs][2 blocks][run] tiles */
} panel_work;

/* A slice of the weight, which is packed unit by unit, and what its products need of the rows. */
typedef struct {
    const panel_work *all;
    int64_t panel, panels, step, steps, run; /* its first, and how many; run: of the depth */
    int64_t outer, inner, inners;            /* counts the units */
    pair *to;                                /* [2 panels][all->run] tiles */
    pair *at;                                /* where the next unit of terms goes */
    const float *from;                       /* its numbers; NULL: not all of the slice lies in a matrix of float32 */
    int64_t second, ahead; /* how far behind `from` the unit's second vector is, and what is prefetched */
} slice;

/* The units of a slice's next row of terms. What is prefetched is some rows later, in this slice or the next. */
static void begin_row(slice *s)
{
    enum { ROWS_AHEAD = 4 };
    const panel_work *w = s->all;
    const vt_matrix *weight = &w->weight;
    const int64_t tile = s->outer / SIDE, r = s->outer % SIDE, stride = weight->stride;
    int64_t row = s->step * DEPTH + tile * DEPTH + r, column = s->panel * BLOCK;
    s->inner = 0;
    if (w->across) {
        const int64_t rows = s->panels * BLOCK;
        row = s->panel * BLOCK + s->outer, column = s->step * DEPTH;
        s->at = s->to + tile * w->piece + r * SIDE;
        s->ahead = ROWS_AHEAD * stride;
        if (s->outer + ROWS_AHEAD >= rows)
            s->ahead += s->run + 1 < w->runs ? s->steps * DEPTH - rows * stride : -s->step * DEPTH;
    } else {
        s->at = s->to + tile * STEP + r * SIDE;
        s->ahead = (r + 1 < SIDE ? 1 : SIDE + 1) * stride;
    }
    if (s->from != NULL) s->from = weight->data + row * stride + column;
}

static slice slice_of(const panel_work *w, int64_t index, pair *to)
{
    const int64_t group = index / w->runs, run = index % w->runs,
                  panel = piece_begin(w->strip.panels, w->groups, group);
    slice s = {.all = w, .panel = panel, .run = run, .step = run * w->run, .to = to};
    s.panels = piece_begin(w->strip.panels, w->groups, group + 1) - panel;
    s.steps = smaller(w->run, w->strip.steps - s.step);
    s.inners = w->across ? s.steps : 2 * s.panels;
    if (terms_of(w->weight.type) == 1) return s;
    const int64_t rows = s.panels * BLOCK, deep = s.steps * DEPTH;
    if (w->weight.type == VT_FLOAT32 &&
        (w->across ? lies_within(&w->weight, panel * BLOCK, s.step * DEPTH, rows, deep)
                   : lies_within(&w->weight, s.step * DEPTH, panel * BLOCK, deep, rows)))
        s.from = w->weight.data;
    s.second = w->across ? SIDE : SIDE * w->weight.stride;
    begin_row(&s);
    return s;
}

static int64_t units_of(const slice *s)
{
    const int64_t tiles = 2 * s->panels * s->steps;
    return terms_of(s->all->weight.type) > 1 ? SIDE * tiles : tiles;
}

/* A unit of a slice that is not all inside the matrix. */
static __attribute__((noinline)) void pack_terms_outside(const slice *s)
{
    const panel_work *w = s->all;
    int64_t row = s->panel * BLOCK + s->outer, column = (s->step + s->inner) * DEPTH, second = row;
    if (!w->across) {
        row = s->step * DEPTH + s->outer / SIDE * DEPTH + s->outer % SIDE, second = row + SIDE;
        column = s->panel * BLOCK + s->inner * SIDE;
    }
    for (int64_t p = 0; p < SIDE; p += LANES)
        store_terms(load_inside(false, &w->weight, row, column + p),
                    load_inside(false, &w->weight, second, column + (w->across ? SIDE : 0) + p), s->at + p);
}

/* A unit of terms is a row of pairs of a tile. Units follow the weight's rows. */
static void pack_terms(void *work, int64_t count)
{
    slice *s = work;
    const int64_t from_unit = s->all->across ? DEPTH : SIDE, to_unit = s->all->across ? STEP : s->all->piece;
    for (; count > 0; count--) {
        if (s->from != NULL) {
            const float *soon = s->from + s->ahead;
            __builtin_prefetch(soon);
            __builtin_prefetch(soon + s->second);
            for (int64_t p = 0; p < SIDE; p += LANES)
                store_terms(load(s->from + p), load(s->from + s->second + p), s->at + p);
            s->from += from_unit;
        } else {
            pack_terms_outside(s);
        }
        s->at += to_unit;
        if (++s->inner < s->inners) continue;
        s->outer++;
        begin_row(s);
    }
}

/* A unit of bfloat16 is a tile. */
static void pack_pairs(void *work, int64_t count)
{
    enum { STEPS_AHEAD = 4 };
    slice *s = work;
    const vt_matrix *weight = &s->all->weight;
    for (; count > 0; count--) {
        if (s->all->across) {
            const int64_t row = s->panel * BLOCK + s->outer * SIDE, column = (s->step + s->inner) * DEPTH;
            look_ahead_rows(weight, row, smaller(SIDE, weight->rows - row), column + STEPS_AHEAD * DEPTH,
                            smaller(column + (STEPS_AHEAD + 1) * DEPTH, weight->columns), 0);
            pack_right_across(weight, row, column, s->to + s->outer * s->all->piece + s->inner * TILE_PAIRS);
        } else {
            const int64_t row = (s->step + s->outer) * DEPTH, column = s->panel * BLOCK + s->inner * SIDE;
            look_ahead_rows(weight, row + DEPTH, smaller(DEPTH, weight->rows - row - DEPTH), column,
                            smaller(column + SIDE, weight->columns), 0);
            pack_right_along(weight, row, column, s->to + s->inner * s->all->piece + s->outer * TILE_PAIRS);
        }
        if (++s->inner == s->inners) s->inner = 0, s->outer++;
    }
}

/* to [columns × rows] = transposed from [rows × columns], whole tiles. */
static void transpose_sums(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r += LANES) {
        for (int64_t c = 0; c < columns; c += LANES) {
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++) square[i] = load(from + (r + i) * columns + c);
            transpose(square);
            for (int64_t i = 0; i < LANES; i++) store(to + (c + i) * rows + r, square[i]);
        }
    }
}

/* Adds the products of slice s to the sums [rows × columns of the group], or those transposed. */
INLINE void multiply_slice(int terms, const slice *s, float *sums, beside_product *beside)
{
    const panel_work *w = s->all;
    const int64_t piece = w->piece;
    const int64_t width = w->transposed ? w->blocks * BLOCK : s->panels * BLOCK;
    for (int64_t panel = 0; panel < s->panels; panel++) {
        const packed of_weight = {.tiles = s->to + 2 * panel * piece, .piece = piece};
        for (int64_t block = 0; block < w->blocks; block++) {
            packed of_rows = {.tiles = w->rows + 2 * (s->run * w->blocks + block) * piece, .piece = piece};
            if (2 * block < w->first_packed) {
                of_rows = in_matrix(&w->strip.left, block * BLOCK);
                of_rows.tiles += s->step * SIDE;
            }
            const int64_t row = w->transposed ? panel : block, column = w->transposed ? block : panel;
            float more[BLOCK * BLOCK], *to = sums + row * BLOCK * width + column * BLOCK;
            const bool add = s->run > 0;
            const tile_block products = {.a = w->transposed ? of_weight : of_rows,
                                         .b = w->transposed ? of_rows : of_weight,
                                         .steps = s->steps,
                                         .sums = add ? more : to,
                                         .width = add ? BLOCK : width};
            multiply_block(terms, true, true, products, do_beside, beside);
            for (int64_t r = 0; r < BLOCK && add; r++)
                for (int64_t c = 0; c < BLOCK; c += LANES)
                    store(to + r * width + c, load(to + r * width + c) + load(more + r * BLOCK + c));
        }
    }
}

/* Slices begin … end - 1, of whole groups. memory: two slices, then the sums [rows × panels], and transposed. */
INLINE void multiply_slices(int terms, const panel_work *w, int64_t begin, int64_t end, pair *memory)
{
    const int64_t of_slice = 2 * w->wide * w->piece, rows = w->strip.to.result.rows, across_rows = w->blocks * BLOCK;
    const int64_t of_rows = 2 * w->blocks * w->piece;
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    float *sums = (float *)(memory + 2 * of_slice);
    if (begin == end) return;
    slice next = slice_of(w, begin, memory);
    beside_product beside = {.pack = terms > 1 ? pack_terms : pack_pairs, .work = &next};
    beside.pack(&next, units_of(&next));
    for (int64_t index = begin; index < end; index++) {
        const slice now = next;
        if (index + 1 < end) {
            next = slice_of(w, index + 1, memory + (index + 1 - begin) % 2 * of_slice);
            beside.pace = spread(units_of(&next), now.panels * w->blocks * now.steps * (terms > 1 ? PLACES : 1));
            beside.ahead = (const char *)(w->rows + next.run * of_rows);
            beside.end = beside.ahead + (w->first_packed < 2 * w->blocks ? of_rows * (int64_t)sizeof(pair) : 0);
        }
        multiply_slice(terms, &now, sums, &beside);
        finish_beside(&beside);
        if (now.run + 1 < w->runs) continue;
        const int64_t width = now.panels * BLOCK;
        float *finished = w->transposed ? sums + width * across_rows : sums;
        if (w->transposed) transpose_sums(sums, width, across_rows, finished);
        finish_block(&w->strip.to, finished, width, 0, rows, now.panel * BLOCK, width);
    }
}

static void pack_rows(const panel_work *w, int64_t piece, int64_t k)
{
    const int64_t step = terms_of(w->weight.type) * TILE_PAIRS;
    pair *to = w->rows + (k / w->run * 2 * w->blocks + piece) * w->piece + k % w->run * step;
    if (w->transposed)
        pack_right_across(&w->strip.left, piece * SIDE, k * DEPTH, to);
    else
        pack_left_rows(&w->strip.left, piece * SIDE, k * DEPTH, to);
}

static void multiply_panels(vt_backend *backend, panel_work *w)
{
    const int terms = terms_of(w->weight.type);
    const int64_t step = terms * TILE_PAIRS, rows = w->strip.to.result.rows, threads = vt_cpu_threads(backend);
    w->blocks = pieces(rows, BLOCK);
    w->transposed = w->across && terms > 1;
    /* Rows of the weight are read in long pieces; the terms of a run of both operands, and the sums, fit the cache. */
    const int64_t least = terms > 1 ? RUN / TERMS : RUN, long_rows = terms > 1 ? 2 * WIDE : 4 * WIDE;
    const int64_t wide = !w->across && w->blocks <= 4 ? long_rows : WIDE;
    const bool is_deep = w->transposed && w->blocks * BLOCK <= SOME_ROWS / 2;
    w->runs = pieces(w->strip.steps, is_deep ? 2 * least : least);
    w->run = pieces(w->strip.steps, w->runs);
    w->piece = w->run * step;
    w->groups = pieces(w->strip.panels, smaller(wide, pieces(w->strip.panels, 2 * threads)));
    w->wide = pieces(w->strip.panels, w->groups);
    w->first_packed = w->transposed ? 0 : 2 * blocks_in_place(&w->strip.left, rows);
    const int64_t own = w->wide * (4 * w->piece + (w->transposed ? 2 : 1) * w->blocks * BLOCK * BLOCK);
    w->rows = vt_cpu_shared(backend, (size_t)(2 * w->blocks * w->runs * w->piece) * sizeof(pair));
    if (w->rows == NULL || !vt_cpu_scratch_reserve(backend, (size_t)own * sizeof(pair))) return;
#pragma omp parallel
    {
        pair *memory = vt_cpu_scratch(backend);
        tiles_configure();
#pragma omp for collapse(2) schedule(static)
        for (int64_t piece = w->first_packed; piece < 2 * w->blocks; piece++)
            for (int64_t k = 0; k < w->strip.steps; k++) pack_rows(w, piece, k);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < threads; part++) {
            const int64_t begin = w->runs * piece_begin(w->groups, threads, part),
                          end = w->runs * piece_begin(w->groups, threads, part + 1);
            if (terms > 1)
                multiply_slices(TERMS, w, begin, end, memory);
            else
                multiply_slices(1, w, begin, end, memory);
        }
        tiles_release();
    }
}

#endif
