/* Matrices for tests of operations: unaligned, with a stride wider than the columns, filled with NaN, and surrounded by
 * guard values that must not change. */
#ifndef VT_TESTS_OPERATIONS_GUARDED_H
#define VT_TESTS_OPERATIONS_GUARDED_H

#include "backend/backend.h"

typedef struct {
    vt_matrix matrix;
    float *memory;
    int64_t size;
} guarded;

/* Their memory is freed when the test has ended. */
guarded guarded_open(int64_t rows, int64_t columns);                               /* NaN inside */
guarded guarded_random(int64_t rows, int64_t columns, uint64_t seed, float scale); /* normal numbers */
guarded guarded_copy(const guarded *other);

/* Fails the test when anything outside of the matrix was written. */
void guarded_check(const guarded *g, const char *name);

/* Fails the test when an element differs by more than `tolerance` of the largest element (of `expected`), or is NaN. */
void guarded_compare(const guarded *actual, const guarded *expected, double tolerance, const char *name);

/* What one rank holds of a matrix of `tokens` rows a sample. */
typedef struct {
    int64_t first_token, tokens;
    int64_t first_column, columns;
} part;

/* That part's own copy. `batch`: samples of the whole. */
guarded guarded_part(vt_matrix whole, int64_t batch, part p);

/* guarded_compare with a part of `whole`. */
void guarded_compare_part(const guarded *actual, const guarded *whole, int64_t batch, part p, double tolerance,
                          const char *name);

/* Normal numbers, the same for the same seed. */
void fill_random(float *values, int64_t count, uint64_t seed, float scale);

#endif
