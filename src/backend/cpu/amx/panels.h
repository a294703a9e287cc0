/* y = x weightᵀ and dx = dy weight for fewer rows than the weight has (product.c). The rows are packed once for all
 * threads. Each thread packs the panels of the weight that it works on, slice by slice: some steps of the depth, of a
 * group of panels. It does so beside the products of the slice before. So the weight is read once, and its terms stay
 * in the second-level cache. Terms of the weight's rows are packed as they lie, as a left operand: then the sums are
 * transposed, not the weight. */
#ifndef VT_BACKEND_CPU_AMX_PANELS_H
#define VT_BACKEND_CPU_AMX_PANELS_H

#include "backend/cpu/amx/strips.h"

enum { SOME_ROWS = 512 };

typedef struct {
    strip_work strip;
    vt_matrix weight;
    bool across;          /* the result's columns are rows of the weight */
    bool transposed;      /* the weight's panels are left operands */
    int64_t blocks;       /* of BLOCK rows */
    int64_t first_packed; /* pieces of SIDE rows before it are read in place */
    int64_t run, runs;    /* steps of a slice; slices of the depth */
    int64_t wide, groups; /* most panels of a group; groups */
    pair *rows;           /* [runs][2 blocks][run] tiles */
} panel_work;

/* A slice of the weight, which is packed unit by unit, and what its products need of the rows. */
typedef struct {
    const panel_work *all;
    int64_t panel, panels, step, steps, run; /* its first, and how many; run: of the depth */
    int64_t outer, inner, inners;            /* counts the units */
    pair *to;                                /* [2 panels][all->run] tiles */
} slice;

static slice slice_of(const panel_work *w, int64_t index, pair *to)
{
    const int64_t group = index / w->runs, run = index % w->runs,
                  panel = piece_begin(w->strip.panels, w->groups, group);
    slice s = {.all = w, .panel = panel, .run = run, .step = run * w->run, .to = to};
    s.panels = piece_begin(w->strip.panels, w->groups, group + 1) - panel;
    s.steps = smaller(w->run, w->strip.steps - s.step);
    s.inners = w->across ? s.steps : 2 * s.panels;
    return s;
}

static int64_t units_of(const slice *s)
{
    const int64_t tiles = 2 * s->panels * s->steps;
    return terms_of(s->all->weight.type) > 1 ? SIDE * tiles : tiles;
}

/* A unit of terms is a row of pairs of a tile, a unit of bfloat16 a tile. Units follow the weight's rows. */
INLINE void pack_unit(int terms, bool across, slice *s)
{
    enum { ROWS_AHEAD = 4, STEPS_AHEAD = 4 };
    const vt_matrix *weight = &s->all->weight;
    const int64_t step = terms * TILE_PAIRS, run = s->all->run;
    if (across && terms > 1) {
        const int64_t row = s->panel * BLOCK + s->outer, column = (s->step + s->inner) * DEPTH;
        const bool whole = lies_within(weight, row, column, 1, DEPTH);
        pair *to = s->to + (s->outer / SIDE * run + s->inner) * step + s->outer % SIDE * SIDE;
        if (lies_within(weight, row + ROWS_AHEAD, column, 1, DEPTH))
            look_ahead_rows(weight, row + ROWS_AHEAD, 1, column, column + DEPTH, 0);
        for (int64_t p = 0; p < SIDE; p += LANES)
            store_terms(load_inside(whole, weight, row, column + p), load_inside(whole, weight, row, column + SIDE + p),
                        to + p);
    } else if (across) {
        const int64_t row = s->panel * BLOCK + s->outer * SIDE, column = (s->step + s->inner) * DEPTH;
        look_ahead_rows(weight, row, smaller(SIDE, weight->rows - row), column + STEPS_AHEAD * DEPTH,
                        smaller(column + (STEPS_AHEAD + 1) * DEPTH, weight->columns), 0);
        pack_right_across(weight, row, column, s->to + (s->outer * run + s->inner) * step);
    } else if (terms > 1) {
        const int64_t row = s->step * DEPTH + s->outer / SIDE * DEPTH + s->outer % SIDE;
        const int64_t column = s->panel * BLOCK + s->inner * SIDE;
        const bool whole = lies_within(weight, row, column, SIDE + 1, SIDE);
        pair *to = s->to + (s->inner * run + s->outer / SIDE) * step + s->outer % SIDE * SIDE;
        for (int64_t r = row + 1; r <= row + 1 + SIDE; r += SIDE)
            if (lies_within(weight, r, column, 1, SIDE)) look_ahead_rows(weight, r, 1, column, column + SIDE, 0);
        for (int64_t c = 0; c < SIDE; c += LANES)
            store_terms(load_inside(whole, weight, row, column + c), load_inside(whole, weight, row + SIDE, column + c),
                        to + c);
    } else {
        const int64_t row = (s->step + s->outer) * DEPTH, column = s->panel * BLOCK + s->inner * SIDE;
        look_ahead_rows(weight, row + DEPTH, smaller(DEPTH, weight->rows - row - DEPTH), column,
                        smaller(column + SIDE, weight->columns), 0);
        pack_right_along(weight, row, column, s->to + (s->inner * run + s->outer) * step);
    }
    if (++s->inner == s->inners) s->inner = 0, s->outer++;
}

/* Beside a product the next slice is packed, and its rows are fetched from the third level. */
typedef struct {
    slice next;
    pace pace;
    const char *ahead, *end; /* of its rows: what is still to be fetched */
} beside_panels;

INLINE void pack_units(int terms, bool across, beside_panels *b, int64_t count)
{
    for (; count > 0; count--) pack_unit(terms, across, &b->next);
}

INLINE void do_beside_panels(int terms, bool across, void *work)
{
    enum { LINES_AT_A_PLACE = 4 };
    beside_panels *b = work;
    pack_units(terms, across, b, take_due(&b->pace, b->pace.left));
    for (int i = 0; i < LINES_AT_A_PLACE && b->ahead < b->end; i++, b->ahead += 64) __builtin_prefetch(b->ahead, 0, 2);
}

INLINE void terms_across(void *work, int place)
{
    (void)place;
    do_beside_panels(TERMS, true, work);
}

INLINE void terms_along(void *work, int place)
{
    (void)place;
    do_beside_panels(TERMS, false, work);
}

INLINE void pairs_across(void *work, int place)
{
    (void)place;
    do_beside_panels(1, true, work);
}

INLINE void pairs_along(void *work, int place)
{
    (void)place;
    do_beside_panels(1, false, work);
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
INLINE void multiply_slice(int terms, bool across, const slice *s, float *sums, beside_panels *beside)
{
    const panel_work *w = s->all;
    const int64_t piece = w->run * terms * TILE_PAIRS;
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
            multiply_block(terms, true, true, products,
                           terms > 1 ? (across ? terms_across : terms_along) : (across ? pairs_across : pairs_along),
                           beside);
            for (int64_t r = 0; r < BLOCK && add; r++)
                for (int64_t c = 0; c < BLOCK; c += LANES)
                    store(to + r * width + c, load(to + r * width + c) + load(more + r * BLOCK + c));
        }
    }
}

/* Slices begin … end - 1, of whole groups. memory: two slices, then the sums [rows × panels], and transposed. */
INLINE void multiply_slices(int terms, bool across, const panel_work *w, int64_t begin, int64_t end, pair *memory)
{
    const int64_t of_slice = 2 * w->wide * w->run * terms * TILE_PAIRS, rows = w->strip.to.result.rows,
                  across_rows = w->blocks * BLOCK;
    /* cppcheck-suppress invalidPointerCast ; the memory after the pairs */
    float *sums = (float *)(memory + 2 * of_slice);
    if (begin == end) return;
    beside_panels beside = {.next = slice_of(w, begin, memory)};
    pack_units(terms, across, &beside, units_of(&beside.next));
    for (int64_t index = begin; index < end; index++) {
        const slice now = beside.next;
        beside = (beside_panels){0};
        if (index + 1 < end) {
            beside.next = slice_of(w, index + 1, memory + (index + 1 - begin) % 2 * of_slice);
            beside.pace = spread(units_of(&beside.next), now.panels * w->blocks * now.steps * (terms > 1 ? PLACES : 1));
            const int64_t of_rows = 2 * w->blocks * w->run * terms * TILE_PAIRS;
            beside.ahead = (const char *)(w->rows + beside.next.run * of_rows);
            beside.end =
                w->first_packed < 2 * w->blocks ? beside.ahead + of_rows * (int64_t)sizeof(pair) : beside.ahead;
        }
        multiply_slice(terms, across, &now, sums, &beside);
        pack_units(terms, across, &beside, beside.pace.left);
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
    pair *to = w->rows + ((k / w->run * 2 * w->blocks + piece) * w->run + k % w->run) * step;
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
    const int64_t least = terms > 1 ? RUN / TERMS : RUN, wide = !w->across && w->blocks <= 4 ? 4 * WIDE : WIDE;
    const int64_t fit = w->across ? SOME_ROWS / (w->blocks * BLOCK) * least : 0;
    w->runs = pieces(w->strip.steps, fit > least ? smaller(RUN, fit) : least);
    w->run = pieces(w->strip.steps, w->runs);
    w->groups = pieces(w->strip.panels, smaller(wide, pieces(w->strip.panels, 2 * threads)));
    w->wide = pieces(w->strip.panels, w->groups);
    w->first_packed = w->transposed ? 0 : 2 * blocks_in_place(&w->strip.left, rows);
    const int64_t own = w->wide * (4 * w->run * step + (w->transposed ? 2 : 1) * w->blocks * BLOCK * BLOCK);
    w->rows = vt_cpu_shared(backend, (size_t)(2 * w->blocks * w->runs * w->run * step) * sizeof(pair));
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
            if (terms > 1 && w->across)
                multiply_slices(TERMS, true, w, begin, end, memory);
            else if (terms > 1)
                multiply_slices(TERMS, false, w, begin, end, memory);
            else if (w->across)
                multiply_slices(1, true, w, begin, end, memory);
            else
                multiply_slices(1, false, w, begin, end, memory);
        }
        tiles_release();
    }
}

#endif
