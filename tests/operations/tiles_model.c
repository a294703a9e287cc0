#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define VT_TILES_MODEL
#include "backend/cpu/amx/tiles.h"
#include "base/bfloat16.h"

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, COLUMNS = ROW_BYTES / 4 };

static _Thread_local struct {
    tile_configuration configuration; /* palette 0: none */
    char data[TILES][ROWS][ROW_BYTES];
} tiles;

static const char *first_refused;

static void refuse(const char *what)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&first_refused, &none, what, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

const char *tiles_model_refused(void)
{
    return __atomic_exchange_n(&first_refused, NULL, __ATOMIC_SEQ_CST);
}

static const char *wrong_in(const tile_configuration *c)
{
    if (c->palette > 1) return "configure: no such palette";
    for (size_t i = 0; i < sizeof c->reserved; i++)
        if (c->reserved[i] != 0) return "configure: reserved bytes are not 0";
    for (int tile = 0; tile < ROWS; tile++) {
        if (tile >= TILES && (c->row_bytes[tile] != 0 || c->rows[tile] != 0)) return "configure: more than 8 tiles";
        if (c->row_bytes[tile] > ROW_BYTES || c->rows[tile] > ROWS) return "configure: a tile is too large";
        if ((c->row_bytes[tile] == 0) != (c->rows[tile] == 0)) return "configure: rows without bytes, or bytes without";
    }
    return NULL;
}

void tiles_model_configure(const tile_configuration *configuration)
{
    const char *wrong = wrong_in(configuration);
    if (wrong != NULL) {
        refuse(wrong);
        return;
    }
    memset(&tiles, 0, sizeof tiles);
    if (configuration->palette != 0) tiles.configuration = *configuration;
}

void tiles_model_release(void)
{
    memset(&tiles, 0, sizeof tiles);
}

static int rows_of(int tile)
{
    return tiles.configuration.rows[tile];
}

static int bytes_of(int tile)
{
    return tiles.configuration.row_bytes[tile];
}

static bool usable(int tile, const char *what)
{
    bool there = tile >= 0 && tile < TILES && tiles.configuration.palette == 1 && rows_of(tile) > 0;
    if (!there) refuse(what);
    return there;
}

void tiles_model_zero(int tile)
{
    if (usable(tile, "zero: the tile is not configured")) memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
}

void tiles_model_load(int tile, const void *from, ptrdiff_t stride)
{
    if (!usable(tile, "load: the tile is not configured")) return;
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
    for (int r = 0; r < rows_of(tile); r++)
        memcpy(tiles.data[tile][r], (const char *)from + r * stride, (size_t)bytes_of(tile));
}

void tiles_model_store(int tile, void *to, ptrdiff_t stride)
{
    if (!usable(tile, "store: the tile is not configured")) return;
    for (int r = 0; r < rows_of(tile); r++)
        memcpy((char *)to + r * stride, tiles.data[tile][r], (size_t)bytes_of(tile));
}

static float flush(float value)
{
    return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

/* a · b + sum, rounded once, as the manual has it; products of bfloat16 numbers are exact unless they leave the range.
 */
static float add_product(float a, float b, float sum)
{
    float product = a * b;
    return flush(isnormal(product) || a == 0 || b == 0 ? product + sum : fmaf(a, b, sum));
}

/* sums + left * right, for numbers that are 0 or normal, as are all products and sums; false if one is not. */
static bool add_products(float left, const float right[COLUMNS], float sums[COLUMNS])
{
    int outside = 0;
    for (int c = 0; c < COLUMNS; c++) {
        const float product = left * right[c], sum = sums[c] + product, size = fabsf(product);
        outside |= !((size >= FLT_MIN) & (size <= FLT_MAX)) & (left != 0) & (right[c] != 0);
        outside |= !(fabsf(sum) >= FLT_MIN) & (sum != 0);
        sums[c] = sum;
    }
    return outside == 0;
}

static float number(int tile, int row, int index)
{
    uint16_t half;
    memcpy(&half, tiles.data[tile][row] + index * 2, sizeof half);
    if ((half & 0x7f80) == 0) half &= 0x8000; /* subnormal */
    return vt_bfloat16_widen(half);
}

static const char *wrong_shapes(int sum, int a, int b)
{
    if (sum == a || sum == b || a == b) return "multiply: a tile is named twice";
    if (bytes_of(sum) % 4 != 0 || bytes_of(a) % 4 != 0 || bytes_of(b) % 4 != 0) return "multiply: not whole pairs";
    if (rows_of(sum) != rows_of(a) || bytes_of(a) / 4 != rows_of(b) || bytes_of(sum) != bytes_of(b))
        return "multiply: the shapes don't fit";
    return NULL;
}

void tiles_model_multiply(int sum, int a, int b)
{
    const char *missing = "multiply: a tile is not configured";
    if (!usable(sum, missing) || !usable(a, missing) || !usable(b, missing)) return;
    const char *wrong = wrong_shapes(sum, a, b);
    if (wrong != NULL) {
        refuse(wrong);
        return;
    }
    int columns = bytes_of(sum) / 4, pairs = bytes_of(a) / 4;
    float right[2 * ROWS][COLUMNS] = {{0}};
    for (int p = 0; p < pairs; p++)
        for (int c = 0; c < 2 * columns; c++) right[2 * p + c % 2][c / 2] = number(b, p, c);
    for (int r = 0; r < rows_of(sum); r++) {
        float partial[2][COLUMNS] = {{0}}, total[COLUMNS], left[2 * ROWS];
        bool is_usual = true;
        for (int i = 0; i < 2 * pairs; i++) left[i] = number(a, r, i);
        for (int i = 0; i < 2 * pairs && is_usual; i++) is_usual = add_products(left[i], right[i], partial[i % 2]);
        if (!is_usual) memset(partial, 0, sizeof partial);
        for (int i = 0; i < 2 * pairs && !is_usual; i++)
            for (int c = 0; c < columns; c++) partial[i % 2][c] = add_product(left[i], right[i][c], partial[i % 2][c]);
        memcpy(total, tiles.data[sum][r], sizeof total);
        for (int c = 0; c < columns; c++) total[c] = flush(flush(total[c]) + flush(partial[0][c] + partial[1][c]));
        memcpy(tiles.data[sum][r], total, (size_t)bytes_of(sum));
    }
}
