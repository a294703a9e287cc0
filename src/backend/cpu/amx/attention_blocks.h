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
 * All blocks are padded to whole tiles with zeros: a weight beyond the keys is 0, and so is a gradient beyond the
 * queries. Operands of unequal terms go to the vector kernels. */
#ifndef VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H
#define VT_BACKEND_CPU_AMX_ATTENTION_BLOCKS_H

#include "backend/cpu/amx/terms.h"
#include "backend/cpu/vector/attention_parts.h"

enum {
    PANEL = 32, /* queries whose scores exist at once */
    QUERIES = 128,
    KEYS = 128,
};

/* Padded sizes of a head. */
typedef struct {
    int64_t depth; /* head_dim, to whole depths of a tile */
    int64_t width; /* head_dim, to whole columns of a tile */
} padded;

static inline padded pad(const head_view *h)
{
    return (padded){round_up(h->dim, DEPTH), round_up(h->dim, SIDE)};
}

/* ---- operands ---- */

/* As packed, to be written; pieces are no power of two apart. */
typedef struct {
    pair *tiles;
    int64_t piece;
} operand;

static inline operand take_operand(pile *memory, int terms, int64_t rows, int64_t depth)
{
    int64_t piece = depth / DEPTH * terms * TILE_PAIRS + SIDE;
    return (operand){take(memory, rows / SIDE * piece), piece};
}

/* From row (or column) `first` on. */
static inline packed from_piece(operand o, int64_t first)
{
    return (packed){o.tiles + first / SIDE * o.piece, o.piece};
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

/* One of terms.h's, which pack a tile from a row and a column on. */
typedef void tile_packer(const vt_matrix *from, int64_t row, int64_t column, pair *to);

/* `rows` rows first … of a matrix, its columns are the depth. */
static inline void pack_depth_in_columns(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t rows,
                                         int64_t depth, operand to)
{
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t k = 0; k < depth; k += DEPTH)
            tile(from, first + i, k, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* All columns of a matrix, to `columns`; its rows first … are the depth. */
static inline void pack_depth_in_rows(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t depth,
                                      int64_t columns, operand to)
{
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int64_t i = 0; i < columns; i += SIDE)
            tile(from, first + k, i, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* Pairs (first[c], second[c]) of keys j and j + 1, queries i + c, in a right operand [KEYS × queries]. */
INLINE void put_along_keys(int terms, operand to, int64_t j, int64_t i, vector first, vector second)
{
    pair *at = to.tiles + i / SIDE * to.piece + j / DEPTH * terms * TILE_PAIRS + j % DEPTH / 2 * SIDE + i % SIDE;
    if (terms == 1)
        store_pairs(at, first, second);
    else
        store_terms_along(first, second, at);
}

/* Key j, queries i … and i + LANES …, in a left operand [KEYS × queries]. */
INLINE void put_along_queries(int terms, operand to, int64_t j, int64_t i, vector first, vector second)
{
    pair *at = to.tiles + j / SIDE * to.piece + i / DEPTH * terms * TILE_PAIRS + j % SIDE * SIDE + i % DEPTH / 2;
    if (terms == 1)
        store_neighbours(at, first, second);
    else
        store_terms(first, second, at);
}

/* The panel's numbers [keys × PANEL] in a right operand [KEYS × queries]; those of keys … are 0. */
static inline void round_along_keys(int terms, const float *rows, int64_t keys, int64_t panel, operand to)
{
    for (int64_t j = 0; j < round_up(keys, DEPTH); j += 2) {
        const float *first = rows + j * PANEL, *second = first + PANEL;
        for (int64_t i = 0; i < PANEL; i += LANES)
            put_along_keys(terms, to, j, panel * PANEL + i, j < keys ? load(first + i) : (vector){0},
                           j + 1 < keys ? load(second + i) : (vector){0});
    }
}

/* The same in a left operand [KEYS × queries]. */
static inline void round_along_queries(int terms, const float *rows, int64_t keys, int64_t panel, operand to)
{
    for (int64_t j = 0; j < round_up(keys, SIDE); j++)
        for (int64_t i = 0; i < PANEL; i += 2 * LANES)
            put_along_queries(terms, to, j, panel * PANEL + i, j < keys ? load(rows + j * PANEL + i) : (vector){0},
                              j < keys ? load(rows + j * PANEL + i + LANES) : (vector){0});
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

/* ---- the product ---- */

/* Not inlined: one copy is enough. */
static __attribute__((noinline)) void multiply_corner(int terms, bool two_rows, bool two_columns, packed a, packed b,
                                                      int64_t steps, float *c, int64_t c_stride, bool add)
{
    if (terms == 1)
        multiply_run(1, two_rows, two_columns, a, b, steps, c, c_stride, add, (soon){0});
    else
        multiply_run(TERMS, two_rows, two_columns, a, b, steps, c, c_stride, add, (soon){0});
}

/* c [rows × columns] (+)= a [rows × depth] b [depth × columns]; rows and columns in steps of 16, depth of 32. */
static inline void multiply_tiles(int terms, int64_t rows, int64_t columns, int64_t depth, packed a, packed b, float *c,
                                  int64_t c_stride, bool add)
{
    for (int64_t j = 0; j < columns; j += 2 * SIDE) {
        packed right = {b.tiles + j / SIDE * b.piece, b.piece};
        for (int64_t i = 0; i < rows; i += 2 * SIDE) {
            packed left = {a.tiles + i / SIDE * a.piece, a.piece};
            multiply_corner(terms, i + SIDE < rows, j + SIDE < columns, left, right, depth / DEPTH,
                            c + i * c_stride + j, c_stride, add);
        }
    }
}

/* ---- units of work ---- */

enum { MOST_BLOCKS = 4 };

/* How many blocks of queries (backward: of keys) a unit of work has: what is packed of the others serves all of them.
 * Fewer where threads would have nothing to do; a number's sum does not depend on it. */
static inline int64_t blocks_of_unit(const vt_backend *backend, const vt_attention_shape *shape, int64_t blocks)
{
    int64_t most = smaller(MOST_BLOCKS, blocks), heads = shape->batch * shape->heads;
    while (most > 1 && heads * pieces(blocks, most) < 4 * vt_cpu_threads(backend)) most--;
    return most;
}

#endif
