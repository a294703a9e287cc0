#include "operations/guarded.h"

#include "base/random.h"
#include "test.h"

static const float guard = 12345.678f;
enum { AROUND = 37, GAP = 3 }; /* odd, so that rows begin at unaligned addresses */

guarded guarded_open(int64_t rows, int64_t columns)
{
    guarded g;
    int64_t stride = columns + GAP;
    g.size = 2 * AROUND + rows * stride;
    g.memory = vt_test_owned(malloc((size_t)g.size * sizeof *g.memory));
    for (int64_t i = 0; i < g.size; i++) g.memory[i] = guard;
    g.matrix = vt_matrix_make(g.memory + AROUND, rows, columns);
    g.matrix.stride = stride;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) g.matrix.data[r * stride + c] = NAN;
    return g;
}

void fill_random(float *values, int64_t count, uint64_t seed, float scale)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * (float)vt_random_normal_quantile(vt_random_element(seed, 1, (uint64_t)i));
}

guarded guarded_random(int64_t rows, int64_t columns, uint64_t seed, float scale)
{
    guarded g = guarded_open(rows, columns);
    for (int64_t r = 0; r < rows; r++)
        fill_random(g.matrix.data + r * g.matrix.stride, columns, seed * 1000003 + (uint64_t)r, scale);
    return g;
}

guarded guarded_copy(const guarded *other)
{
    guarded g = guarded_open(other->matrix.rows, other->matrix.columns);
    memcpy(g.memory, other->memory, (size_t)g.size * sizeof *g.memory);
    return g;
}

void guarded_check(const guarded *g, const char *name)
{
    for (int64_t i = 0; i < g->size; i++) {
        int64_t inside = i - AROUND, row = inside / g->matrix.stride, column = inside % g->matrix.stride;
        bool is_guard = inside < 0 || row >= g->matrix.rows || column >= g->matrix.columns;
        EXPECT(!is_guard || g->memory[i] == guard, "%s: wrote outside, at row %lld, column %lld", name, (long long)row,
               (long long)column);
    }
}

void guarded_compare(const guarded *actual, const guarded *expected, double tolerance, const char *name)
{
    double largest = 0, worst = 0;
    bool is_nan = false;
    for (int64_t r = 0; r < expected->matrix.rows; r++) {
        for (int64_t c = 0; c < expected->matrix.columns; c++) {
            double a = (double)actual->matrix.data[r * actual->matrix.stride + c];
            double e = (double)expected->matrix.data[r * expected->matrix.stride + c];
            if (isnan(a) || isnan(e)) is_nan = true;
            if (fabs(e) > largest) largest = fabs(e);
            if (fabs(a - e) > worst) worst = fabs(a - e);
        }
    }
    EXPECT(!is_nan, "%s: NaN, an element was not written", name);
    EXPECT(worst <= tolerance * largest, "%s: differs by %.3g of its largest element, allowed %.3g", name,
           worst / largest, tolerance);
    guarded_check(actual, name);
}

guarded guarded_part(vt_matrix whole, int64_t batch, part p)
{
    guarded block = guarded_open(batch * p.tokens, p.columns);
    for (int64_t r = 0; r < block.matrix.rows; r++) {
        int64_t row = r / p.tokens * (whole.rows / batch) + p.first_token + r % p.tokens;
        memcpy(block.matrix.data + r * block.matrix.stride, whole.data + row * whole.stride + p.first_column,
               (size_t)p.columns * sizeof(float));
    }
    return block;
}

void guarded_compare_part(const guarded *actual, const guarded *whole, int64_t batch, part p, double tolerance,
                          const char *name)
{
    guarded expected = guarded_part(whole->matrix, batch, p);
    guarded_compare(actual, &expected, tolerance, name);
}
