/* Attention on tiles, in bfloat16 or in float32 as sums of bfloat16 terms (terms.h), in blocks as
 * vector/attention_panels.h has it: the same units of work, the same order of sums for any number of threads, nothing
 * of size queries × keys.
 *
 * Scores are made transposed, keys × queries, so that the lanes of a vector are queries: the running maximum and sum of
 * the softmax need no sums across lanes, and the weights' pairs along the keys are made of two vectors. Of the packed
 * operands only one a block is transposed by numbers (values, or keys in backward). Where all is bfloat16, weights and
 * the scores' gradients are rounded to it where they enter products; all else is float32: scores are scaled and
 * exponentiated as they come out of the tiles, the softmax's sum is of the weights before rounding, dq is summed in
 * float32.
 *
 * The processor multiplies tiles while it computes with vectors, if the instructions of both come by turns. So panels
 * go through in three stages, each one step behind the one before: while one panel's scores become weights, the next
 * one's scores are made and the products of the last one's weights.
 *
 * All blocks are padded to whole tiles with zeros: a weight beyond the keys is 0, and so is a gradient beyond the
 * queries. Operands of unequal terms go to the vector kernels, as do narrow heads that are not of bfloat16. */
#ifndef VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H
#define VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H

#include "backend/cpu/amx/terms.h"
#include "backend/cpu/vector/attention_parts.h"

enum { QUERIES = 128, KEYS = 128 };

/* Padded sizes of a head, in whole tiles but for a depth that may end with a half one (terms.h). */
typedef struct {
    int64_t depth, width;
} padded;

static inline padded pad(const head_view *h, int terms)
{
    return (padded){round_up(h->dim, terms == 1 ? DEPTH : SIDE), round_up(h->dim, SIDE)};
}

/* Where a head fills no depth of tiles, products of three terms take longer than the vector kernels: 1.1 to 1.4 times
 * as long with heads of 16 and 24 (docs/performance.md). */
static inline bool too_narrow(const vt_attention_shape *shape, int terms)
{
    return terms > 1 && shape->head_dim < DEPTH;
}

/* ---- operands ---- */

/* As packed, to be written; pieces are no power of two apart. */
typedef struct {
    pair *tiles;
    int64_t piece;
} operand;

static inline operand take_operand(pile *memory, int terms, int64_t rows, int64_t depth)
{
    int64_t piece = pieces(depth, DEPTH) * terms * TILE_PAIRS + SIDE;
    return (operand){take(memory, rows / SIDE * piece), piece};
}

/* From row (or column) `first` on. */
static inline packed from_piece(operand o, int64_t first)
{
    return (packed){.tiles = o.tiles + first / SIDE * o.piece, .piece = o.piece};
}

/* The head's columns of its sample's `tokens` rows. */
static inline vt_matrix head_matrix(const head_view *h, vt_matrix all, int64_t tokens)
{
    all = from_row(all, h->batch * tokens);
    all.rows = tokens;
    all.columns = h->dim;
    if (vt_type_is_half(all.type))
        all.half += h->column;
    else
        all.data += h->column;
    return all;
}

/* The halves of 16 rows (terms.h), as a left operand or, to be transposed, a right one; constants: left, whole. */
INLINE void half_rows(bool left, bool whole, const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    for (int64_t r = 0; r < SIDE; r++, to += SIDE)
#pragma GCC unroll 4
        for (int64_t p = 0; p < SIDE; p += LANES)
            store_halves(left, load_inside(whole, from, row + r, column + p), to + p);
}

/* A left operand's halves. */
static void pack_left_half(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    if (lies_within(from, row, column, SIDE, SIDE))
        half_rows(true, true, from, row, column, to);
    else
        half_rows(true, false, from, row, column, to);
}

/* A right operand's halves. */
static void pack_right_half(const vt_matrix *from, int64_t row, int64_t column, pair *to)
{
    pair rows[TERMS * TILE_PAIRS];
    if (lies_within(from, row, column, SIDE, SIDE))
        half_rows(false, true, from, row, column, rows);
    else
        half_rows(false, false, from, row, column, rows);
    for (int t = 0; t < TERMS; t++) transpose_pairs(rows + t * TILE_PAIRS, to + t * TILE_PAIRS);
}

/* A function that packs a tile from a row and a column on. */
typedef void tile_packer(const vt_matrix *from, int64_t row, int64_t column, pair *to);

/* `rows` rows first … of a matrix, its columns are the depth: whole tiles, then the halves. */
static inline void pack_depth_in_columns(tile_packer *whole, tile_packer *half, const vt_matrix *from, int64_t first,
                                         int64_t rows, int64_t depth, operand to)
{
    for (int64_t i = 0; i < rows; i += SIDE) {
        pair *tile = to.tiles + i / SIDE * to.piece;
        for (int64_t k = 0; k < depth; k += DEPTH, tile += terms_of(from->type) * TILE_PAIRS)
            (k + DEPTH <= depth ? whole : half)(from, first + i, k, tile);
    }
}

static inline void pack_left(const vt_matrix *from, int64_t first, int64_t rows, int64_t depth, operand to)
{
    pack_depth_in_columns(pack_left_rows, pack_left_half, from, first, rows, depth, to);
}

static inline void pack_right(const vt_matrix *from, int64_t first, int64_t rows, int64_t depth, operand to)
{
    pack_depth_in_columns(pack_right_across, pack_right_half, from, first, rows, depth, to);
}

/* All columns of a matrix, to `columns`; its rows first … are the depth. */
static inline void pack_depth_in_rows(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t depth,
                                      int64_t columns, operand to)
{
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int64_t i = 0; i < columns; i += SIDE)
            tile(from, first + k, i, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* What stands between the tiles' instructions computes addresses without signed divisions. */
INLINE int64_t which_side(int64_t index)
{
    return (int64_t)((uint64_t)index / SIDE);
}

/* The first number of pair p and how far the second is from it, along the depth (terms.h). */
INLINE int64_t pair_begin(int terms, int64_t p)
{
    return terms == 1 ? 2 * p : p + (p & -SIDE);
}

INLINE int64_t pair_apart(int terms)
{
    return terms == 1 ? 1 : SIDE;
}

/* Where an operand's tiles begin with column (or row) i. */
INLINE pair *at_column(operand o, int64_t i)
{
    return o.tiles + which_side(i) * o.piece + (i & (SIDE - 1));
}

/* Pair p of keys, LANES queries, in a right operand [KEYS × queries], at the first one's column. */
INLINE void put_along_keys(int terms, pair *column, int64_t p, vector first, vector second)
{
    pair *at = column + p * SIDE + (p & -SIDE) * (terms - 1) * SIDE;
    if (terms == 1)
        store_pairs(at, first, second);
    else
        store_terms(first, second, at);
}

/* Where LANES pairs of queries from pair p on are in a left operand [KEYS × queries], in key 0's row. */
INLINE pair *at_queries(int terms, operand o, int64_t p)
{
    return o.tiles + which_side(p) * terms * TILE_PAIRS + (p & (SIDE - 1));
}

/* Key j's pairs there; of one term they are 2 LANES neighbours. */
INLINE void put_along_queries(int terms, pair *queries, int64_t piece, int64_t j, vector first, vector second)
{
    pair *at = queries + which_side(j) * piece + (j & (SIDE - 1)) * SIDE;
    if (terms == 1)
        store_neighbours(at, first, second);
    else
        store_terms(first, second, at);
}

/* How far the second vector of LANES pairs of queries is from the first one. */
INLINE int64_t vectors_apart(int terms)
{
    return terms == 1 ? LANES : SIDE;
}

INLINE vector load_key(const float *rows, int64_t keys, int64_t queries, int64_t j, int64_t i)
{
    return j < keys ? load(rows + j * queries + i) : (vector){0};
}

/* Numbers [keys × queries], of which those of keys … are 0, in a right operand. */
static inline void round_along_keys(int terms, const float *rows, int64_t keys, int64_t queries, operand to)
{
    for (int64_t p = 0; p < round_up(keys, DEPTH) / 2; p++) {
        int64_t j = pair_begin(terms, p);
        for (int64_t i = 0; i < queries; i += LANES)
            put_along_keys(terms, at_column(to, i), p, load_key(rows, keys, queries, j, i),
                           load_key(rows, keys, queries, j + pair_apart(terms), i));
    }
}

/* The same in a left operand. */
static inline void round_along_queries(int terms, const float *rows, int64_t keys, int64_t queries, operand to)
{
    for (int64_t j = 0; j < round_up(keys, SIDE); j++) {
        for (int64_t p = 0; p < queries / 2; p += LANES) {
            int64_t i = pair_begin(terms, p);
            put_along_queries(terms, at_queries(terms, to, p), to.piece, j, load_key(rows, keys, queries, j, i),
                              load_key(rows, keys, queries, j, i + vectors_apart(terms)));
        }
    }
}

/* Asks for the head's rows, in two matrices of `tokens` a sample, of the block that begins at `first` and is packed
 * next: share `index` of `shares`. */
static inline void look_ahead_share(const head_view *h, const vt_matrix *one, const vt_matrix *other, int64_t tokens,
                                    int64_t first, int64_t index, int64_t shares)
{
    _Static_assert(KEYS == QUERIES, "one size of blocks");
    int64_t begin = smaller(tokens, first + piece_begin(KEYS, shares, index));
    int64_t end = smaller(tokens, first + piece_begin(KEYS, shares, index + 1));
    look_ahead(h, one, h->batch * tokens + begin, end - begin);
    look_ahead(h, other, h->batch * tokens + begin, end - begin);
}

/* ---- products, and what is done beside them ---- */

/* sums [rows × columns], `width` apart, (+)= a [rows × depth] b [depth × columns]; rows and columns in steps of 16,
 * the depth in steps of 32, of terms of 16. */
typedef struct {
    int64_t rows, columns, depth;
    packed a, b;
    float *sums;
    int64_t width;
    bool add;
} tile_product;

/* terms and beside: constants. */
INLINE void multiply_tiles(int terms, const tile_product *p, side_work *beside, void *work)
{
    tile_block block = {.steps = p->depth / DEPTH, .halves = p->depth % DEPTH != 0, .width = p->width, .add = p->add};
    for (int64_t i = 0; i < p->rows; i += 2 * SIDE) {
        block.a = (packed){.tiles = p->a.tiles + i / SIDE * p->a.piece, .piece = p->a.piece};
        for (int64_t j = 0; j < p->columns; j += 2 * SIDE) {
            block.b = (packed){.tiles = p->b.tiles + j / SIDE * p->b.piece, .piece = p->b.piece};
            block.sums = p->sums + i * p->width + j;
            multiply_block(terms, i + SIDE < p->rows, j + SIDE < p->columns, block, beside, work);
        }
    }
}

/* How often `beside` is called, in all. */
static inline int64_t places_beside(int terms, const tile_product *products, int count)
{
    int64_t places = 0;
    for (const tile_product *p = products; p < products + count; p++)
        places += pieces(p->rows, 2 * SIDE) * pieces(p->columns, 2 * SIDE) *
                  (terms == 1 ? p->depth / DEPTH : p->depth * PLACES / DEPTH);
    return places;
}

/* Units of work that are spread evenly over the places beside products. */
typedef struct {
    int64_t left;       /* units */
    uint64_t due, each; /* in 2^-16: what is due, and how much more at each place */
} pace;

static inline pace spread(int64_t units, int64_t places)
{
    return (pace){.left = units, .each = places > 0 ? (uint64_t)((units << 16) / places + 1) : 0};
}

/* How many units, `most` at most, are to be done at this place. */
INLINE int64_t take_due(pace *p, int64_t most)
{
    p->due += p->each;
    int64_t units = smaller(smaller((int64_t)(p->due >> 16), p->left), most);
    p->due -= (uint64_t)units << 16;
    p->left -= units;
    return units;
}

/* ---- units of work ---- */

/* How many blocks of queries (backward: of keys) a unit of work has, `most` at most: what is packed of the others
 * serves all of them. Fewer where threads would have nothing to do; a number's sum does not depend on it. */
static inline int64_t blocks_of_unit(const vt_backend *backend, const vt_attention_shape *shape, int64_t blocks,
                                     int64_t most)
{
    int64_t heads = shape->batch * shape->heads;
    most = smaller(most, blocks);
    while (most > 1 && heads * pieces(blocks, most) < 4 * vt_cpu_threads(backend)) most--;
    return most;
}

#endif
