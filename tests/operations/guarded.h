/* Matrices for tests of operations: unaligned, with a stride wider than the columns, filled with NaN, and surrounded by
 * guard values that must not change; of float32, and of 16 bits beside the same numbers in float32. */
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

/* Where an update rounds `count` values to 16 bits: at an odd address, between guards. With float32 nowhere: at is
 * NULL. Its memory is freed when the test has ended. */
typedef struct {
    vt_type type;
    int64_t count;
    uint16_t *memory, *at;
} guarded_rounded;

guarded_rounded guarded_rounded_open(vt_type type, int64_t count);

/* Fails the test unless it holds the values, rounded to the bit (NULL: nothing was written), and nothing outside of it
 * was written. */
void guarded_rounded_check(const guarded_rounded *r, const float *values, const char *name);

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

/* Before attention with dropout: draws what a back end needs that draws ahead. */
void guarded_draw(vt_backend *b, vt_attention_shape *shape);

/* One attention with all of its operands; log_sum is [1, batch * heads * queries]. */
typedef struct {
    vt_attention_shape shape;
    guarded q, k, v, dout, out, log_sum, dq, dk, dv;
} guarded_attention;

/* Normal numbers, in q times `scale`; the results are NaN. */
guarded_attention guarded_attention_open(const vt_attention_shape *shape, float scale);
/* New results, for its shape. */
void guarded_attention_renew(guarded_attention *a);
void guarded_attention_forward(vt_backend *b, guarded_attention *a);
/* With out and log_sum of `from`. */
void guarded_attention_backward(vt_backend *b, guarded_attention *a, const guarded_attention *from);
/* Tolerances of out, log_sum, dq, dk and dv; below 0: not compared. */
void guarded_attention_compare(const guarded_attention *actual, const guarded_attention *expected,
                               const double tolerance[5]);

/* How the rows of twins lie: apart, the first one at an odd address; apart, each at a 16-byte boundary; or without a
 * gap. */
typedef enum { TWINS_APART, TWINS_ALIGNED, TWINS_TIGHT } twins_place;

/* The same numbers twice: of any type, with guards around them and between rows, and as the float32 numbers that those
 * are, without gaps, for the oracle. */
typedef struct {
    vt_matrix own, wide;
    unsigned char *memory;
    size_t bytes;
} twins;

twins twins_open(vt_type type, int64_t rows, int64_t columns, twins_place place); /* own: NaN */
twins twins_random(vt_type type, int64_t rows, int64_t columns, uint64_t seed, float scale, twins_place place);

/* Fails the test when anything outside of the own numbers was written, or when one of them is NaN or differs from
 * `wide` by more than this many roundings of the largest element (0: from `wide`, rounded; below 0: not compared). */
void twins_compare(const twins *t, double units, const char *name);

typedef struct {
    vt_attention_shape shape;
    twins q, k, v, dout, out, dq, dk, dv;
    guarded log_sum[2]; /* of the wide ones, of the own */
} twins_attention;

twins_attention twins_attention_open(vt_type type, const vt_attention_shape *shape, float scale, twins_place place);
void twins_attention_forward(vt_backend *b, twins_attention *a, bool wide);
/* `out` of a forward pass that had these log_sums. */
void twins_attention_backward(vt_backend *b, twins_attention *a, bool wide, vt_matrix out, const guarded *log_sum);
/* Weights, their gradients and the sums' operands are rounded once more than on the CPU: each of √n random terms of a
 * sum by about half a half_unit, and so is the result; four times that is allowed. */
void twins_attention_compare(const twins_attention *a, bool backward, const char *name);

#endif
