/* Matrices as tiles of terms. A float32 number is the sum of three bfloat16 numbers, its terms: the rounded number, the
 * upper eight bits of the remainder, and the rest, which has at most eight bits; the same holds for a float16 number. A
 * bfloat16 number is one term. A product of float32 numbers is the sum of the products of their terms, without the
 * smallest ones, which are less than 2^-24 of it: six products on tiles give float32's accuracy (G. Henry, P. T. P.
 * Tang, A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations",
 * ARITH 2019). For numbers below 2^-110 the last terms are too small for bfloat16 and count as 0; infinities become
 * NaN, and so do numbers that round to 2^128.
 * A tile is packed from rows row … row + 15 and columns column … column + 31 of a matrix, or from 32 rows and 16
 * columns, with zeros where the matrix ends; the tiles of pairs (pairs.h) of its terms follow one another. With one
 * term, the numbers of a pair are neighbours along the depth, as they lie in memory; with several terms, which are
 * computed, a pair has numbers p and p + 16, from two vectors.
 * If only 16 numbers of the depth are left, a tile has room for two of their terms. Three products of such halves
 * contain all six products of terms (a pair of the left operand and a pair of the right are multiplied number by
 * number): (a2, a1) · (b0, b1), (a0, a1) · (b2, b0), (a0, a0) · (b1, b0). */
#ifndef VT_BACKEND_CPU_AMX_TERMS_H
#define VT_BACKEND_CPU_AMX_TERMS_H

#include "backend/cpu/amx/pairs.h"
#include "backend/cpu/vector/elements.h"

enum { TERMS = 3 };

/* How many terms the numbers of a matrix have. */
INLINE int terms_of(vt_type type)
{
    return type == VT_BFLOAT16 ? 1 : TERMS;
}

/* Ties are rounded away from 0. A NaN may lose its value here, but its remainder is a NaN. */
INLINE vector nearest_bfloat16(vector value)
{
    return (vector)(((vector_word)value + 0x8000u) & 0xffff0000u);
}

/* The remainder of a rounded number has 16 bits and either sign: its upper eight are the second term. */
INLINE void split(vector value, vector term[TERMS])
{
    term[0] = nearest_bfloat16(value);
    vector rest = value - term[0];
    term[1] = (vector)((vector_word)rest & 0xffff0000u);
    term[2] = rest - term[1];
}

/* Pairs of terms; of denormal terms, which also have lower bits, the upper half is taken. */
INLINE void store_term_pairs(vector first, vector second, pair *to)
{
    vector_word pairs = (vector_word)first >> 16;
#if defined(__AVX512BW__)
    pairs = (vector_word)_mm512_mask_mov_epi16((__m512i)pairs, 0xaaaaaaaau, (__m512i)second);
#else
    pairs |= (vector_word)second & 0xffff0000u;
#endif
    memcpy(to, &pairs, sizeof pairs);
}

/* LANES pairs (first[i], second[i]) of each term. */
INLINE void store_terms(vector first, vector second, pair *to)
{
    vector lower[TERMS], upper[TERMS];
    split(first, lower);
    split(second, upper);
#pragma GCC unroll 3
    for (int t = 0; t < TERMS; t++) store_term_pairs(lower[t], upper[t], to + t * TILE_PAIRS);
}

/* The pairs of halves. */
INLINE void store_halves(bool left, vector value, pair *to)
{
    vector term[TERMS];
    split(value, term);
    store_term_pairs(left ? term[2] : term[0], term[1], to);
    store_term_pairs(left ? term[0] : term[2], left ? term[1] : term[0], to + TILE_PAIRS);
    store_term_pairs(left ? term[0] : term[1], term[0], to + 2 * TILE_PAIRS);
}

/* ---- numbers, 0 beyond the matrix; `whole`, a constant: the tile is entirely inside it ---- */

INLINE bool lies_within(const vt_matrix *from, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    return row + rows <= from->rows && column + columns <= from->columns;
}

INLINE vector load_inside(bool whole, const vt_matrix *from, int64_t row, int64_t column)
{
    int64_t index = row * from->stride + column, left = from->columns - column;
    if (whole) return load_elements(from, index);
    if (row >= from->rows || left <= 0) return (vector){0};
    return load_elements_up_to(from, index, left);
}

/* 16 numbers of a row of bfloat16. */
INLINE void copy_inside(bool whole, const vt_matrix *from, int64_t row, int64_t column, pair to[SIDE / 2])
{
    const uint16_t *number = from->half + row * from->stride + column;
    int64_t left = row < from->rows ? smaller(SIDE, from->columns - column) : 0;
    if (whole || left == SIDE) {
        memcpy(to, number, SIDE * sizeof *number);
        return;
    }
    memset(to, 0, SIDE * sizeof *number);
    if (left > 0) memcpy(to, number, (size_t)left * sizeof *number);
}

/* ---- tiles: the depth of the product along the matrix's rows ---- */

INLINE void left_rows(bool whole, const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    for (int64_t r = 0; r < SIDE; r++, to += SIDE) {
        if (from->type != VT_BFLOAT16) {
#pragma GCC unroll 4
            for (int64_t p = 0; p < SIDE; p += LANES)
                store_terms(load_inside(whole, from, row + r, column + p),
                            load_inside(whole, from, row + r, column + SIDE + p), to + p);
        } else {
            copy_inside(whole, from, row + r, column, to);
            copy_inside(whole, from, row + r, column + SIDE, to + SIDE / 2);
        }
    }
}

/* A left operand's tile of 16 rows. */
static inline void pack_left_rows(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    if (lies_within(from, row, column, SIDE, DEPTH))
        left_rows(true, from, row, column, to);
    else
        left_rows(false, from, row, column, to);
}

/* A right operand's tile; its columns are rows of the matrix. */
static inline void pack_right_across(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    pair rows[TERMS * TILE_PAIRS];
    pack_left_rows(from, row, column, rows);
    for (int t = 0; t < terms_of(from->type); t++) transpose_pairs(rows + t * TILE_PAIRS, to + t * TILE_PAIRS);
}

/* ---- tiles: the depth of the product along the matrix's columns ---- */

INLINE void right_along(bool whole, const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    for (int64_t p = 0; p < SIDE; p++, to += SIDE) {
        if (from->type == VT_BFLOAT16) {
            pair rows[2][SIDE / 2];
            copy_inside(whole, from, row + 2 * p, column, rows[0]);
            copy_inside(whole, from, row + 2 * p + 1, column, rows[1]);
            join_rows(rows[0], rows[1], to);
            continue;
        }
#pragma GCC unroll 4
        for (int64_t c = 0; c < SIDE; c += LANES)
            store_terms(load_inside(whole, from, row + p, column + c),
                        load_inside(whole, from, row + SIDE + p, column + c), to + c);
    }
}

/* A right operand's tile of 16 columns. */
static void pack_right_along(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    if (lies_within(from, row, column, DEPTH, SIDE))
        right_along(true, from, row, column, to);
    else
        right_along(false, from, row, column, to);
}

/* Rows of float32, transposed before they are split. */
INLINE void left_columns(bool whole, const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    for (int64_t c = 0; c < SIDE; c += LANES) {
        for (int64_t p = 0; p < SIDE; p += LANES) {
            vector lower[LANES], upper[LANES];
#pragma GCC unroll 16
            for (int64_t i = 0; i < LANES; i++) lower[i] = load_inside(whole, from, row + p + i, column + c);
            transpose(lower);
#pragma GCC unroll 16
            for (int64_t i = 0; i < LANES; i++) upper[i] = load_inside(whole, from, row + SIDE + p + i, column + c);
            transpose(upper);
            for (int64_t i = 0; i < LANES; i++) store_terms(lower[i], upper[i], to + (c + i) * SIDE + p);
        }
    }
}

/* A left operand's tile; its rows are columns of the matrix. */
static inline void pack_left_columns(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    if (from->type == VT_BFLOAT16) {
        pair along[TILE_PAIRS];
        pack_right_along(from, row, column, along);
        transpose_pairs(along, to);
    } else if (lies_within(from, row, column, DEPTH, SIDE)) {
        left_columns(true, from, row, column, to);
    } else {
        left_columns(false, from, row, column, to);
    }
}

/* ---- the product ---- */

/* A packed operand: pieces of 16 rows (a left one) or columns (a right one); each piece has the tiles of the depth's
 * `steps` with all their terms. A left operand of one term may also lie in a matrix, whose rows are the tiles' rows. */
typedef struct {
    const pair *tiles;
    int64_t piece; /* pairs from piece to piece */
    int64_t row;   /* if it is a matrix: bytes from row to row; 0: packed */
    int64_t step;  /* in a matrix: pairs from step to step */
} packed;

/* Work done beside a product: vector instructions between those of tiles, which take 16 cycles each. Called after each
 * product of terms; `place`, a constant, is its number within a step (of six, or of one). */
typedef void side_work(void *work, int place);

enum { PLACES = 6, BLOCK = 2 * SIDE /* rows and columns of sums that are computed together */ };

/* Spreads units of work evenly over the places between products. */
typedef struct {
    int64_t left;       /* units */
    uint64_t due, each; /* in 2^-16 units: what is due, and the increase at each place */
} pace;

static inline pace spread(int64_t units, int64_t places)
{
    return (pace){.left = units, .each = places > 0 ? (uint64_t)((units << 16) / places + 1) : 0};
}

/* How many units to do at this place, at most `most`. */
INLINE int64_t take_due(pace *p, int64_t most)
{
    p->due += p->each;
    int64_t units = smaller(smaller((int64_t)(p->due >> 16), p->left), most);
    p->due -= (uint64_t)units << 16;
    p->left -= units;
    return units;
}

/* Up to 32 × 32 sums: of the first one or two pieces of a and b, over `steps` depths, and the halves after them. */
typedef struct {
    packed a, b;
    int64_t steps;
    bool halves;
    float *sums;
    int64_t width; /* distance between rows of the sums */
    bool add;      /* whether to add to what is there */
} tile_block;

/* Computes the sums of a block with this many terms in each depth. Tiles 0 to 3 are sums, 4 and 5 are a's, 6 and 7 are
 * b's. The products of small terms come first. Each sum runs along the depth, so it does not depend on the work around
 * it. `terms` and `beside` are constants. */
INLINE void multiply_block(int terms, bool two_rows, bool two_columns, tile_block c, side_work *beside, void *work)
{
    const int64_t row = c.width * (int64_t)sizeof *c.sums, tile = 64, step = terms * TILE_PAIRS;
    const int64_t a_row = c.a.row == 0 ? tile : c.a.row, a_step = c.a.row == 0 ? step : c.a.step;
    const pair *upper = c.a.tiles, *lower = upper + c.a.piece, *left = c.b.tiles, *right = left + c.b.piece;
    float *sums = c.sums, *below = sums + SIDE * c.width;
#define LOAD_A(term)                                                                                                   \
    do {                                                                                                               \
        tile_load(4, upper + (term)*TILE_PAIRS, a_row);                                                                \
        if (two_rows) tile_load(5, lower + (term)*TILE_PAIRS, a_row);                                                  \
    } while (0)
#define LOAD_B(term)                                                                                                   \
    do {                                                                                                               \
        tile_load(6, left + (term)*TILE_PAIRS, tile);                                                                  \
        if (two_columns) tile_load(7, right + (term)*TILE_PAIRS, tile);                                                \
    } while (0)
#define MULTIPLY(place)                                                                                                \
    do {                                                                                                               \
        tile_multiply(0, 4, 6);                                                                                        \
        if (two_columns) tile_multiply(1, 4, 7);                                                                       \
        if (two_rows) tile_multiply(2, 5, 6);                                                                          \
        if (two_rows && two_columns) tile_multiply(3, 5, 7);                                                           \
        beside(work, place);                                                                                           \
    } while (0)
    if (c.add) {
        tile_load(0, sums, row);
        if (two_columns) tile_load(1, sums + SIDE, row);
        if (two_rows) tile_load(2, below, row);
        if (two_rows && two_columns) tile_load(3, below + SIDE, row);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t k = 0; k < c.steps; k++) {
        LOAD_B(0);
        if (terms > 1) {
            LOAD_A(2);
            MULTIPLY(0);
            LOAD_A(1);
            MULTIPLY(1);
            LOAD_B(1);
            MULTIPLY(2);
            LOAD_A(0);
            MULTIPLY(3);
            LOAD_B(2);
            MULTIPLY(4);
            LOAD_B(0);
            MULTIPLY(5);
        } else {
            LOAD_A(0);
            MULTIPLY(0);
        }
        upper += a_step, lower += a_step, left += step, right += step;
    }
    if (terms > 1 && c.halves) {
        LOAD_A(0);
        LOAD_B(0);
        MULTIPLY(0);
        LOAD_A(1);
        LOAD_B(1);
        MULTIPLY(1);
        LOAD_A(2);
        LOAD_B(2);
        MULTIPLY(2);
    }
    tile_store(0, sums, row);
    if (two_columns) tile_store(1, sums + SIDE, row);
    if (two_rows) tile_store(2, below, row);
    if (two_rows && two_columns) tile_store(3, below + SIDE, row);
#undef LOAD_A
#undef LOAD_B
#undef MULTIPLY
}

#endif
