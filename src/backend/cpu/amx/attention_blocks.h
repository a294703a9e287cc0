/* Attention on tiles, in bfloat16 or in float32 as sums of bfloat16 terms (terms.h), in the blocks of
 * vector/attention_panels.h: the same units of work, the same order of sums for any number of threads, and no matrix of
 * queries × keys.
 * Scores are computed transposed, keys × queries, so that the lanes of a vector are queries: the running maximum and
 * sum of the softmax need no sums across lanes, and two vectors hold the weights' pairs along the keys. Only one packed
 * operand of a block is transposed number by number (values, or keys in backward). If all operands are bfloat16,
 * weights and the scores' gradients are rounded to bfloat16 for products; everything else is float32: scores are scaled
 * and exponentiated as they come out of the tiles, the softmax's sum is of the weights before rounding, dq is summed in
 * float32.
 * The processor multiplies tiles while it computes with vectors if the two kinds of instructions alternate. So panels
 * pass through three stages, each one step behind the one before: while one panel's scores become weights, the next
 * panel's scores and the products of the previous panel's weights are computed.
 * All blocks are padded to whole tiles with zeros: a weight beyond the keys is 0, and so is a gradient beyond the
 * queries. Operands with different numbers of terms go to the vector kernels, and so do narrow heads unless they are
 * bfloat16. */
#ifndef VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H
#define VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H

#include "backend/cpu/amx/terms.h"
#include "backend/cpu/vector/attention_parts.h"

enum { QUERIES = 128, KEYS = 128 };

/* Padded sizes of a head, in whole tiles except for a depth that may end with a half tile (terms.h). */
typedef struct {
    int64_t depth, width;
} padded;

static inline padded pad(const head_view *h, int terms)
{
    return (padded){round_up(h->dim, terms == 1 ? DEPTH : SIDE), round_up(h->dim, SIDE)};
}

/* Where a head fills no depth of tiles, products of three terms take longer than the vector kernels: 1.1 to 1.4 times
 * as long with heads of 16 and 24 (docs/lab/steps-amx.md). */
static inline bool too_narrow(const vt_attention_shape *shape, int terms)
{
    return terms > 1 && shape->head_dim < DEPTH;
}

/* ---- operands ---- */

/* A packed operand to write to; pieces are not a power of two apart. */
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
    return vt_matrix_columns(vt_matrix_rows(all, h->batch * tokens, tokens), h->column, h->dim);
}

/* The halves of 16 rows (terms.h), as a left operand or, transposed, a right one; left and whole are constants. */
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

/* `rows` rows first … of a matrix, whose columns are the depth: whole tiles, then the halves. */
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

/* Packs the columns up to `columns` of a matrix; its rows first … are the depth. */
static inline void pack_depth_in_rows(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t depth,
                                      int64_t columns, operand to)
{
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int64_t i = 0; i < columns; i += SIDE)
            tile(from, first + k, i, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* Code between tile instructions computes addresses without signed divisions. */
INLINE int64_t which_side(int64_t index)
{
    return (int64_t)((uint64_t)index / SIDE);
}

/* The first number of pair p and the distance to the second along the depth (terms.h). */
INLINE int64_t pair_begin(int terms, int64_t p)
{
    return terms == 1 ? 2 * p : p + (p & -SIDE);
}

INLINE int64_t pair_apart(int terms)
{
    return terms == 1 ? 1 : SIDE;
}

/* Where an operand's tiles begin for column (or row) i. */
INLINE pair *at_column(operand o, int64_t i)
{
    return o.tiles + which_side(i) * o.piece + (i & (SIDE - 1));
}

/* Pair p of keys and LANES queries in a right operand [KEYS × queries], at the first query's column. */
INLINE void put_along_keys(int terms, pair *column, int64_t p, vector first, vector second)
{
    pair *at = column + p * SIDE + (p & -SIDE) * (terms - 1) * SIDE;
    if (terms == 1)
        store_pairs(at, first, second);
    else
        store_terms(first, second, at);
}

/* Where LANES pairs of queries from pair p on lie in a left operand [KEYS × queries], in key 0's row. */
INLINE pair *at_queries(int terms, operand o, int64_t p)
{
    return o.tiles + which_side(p) * terms * TILE_PAIRS + (p & (SIDE - 1));
}

/* Stores key j's pairs there; with one term they are 2 LANES neighbours. */
INLINE void put_along_queries(int terms, pair *queries, int64_t piece, int64_t j, vector first, vector second)
{
    pair *at = queries + which_side(j) * piece + (j & (SIDE - 1)) * SIDE;
    if (terms == 1)
        store_neighbours(at, first, second);
    else
        store_terms(first, second, at);
}

/* The distance of the second vector of LANES pairs of queries from the first. */
INLINE int64_t vectors_apart(int terms)
{
    return terms == 1 ? LANES : SIDE;
}

INLINE vector load_key(const float *rows, int64_t keys, int64_t queries, int64_t j, int64_t i)
{
    return j < keys ? load(rows + j * queries + i) : (vector){0};
}

/* Sets keys … of the numbers [keys × queries] in a right operand to 0. */
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

/* Prefetches the part `index` of `shares` of the rows that are packed next: the head's rows, in two matrices of
 * `tokens` rows a sample, of the block that begins at `first`. */
static inline void look_ahead_share(const head_view *h, const vt_matrix *one, const vt_matrix *other, int64_t tokens,
                                    int64_t first, int64_t index, int64_t shares)
{
    _Static_assert(KEYS == QUERIES, "one size of blocks");
    int64_t begin = smaller(tokens, first + piece_begin(KEYS, shares, index));
    int64_t end = smaller(tokens, first + piece_begin(KEYS, shares, index + 1));
    const vt_matrix *const both[] = {one, other};
    for (int i = 0; i < 2; i++)
        look_ahead_rows(both[i], h->batch * tokens + begin, end - begin, h->column, h->column + h->dim, 0);
}

/* ---- products, and the vector work between them ---- */

/* sums [rows × columns], `width` apart, (+)= a [rows × depth] b [depth × columns]; rows and columns in steps of 16, the
 * depth in steps of 32 (16 with terms). */
typedef struct {
    int64_t rows, columns, depth;
    packed a, b;
    float *sums;
    int64_t width;
    bool add;
} tile_product;

/* terms and beside are constants. */
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

/* How often `beside` is called in all. */
static inline int64_t places_beside(int terms, const tile_product *products, int count)
{
    int64_t places = 0;
    for (const tile_product *p = products; p < products + count; p++)
        places += pieces(p->rows, 2 * SIDE) * pieces(p->columns, 2 * SIDE) *
                  (terms == 1 ? p->depth / DEPTH : p->depth * PLACES / DEPTH);
    return places;
}

/* ---- units of work ---- */

/* How many blocks of queries (backward: of keys) a unit of work has, at most `most`: all of them use the same packed
 * data of the other side. Fewer if threads would be idle; the sums do not depend on it. */
static inline int64_t blocks_of_unit(const vt_backend *backend, const vt_attention_shape *shape, int64_t blocks,
                                     int64_t most)
{
    int64_t heads = shape->batch * shape->heads;
    most = smaller(most, blocks);
    while (most > 1 && heads * pieces(blocks, most) < 4 * vt_cpu_threads(backend)) most--;
    return most;
}

#endif
