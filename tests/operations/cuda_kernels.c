/* Properties of the CUDA kernels that the CPU's paths don't have: 16-bit operands in products, aligned (16-byte)
 * accesses, rows too long for registers, TF32. On the host (cuda/host_cuda.h), and on a GPU if there is one. */
#include "cuda/cuda.h"
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/mirror.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 17; /* of dropout */

typedef struct {
    vt_backend *plain, *cuda;
} backends;

static backends open_backends(vt_cpu_isa path)
{
    backends b = {0};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &b.plain));
    EXPECT_OK(path_open(path, &b.cuda));
    return b;
}

/* What the kernels' launchers see. */
static vt_cuda_common *common_of(const backends *b, vt_cpu_isa path)
{
    return path == PATH_GPU ? mirror_inner(b->cuda)->state : b->cuda->state;
}

/* A test on every path that runs these kernels. */
#define CUDA_TEST(name)                                                                                                \
    static void name(vt_cpu_isa path);                                                                                 \
    GPU_TEST(name)                                                                                                     \
    {                                                                                                                  \
        bool runs = false;                                                                                             \
        FOR_EACH_CUDA_PATH(path)                                                                                       \
        {                                                                                                              \
            name(path);                                                                                                \
            runs = true;                                                                                               \
        }                                                                                                              \
        if (!runs) vt_test_skip("no C++ compiler was found, nor a GPU");                                               \
    }                                                                                                                  \
    static void name(vt_cpu_isa path)

static void close_backends(backends *b)
{
    EXPECT_OK(b->cuda->check(b->cuda));
    vt_backend_close(&b->plain);
    vt_backend_close(&b->cuda);
}

/* The same numbers in 16 bits and as float32, rows at 16-byte boundaries where `aligned`, guards behind each row. */
enum { GUARD = 0x4242 };

typedef struct {
    vt_matrix half, wide;
    uint16_t *memory;
    int64_t size;
} both;

static both open_both(vt_type type, int64_t rows, int64_t columns, uint64_t seed, bool aligned)
{
    int64_t stride = aligned ? (columns + 15) / 8 * 8 : columns + 3;
    both m = {.size = rows * stride + 16};
    m.memory = vt_test_owned(aligned_alloc(64, (size_t)(m.size * 2 + 63) / 64 * 64));
    m.wide = vt_matrix_make(vt_test_owned(malloc((size_t)(rows * columns) * sizeof(float))), rows, columns);
    m.half = (vt_matrix){.half = m.memory + (aligned ? 8 : 7), .rows = rows, .columns = columns, .stride = stride};
    m.half.type = type;
    for (int64_t i = 0; i < m.size; i++) m.memory[i] = GUARD;
    fill_random(m.wide.data, rows * columns, seed, 1);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            uint16_t half = vt_half_round(type, m.wide.data[r * columns + c]);
            m.half.half[r * stride + c] = half;
            m.wide.data[r * columns + c] = vt_half_widen(type, half);
        }
    }
    return m;
}

/* The results may differ by at most this many half_unit of the largest element (-1: not compared); nothing else was
 * written. */
static void compare(both *m, double units, const char *name)
{
    double largest = 0, worst = 0;
    int64_t first = m->half.half - m->memory;
    for (int64_t i = 0; i < m->size; i++) {
        int64_t r = (i - first) / m->half.stride, c = (i - first) % m->half.stride;
        if (i >= first && r < m->half.rows && c < m->half.columns) {
            double expected = (double)m->wide.data[r * m->wide.stride + c];
            largest = fmax(largest, fabs(expected));
            double error = fabs((double)vt_half_widen(m->half.type, m->memory[i]) - expected);
            worst = error <= worst ? worst : error; /* a NaN counts as worst */
        } else {
            EXPECT(m->memory[i] == GUARD, "%s: wrote outside, at row %lld, column %lld", name, (long long)r,
                   (long long)c);
        }
    }
    EXPECT(units < 0 || worst <= units * half_unit(m->half.type) * largest, "%s in %s: off by %g of %g", name,
           half_name(m->half.type), worst, largest);
}

/* Weights, their gradients and the sums' operands are rounded once more than on the CPU: each of √n random terms of a
 * sum by about half a half_unit, and so is the result; four times that is allowed. */
static void check_attention(const backends *b, vt_type type, const vt_attention_shape *s, bool aligned)
{
    int64_t width = s->heads * s->head_dim, queries = s->batch * s->queries, keys = s->batch * s->keys;
    both q = open_both(type, queries, width, 1, aligned), k = open_both(type, keys, width, 2, aligned);
    both v = open_both(type, keys, width, 3, aligned), dout = open_both(type, queries, width, 4, aligned);
    both out = open_both(type, queries, width, 5, aligned), dq = open_both(type, queries, width, 6, aligned);
    both dk = open_both(type, keys, width, 7, aligned), dv = open_both(type, keys, width, 8, aligned);
    int64_t rows = s->batch * s->heads * s->queries;
    float *log_sum = vt_test_owned(malloc(2 * (size_t)rows * sizeof *log_sum));
    b->plain->attention_forward(b->plain, s, q.wide, k.wide, v.wide, out.wide, log_sum);
    b->cuda->attention_forward(b->cuda, s, q.half, k.half, v.half, out.half, log_sum + rows);
    for (int64_t i = 0; i < rows; i++) EXPECT_NEAR(log_sum[rows + i], log_sum[i], 1e-5 * (1 + fabs(log_sum[i])));
    b->plain->attention_backward(b->plain, s, q.wide, k.wide, v.wide, out.wide, log_sum, dout.wide, dq.wide, dk.wide,
                                 dv.wide);
    b->cuda->attention_backward(b->cuda, s, q.half, k.half, v.half, out.half, log_sum, dout.half, dq.half, dk.half,
                                dv.half);
    char name[96];
    snprintf(name, sizeof name, "%lld queries, %lld keys, head size %lld", (long long)s->queries, (long long)s->keys,
             (long long)s->head_dim);
    compare(&out, 2, name);
    if (s->keys > 1) {
        compare(&dq, 4, name);
        compare(&dk, 4, name);
    } else { /* rounding noise */
        compare(&dq, -1, name);
        compare(&dk, -1, name);
    }
    compare(&dv, 4, name);
    both *const inputs[] = {&q, &k, &v, &dout};
    for (int i = 0; i < 4; i++) compare(inputs[i], 0, name);
}

static void check_attention_shapes(const backends *b, vt_type type)
{
    static const int64_t lengths[] = {1, 7, 64, 65, 97};
    for (int64_t dim = 16; dim <= 128; dim += 8) {
        vt_attention_shape shape = {.batch = 1, .heads = 2, .head_dim = dim, .queries = 37, .keys = 70};
        check_attention(b, type, &shape, true);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        vt_attention_shape shape = {
            .batch = 2, .heads = 1, .head_dim = 48, .queries = lengths[i], .keys = lengths[4 - i]};
        check_attention(b, type, &shape, true);
        shape.head_dim = 5;
        check_attention(b, type, &shape, false);
    }
    vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 16, .queries = 61, .keys = 103};
    shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
    shape.first_head = 1, shape.first_query = 3, shape.first_key = 5;
    check_attention(b, type, &shape, true);
}

CUDA_TEST(attention_in_16_bits)
{
    backends b = open_backends(path);
    FOR_EACH_HALF(type) check_attention_shapes(&b, type);
    close_backends(&b);
}

CUDA_TEST(attention_in_tf32)
{
    backends b = open_backends(path);
    vt_attention_shape shape = {.batch = 2, .heads = 2, .head_dim = 40, .queries = 9, .keys = 21};
    const double tolerance = 8 * 0x1p-11; /* TF32 keeps 10 bits: 2^-11 for each operand */
    common_of(&b, path)->exact_float32 = false;
    shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
    int64_t width = shape.heads * shape.head_dim, queries = 2 * shape.queries, keys = 2 * shape.keys;
    guarded q = guarded_random(queries, width, 1, 1), k = guarded_random(keys, width, 2, 1);
    guarded v = guarded_random(keys, width, 3, 1), dout = guarded_random(queries, width, 4, 1);
    guarded out[2], dq[2], dk[2], dv[2], log_sum[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *backend = i == 0 ? b.plain : b.cuda;
        out[i] = guarded_open(queries, width), dq[i] = guarded_open(queries, width);
        dk[i] = guarded_open(keys, width), dv[i] = guarded_open(keys, width);
        log_sum[i] = guarded_open(1, queries * shape.heads);
        backend->attention_forward(backend, &shape, q.matrix, k.matrix, v.matrix, out[i].matrix,
                                   log_sum[i].matrix.data);
        backend->attention_backward(backend, &shape, q.matrix, k.matrix, v.matrix, out[0].matrix,
                                    log_sum[0].matrix.data, dout.matrix, dq[i].matrix, dk[i].matrix, dv[i].matrix);
    }
    guarded_compare(&out[1], &out[0], tolerance, "out");
    guarded_compare(&log_sum[1], &log_sum[0], tolerance, "log_sum");
    guarded_compare(&dq[1], &dq[0], tolerance, "dq");
    guarded_compare(&dk[1], &dk[0], tolerance, "dk");
    guarded_compare(&dv[1], &dv[0], tolerance, "dv");
    vt_backend_close(&b.plain);
    vt_backend_close(&b.cuda);
}

/* Elementwise operations in 16 bits equal float32's, rounded; the sums of one row may differ in their last bits. */
static void check_elementwise(const backends *b, vt_type type, int64_t columns, bool aligned)
{
    enum { ROWS = 26 };
    vt_mask mask = {.elements = {.rate = 0.3f, .seed = 4, .step = &dropout_step},
                    .path = {.rate = 0.2f, .seed = 4, .step = &dropout_step, .site = 4},
                    .tokens = 13};
    both x = open_both(type, ROWS, columns, 1, aligned), dy = open_both(type, ROWS, columns, 2, aligned);
    both y = open_both(type, ROWS, columns, 3, aligned), dx = open_both(type, ROWS, columns, 4, aligned);
    float *vectors = vt_test_owned(malloc((size_t)(8 * columns) * sizeof *vectors)), mean[ROWS], rstd[ROWS];
    fill_random(vectors, 8 * columns, 5, 1);
    vt_backend *const all[2] = {b->plain, b->cuda};
    for (int i = 0; i < 2; i++) {
        vt_backend *p = all[i];
        p->gelu_backward(p, VT_GELU_ERF, i == 0 ? x.wide : x.half, i == 0 ? dy.wide : dy.half,
                         i == 0 ? dx.wide : dx.half, i == 0 ? y.wide : y.half);
    }
    compare(&y, 1, "gelu");
    compare(&dx, 1, "gelu dx");
    y = open_both(type, ROWS, columns, 3, aligned);
    dx = open_both(type, ROWS, columns, 4, aligned);
    for (int i = 0; i < 2; i++) {
        all[i]->mask_multiply(all[i], i == 0 ? x.wide : x.half, &mask, i == 0 ? y.wide : y.half);
        all[i]->layer_norm_forward(all[i], x.wide, vectors, vectors + columns, 1e-6f, i == 0 ? dx.wide : dx.half, mean,
                                   rstd);
    }
    compare(&y, 1, "mask_multiply");
    compare(&dx, 1, "layer_norm");
    both back = open_both(type, ROWS, columns, 6, aligned);
    b->cuda->convert(b->cuda, x.wide, back.half);
    memcpy(back.wide.data, x.wide.data, (size_t)(ROWS * columns) * sizeof(float));
    compare(&back, 0, "convert");

    /* residual_layer_norm over a 16-bit branch that becomes the normed rows; sums of columns of 16 bits */
    both branch = open_both(type, ROWS, columns, 7, aligned);
    float *sums = vt_test_owned(malloc((size_t)(2 * ROWS * columns) * sizeof *sums));
    for (int i = 0; i < 2; i++) {
        vt_matrix sum = vt_matrix_make(sums + i * ROWS * columns, ROWS, columns);
        vt_matrix m = i == 0 ? branch.wide : branch.half;
        all[i]->residual_layer_norm(all[i], x.wide, m, &mask, vectors, vectors + columns, 1e-6f, sum, m, mean, rstd);
        vt_matrix row = vt_matrix_make(vectors + (2 + i) * columns, 1, columns);
        memcpy(row.data, vectors, (size_t)columns * sizeof(float));
        all[i]->position_backward(all[i], i == 0 ? dy.wide : dy.half, row);
    }
    for (int64_t i = 0; i < ROWS * columns; i++) EXPECT_NEAR(sums[ROWS * columns + i], sums[i], 1e-6);
    for (int64_t i = 0; i < columns; i++) EXPECT_NEAR(vectors[3 * columns + i], vectors[2 * columns + i], 1e-5);
    compare(&branch, 1, "residual_layer_norm");
    compare(&x, 0, "x");
    compare(&dy, 0, "dy");
}

CUDA_TEST(elementwise_operations_in_16_bits)
{
    static const int64_t columns[] = {7, 48, 97, 384, 1013, 2500};
    backends b = open_backends(path);
    FOR_EACH_HALF(type)
    {
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            check_elementwise(&b, type, columns[i], true);
            check_elementwise(&b, type, columns[i], false);
        }
    }
    close_backends(&b);
}

/* Rows too long for registers, forward and backward; a bias's gradient over many rows. */
CUDA_TEST(long_rows_and_many_rows)
{
    enum { ROWS = 21, COLUMNS = 2504, TALL = 1013, NARROW = 40 };
    backends b = open_backends(path);
    guarded x = guarded_random(ROWS, COLUMNS, 1, 1), dy = guarded_random(ROWS, COLUMNS, 2, 1);
    guarded weight = guarded_random(1, COLUMNS, 3, 1), y[2], dx[2], mean[2], rstd[2], dweight[2], dbias[2], sums[2];
    guarded tall = guarded_random(TALL, NARROW, 4, 1);
    for (int i = 0; i < 2; i++) {
        vt_backend *p = i == 0 ? b.plain : b.cuda;
        y[i] = guarded_open(ROWS, COLUMNS), mean[i] = guarded_open(1, ROWS), rstd[i] = guarded_open(1, ROWS);
        dx[i] = guarded_random(ROWS, COLUMNS, 5, 1), sums[i] = guarded_random(1, NARROW, 6, 1);
        dweight[i] = guarded_random(1, COLUMNS, 7, 1), dbias[i] = guarded_random(1, COLUMNS, 8, 1);
        p->layer_norm_forward(p, x.matrix, weight.matrix.data, weight.matrix.data, 1e-6f, y[i].matrix,
                              mean[i].matrix.data, rstd[i].matrix.data);
        p->layer_norm_backward(p, x.matrix, weight.matrix.data, mean[0].matrix.data, rstd[0].matrix.data, dy.matrix,
                               dx[i].matrix, dweight[i].matrix.data, dbias[i].matrix.data);
        p->position_backward(p, tall.matrix, sums[i].matrix);
    }
    guarded_compare(&y[1], &y[0], 1e-6, "y");
    guarded_compare(&dx[1], &dx[0], 1e-6, "dx");
    guarded_compare(&dweight[1], &dweight[0], 1e-6, "dweight");
    guarded_compare(&dbias[1], &dbias[0], 1e-6, "dbias");
    guarded_compare(&sums[1], &sums[0], 4 * sqrt(TALL) * 0x1p-24, "a bias's gradient");
    close_backends(&b);
}

/* float32 at 16-byte boundaries, for which LayerNorm has special kernels: forward, over a residual and backward. */
static void check_aligned_norms(const backends *b, int64_t rows, int64_t columns)
{
    enum { X, BRANCH, SUM, NORMED, DX, MATRICES };
    vt_mask mask = {.path = {.rate = 0.2f, .seed = 4, .step = &dropout_step, .site = 4}, .tokens = rows};
    int64_t size = (rows * columns + 15) / 16 * 16, width = (columns + 15) / 16 * 16, tall = (rows + 15) / 16 * 16;
    int64_t all = MATRICES * size + 3 * width + 2 * tall;
    float *memory[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *p = i == 0 ? b->plain : b->cuda;
        float *m = memory[i] = vt_test_owned(aligned_alloc(64, (size_t)all * sizeof *m)), *weight = m + MATRICES * size;
        float *mean = weight + 3 * width, *rstd = mean + tall;
        VT_ASSERT(m != NULL);
        fill_random(m, all, 6, 1);
        vt_matrix matrix[MATRICES];
        for (int k = 0; k < MATRICES; k++) matrix[k] = vt_matrix_make(m + k * size, rows, columns);
        p->residual_layer_norm(p, matrix[X], matrix[BRANCH], &mask, weight, weight + width, 1e-6f, matrix[SUM],
                               matrix[NORMED], mean, rstd);
        p->layer_norm_backward(p, matrix[SUM], weight, mean, rstd, matrix[NORMED], matrix[DX], weight + width,
                               weight + 2 * width);
        p->layer_norm_forward(p, matrix[SUM], weight, weight, 1e-6f, matrix[X], mean, rstd);
    }
    /* sums of `rows` terms, and of `columns`, in another order */
    double tolerance = 64 * sqrt((double)(rows > columns ? rows : columns)) * 0x1p-24;
    for (int64_t i = 0; i < all; i++)
        EXPECT(fabs((double)memory[1][i] - (double)memory[0][i]) <= tolerance * fmax(1, fabs((double)memory[0][i])),
               "%lld x %lld, place %lld: %g instead of %g", (long long)rows, (long long)columns, (long long)i,
               (double)memory[1][i], (double)memory[0][i]);
}

CUDA_TEST(aligned_norms_in_float32)
{
    backends b = open_backends(path);
    check_aligned_norms(&b, 29, 8);
    check_aligned_norms(&b, 29, 200);
    check_aligned_norms(&b, 61, 384);
    check_aligned_norms(&b, 61, 1024);
    check_aligned_norms(&b, 13, 1200);
    check_aligned_norms(&b, 3500, 16); /* more rows than warps */
    close_backends(&b);
}

/* dx and y equal gelu_backward's to the bit; the sums are those of dx as it is stored, in another order; in place,
 * unaligned, with more rows than blocks, and added to what was there. */
static void check_gelu_bias(const backends *b, vt_type type, int64_t rows, int64_t columns, bool aligned)
{
    both x = open_both(type, rows, columns, 1, aligned), dy = open_both(type, rows, columns, 2, aligned);
    both own = open_both(type, rows, columns, 2, aligned), dx = open_both(type, rows, columns, 3, aligned);
    both y = open_both(type, rows, columns, 4, aligned), again = open_both(type, rows, columns, 5, aligned);
    guarded sums[2];
    for (int i = 0; i < 2; i++) sums[i] = guarded_random(1, columns, 6, 1);
    b->cuda->gelu_backward(b->cuda, VT_GELU_ERF, x.half, dy.half, dx.half, y.half);
    b->cuda->convert(b->cuda, dx.half, dx.wide);
    b->cuda->convert(b->cuda, y.half, y.wide);
    b->plain->position_backward(b->plain, dx.wide, sums[0].matrix);
    b->cuda->gelu_backward_bias(b->cuda, VT_GELU_ERF, x.half, own.half, own.half, again.half, sums[1].matrix.data);
    memcpy(own.wide.data, dx.wide.data, (size_t)(rows * columns) * sizeof(float));
    memcpy(again.wide.data, y.wide.data, (size_t)(rows * columns) * sizeof(float));
    guarded_compare(&sums[1], &sums[0], 4 * sqrt((double)rows) * 0x1p-24, "gelu_backward_bias, sums");
    guarded third = guarded_random(1, columns, 6, 1);
    b->cuda->gelu_backward_bias(b->cuda, VT_GELU_ERF, x.half, dy.half, dx.half, (vt_matrix){0}, third.matrix.data);
    guarded_compare(&third, &sums[1], 0, "gelu_backward_bias once more");
    compare(&own, 0, "gelu_backward_bias, dx");
    compare(&again, 0, "gelu_backward_bias, y");
    compare(&dx, 0, "gelu_backward_bias without y, dx");
    compare(&y, 0, "y");
    compare(&x, 0, "x");
    compare(&dy, 0, "dy");
}

static void check_gelu_bias_in_float32(const backends *b, int64_t rows, int64_t columns)
{
    guarded x = guarded_random(rows, columns, 1, 1), dy = guarded_random(rows, columns, 2, 1), dx[2], y[2], sums[2];
    for (int i = 0; i < 2; i++) {
        dx[i] = guarded_open(rows, columns), y[i] = guarded_open(rows, columns);
        sums[i] = guarded_random(1, columns, 3, 1);
    }
    b->cuda->gelu_backward(b->cuda, VT_GELU_TANH, x.matrix, dy.matrix, dx[0].matrix, y[0].matrix);
    b->plain->position_backward(b->plain, dx[0].matrix, sums[0].matrix);
    b->cuda->gelu_backward_bias(b->cuda, VT_GELU_TANH, x.matrix, dy.matrix, dx[1].matrix, y[1].matrix,
                                sums[1].matrix.data);
    guarded_compare(&dx[1], &dx[0], 0, "gelu_backward_bias in float32, dx");
    guarded_compare(&y[1], &y[0], 0, "gelu_backward_bias in float32, y");
    guarded_compare(&sums[1], &sums[0], 4 * sqrt((double)rows) * 0x1p-24, "gelu_backward_bias in float32, sums");
}

CUDA_TEST(gelu_and_the_biases_gradient)
{
    static const int64_t columns[] = {7, 48, 264, 1013}, rows[] = {1, 13, 97, 40, 4200};
    backends b = open_backends(path);
    FOR_EACH_HALF(type)
    {
        for (int i = 0; i < 4; i++) {
            check_gelu_bias(&b, type, rows[i], columns[i], true);
            check_gelu_bias(&b, type, rows[i], columns[i], false);
        }
    }
    check_gelu_bias(&b, VT_BFLOAT16, rows[4], 16, true);
    for (int i = 0; i < 4; i++) check_gelu_bias_in_float32(&b, rows[3 - i], columns[i]);
    close_backends(&b);
}

/* Patches of eight points are moved with 16-byte accesses. */
CUDA_TEST(patches_of_eight_points)
{
    enum { CHANNELS = 3, HEIGHT = 16, WIDTH = 24, TOKENS = 2 * 3, COLUMNS = CHANNELS * 64, SIZE = CHANNELS * 16 * 24 };
    static const float mean[CHANNELS] = {1, -2, 300}, inverse_std[CHANNELS] = {0.5f, 4, 0.125f};
    backends b = open_backends(path);
    float *memory = vt_test_owned(aligned_alloc(64, (size_t)(2 * SIZE + TOKENS * COLUMNS * 3) * sizeof *memory));
    float *fields = memory, *back = memory + SIZE, *patches = back + SIZE;
    fill_random(fields, SIZE, 1, 1);
    for (int kind = 0; kind < 4; kind++) {
        int order = kind % 2 == 0 ? VT_PATCH_CHANNEL_FIRST : VT_PATCH_CHANNEL_LAST;
        vt_patch_grid grid = {1,      CHANNELS,        CHANNELS,          HEIGHT, WIDTH, 8, (vt_patch_order)order, 0,
                              TOKENS, VT_MISSING_MEAN, VT_BEYOND_LEFT_OUT};
        vt_matrix expected = vt_matrix_make(patches, TOKENS, COLUMNS);
        vt_matrix actual = vt_matrix_make(patches + TOKENS * COLUMNS, TOKENS, COLUMNS), half = expected;
        half.half = (uint16_t *)(patches + 2 * TOKENS * COLUMNS);
        half.type = kind < 2 ? VT_BFLOAT16 : VT_FLOAT16;
        b.plain->patches_load(b.plain, &grid, fields, mean, inverse_std, expected);
        b.cuda->patches_load(b.cuda, &grid, fields, mean, inverse_std, actual);
        b.cuda->patches_load(b.cuda, &grid, fields, mean, inverse_std, half);
        for (int i = 0; i < TOKENS * COLUMNS; i++) {
            EXPECT(expected.data[i] == actual.data[i], "order %d, element %d", order, i);
            EXPECT(vt_half_round(half.type, expected.data[i]) == half.half[i], "order %d, element %d", order, i);
        }
        b.cuda->patches_store(b.cuda, &grid, actual, mean, inverse_std, back);
        for (int i = 0; i < SIZE; i++) EXPECT_NEAR(back[i], fields[i], 1e-4);
    }
    close_backends(&b);
}

/* Random operands of every type give the loss's and the metric's sums; more channels than a block has threads. */
CUDA_TEST(sums_of_the_loss)
{
    enum { BATCH = 2, CHANNELS = 300, TOKENS = 6, COLUMNS = CHANNELS * 4 };
    backends b = open_backends(path);
    guarded prediction = guarded_random(BATCH * TOKENS, COLUMNS, 1, 1);
    guarded target = guarded_random(BATCH * TOKENS, COLUMNS, 2, 1), gradient[2];
    const float weights[4] = {0.5f, 1, 1.5f, 2};
    vt_patch_grid grid = {BATCH,  CHANNELS,         CHANNELS,          4, 6, 2, VT_PATCH_CHANNEL_LAST, 0,
                          TOKENS, VT_MISSING_STAYS, VT_BEYOND_LEFT_OUT};
    guarded point_weights = guarded_random(TOKENS, COLUMNS, 3, 1);
    double squares[2][2 * BATCH], channels[2][2 * BATCH * CHANNELS], scales[2] = {1, 1};
    float losses[2][BATCH];
    const vt_matrix weight = point_weights.matrix;
    for (int i = 0; i < TOKENS * COLUMNS; i++) {
        float *own = weight.data + i / COLUMNS * weight.stride + i % COLUMNS;
        *own = fabsf(*own);
    }
    for (int i = 0; i < 500; i++) { /* some points are missing */
        float *row = target.matrix.data + i % (BATCH * TOKENS) * target.matrix.stride;
        row[i * 977 % COLUMNS] = VT_NO_POINT;
    }
    for (int i = 0; i < 2; i++) {
        vt_backend *p = i == 0 ? b.plain : b.cuda;
        gradient[i] = guarded_open(BATCH * TOKENS, COLUMNS);
        p->loss_sums(p, VT_MEASURE_SQUARE, BATCH, prediction.matrix, target.matrix, weight, squares[i]);
        p->loss_values(p, VT_MEASURE_SQUARE, BATCH, squares[i], losses[i], NULL);
        p->loss_backward(p, VT_MEASURE_SQUARE, BATCH, prediction.matrix, target.matrix, weight, squares[i], 0.25f, NULL,
                         gradient[i].matrix);
        p->channel_squares(p, &grid, prediction.matrix, target.matrix, weights, channels[i]);
        p->sum_of_squares(p, prediction.memory, prediction.size, 0.5, &scales[i]);
    }
    for (int i = 0; i < 2 * BATCH; i++) EXPECT_NEAR(squares[1][i], squares[0][i], 1e-12 * squares[0][i]);
    for (int i = 0; i < 2 * BATCH * CHANNELS; i++) EXPECT_NEAR(channels[1][i], channels[0][i], 1e-12 * channels[0][i]);
    for (int i = 0; i < BATCH; i++) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-7 * losses[0][i]);
    EXPECT_NEAR(scales[1], scales[0], 1e-12 * scales[0]);
    guarded_compare(&gradient[1], &gradient[0], 1e-6, "gradient of the loss");
    close_backends(&b);
}
