/* Properties of the CUDA kernels that the CPU's paths don't have: 16-bit operands in products, aligned (16-byte)
 * accesses, rows too long for registers, TF32. On the host (cuda/host_cuda.h), and on a GPU if there is one. */
#include "cuda/cuda.h"
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/mirror.h"
#include "operations/paths.h"
#include "planning/practice.h"
#include "settings.h"
#include "test.h"

static const uint32_t dropout_step = 17; /* of dropout */

/* What the kernels' launchers see. */
static vt_cuda_common *common_of(const pair *p, vt_cpu_isa path)
{
    return path == PATH_GPU ? mirror_inner(p->fast)->state : p->fast->state;
}

/* A test on every path that runs these kernels. */
#define CUDA_TEST(name)                                                                                                \
    static void name(const pair *p, vt_cpu_isa path);                                                                  \
    GPU_TEST(name)                                                                                                     \
    {                                                                                                                  \
        bool runs = false;                                                                                             \
        FOR_EACH_CUDA_PATH(path)                                                                                       \
        for (pair p = open_pair(path); p.fast != NULL; close_pair(&p), runs = true) name(&p, path);                    \
        if (!runs) vt_test_skip("no C++ compiler was found, nor a GPU");                                               \
    }                                                                                                                  \
    static void name(const pair *p, __attribute__((unused)) vt_cpu_isa path)

static void check_attention(const pair *p, vt_type type, const vt_attention_shape *s, bool aligned)
{
    twins_attention a = twins_attention_open(type, s, 1, aligned ? TWINS_ALIGNED : TWINS_APART);
    twins_attention_forward(p->plain, &a, true);
    twins_attention_forward(p->fast, &a, false);
    twins_attention_backward(p->plain, &a, true, a.out.wide, &a.log_sum[0]);
    twins_attention_backward(p->fast, &a, false, a.out.own, &a.log_sum[0]);
    twins_attention_compare(&a, true,
                            SETTINGS("%ld queries, %ld keys, head size %ld", s->queries, s->keys, s->head_dim));
}

static void check_attention_shapes(const pair *p, vt_type type)
{
    static const int64_t lengths[] = {1, 7, 64, 65, 97};
    for (int64_t dim = 16; dim <= 128; dim += 8) {
        vt_attention_shape shape = {.batch = 1, .heads = 2, .head_dim = dim, .queries = 37, .keys = 70};
        check_attention(p, type, &shape, true);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        vt_attention_shape shape = {
            .batch = 2, .heads = 1, .head_dim = 48, .queries = lengths[i], .keys = lengths[4 - i]};
        check_attention(p, type, &shape, true);
        shape.head_dim = 5;
        check_attention(p, type, &shape, false);
    }
    vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 16, .queries = 61, .keys = 103};
    shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
    shape.first_head = 1, shape.first_query = 3, shape.first_key = 5;
    check_attention(p, type, &shape, true);
    shape.causal = shape.unscaled = true; /* the first two queries see no key */
    check_attention(p, type, &shape, true);
    shape = (vt_attention_shape){
        .batch = 1, .heads = 2, .head_dim = 32, .queries = 201, .keys = 150, .first_key = 90, .causal = true};
    check_attention(p, type, &shape, true);
}

CUDA_TEST(attention_in_16_bits)
{
    FOR_EACH_HALF(type) check_attention_shapes(p, type);
}

CUDA_TEST(attention_in_tf32)
{
    vt_attention_shape shape = {.batch = 2, .heads = 2, .head_dim = 40, .queries = 9, .keys = 21};
    const double most = 8 * 0x1p-11; /* TF32 keeps 10 bits: 2^-11 for each operand */
    common_of(p, path)->exact_float32 = false;
    shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
    guarded_attention a[2];
    for (int i = 0; i < 2; i++) {
        a[i] = guarded_attention_open(&shape, 1);
        guarded_attention_forward(i == 0 ? p->plain : p->fast, &a[i]);
        guarded_attention_backward(i == 0 ? p->plain : p->fast, &a[i], &a[0]);
    }
    guarded_attention_compare(&a[1], &a[0], (const double[]){most, most, most, most, most});
}

static vt_backend untimed;
static int forwards[2]; /* runs without dropout, and with it */

static void counted_forward(vt_backend *b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                            vt_matrix out, float *log_sum)
{
    EXPECT(shape->dropout.rate <= 0 || shape->drawn != NULL);
    forwards[shape->dropout.rate > 0]++;
    untimed.attention_forward(b, shape, q, k, v, out, log_sum);
}

static const char *only_engine(vt_backend *b, int number)
{
    (void)b;
    return number == 0 ? "own" : NULL;
}

static const char *engine_that_ran(vt_backend *b)
{
    return only_engine(b, 0);
}

CUDA_TEST(attention_is_timed_without_dropout_and_with_it)
{
    vt_backend *b = path == PATH_GPU ? mirror_inner(p->fast) : p->fast;
    const vt_attention_shape shape = {.batch = 1, .heads = 2, .head_dim = 48, .queries = 70, .keys = 70};
    const bool has_one = b->prefer_attention == NULL;
    if (has_one) b->prefer_attention = only_engine, b->attention_ran = engine_that_ran;
    untimed = *b;
    b->attention_forward = counted_forward;
    forwards[0] = forwards[1] = 0;
    EXPECT_OK(vt_attention_times_print(b, &shape, 2));
    b->attention_forward = untimed.attention_forward;
    EXPECT(forwards[0] >= 3 && forwards[1] >= 3 && (!has_one || forwards[0] + forwards[1] == 6), "%d and %d",
           forwards[0], forwards[1]);
}

/* Elementwise operations in 16 bits equal float32's, rounded; the sums of one row may differ in their last bits. */
static void check_elementwise(const pair *p, vt_type type, int64_t columns, twins_place place)
{
    enum { ROWS = 26 };
    vt_mask mask = {.elements = {.rate = 0.3f, .seed = 4, .step = &dropout_step},
                    .path = {.rate = 0.2f, .seed = 4, .step = &dropout_step, .site = 4},
                    .tokens = 13};
    twins x = twins_random(type, ROWS, columns, 1, 1, place), dy = twins_random(type, ROWS, columns, 2, 1, place);
    twins y = twins_open(type, ROWS, columns, place), dx = twins_open(type, ROWS, columns, place);
    twins masked = twins_open(type, ROWS, columns, place), normed = twins_open(type, ROWS, columns, place);
    twins branch = twins_random(type, ROWS, columns, 7, 1, place); /* becomes the normed rows of residual_layer_norm */
    guarded weights = guarded_random(1, columns, 5, 1), bias = guarded_random(1, columns, 6, 1), sum[2], position[2];
    guarded stream[2], sums[2];
    twins rounded = twins_open(type, ROWS, columns, place); /* the gradient of the stream once more */
    const vt_mask none = {.tokens = 1};
    const float *weight = weights.matrix.data;
    float mean[ROWS], rstd[ROWS];
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        const bool wide = i == 0;
        sum[i] = guarded_open(ROWS, columns);
        position[i] = guarded_random(1, columns, 8, 1);
        b->gelu_backward(b, VT_GELU_ERF, wide ? x.wide : x.own, wide ? dy.wide : dy.own, wide ? dx.wide : dx.own,
                         wide ? y.wide : y.own);
        b->mask_multiply(b, wide ? x.wide : x.own, &mask, wide ? masked.wide : masked.own);
        b->layer_norm_forward(b, x.wide, weight, bias.matrix.data, 1e-6f, wide ? normed.wide : normed.own, mean, rstd);
        if (wide) { /* the masked branch is rounded before it is added */
            b->mask_multiply(b, branch.wide, &mask, branch.wide);
            b->convert(b, branch.wide, rounded.own);
            b->convert(b, rounded.own, branch.wide);
        }
        b->residual_layer_norm(b, x.wide, wide ? branch.wide : branch.own, wide ? &none : &mask, weight,
                               bias.matrix.data, 1e-6f, sum[i].matrix, wide ? branch.wide : branch.own, mean, rstd);
        stream[i] = guarded_random(ROWS, columns, 9, 1);
        sums[i] = guarded_random(2, columns, 10, 1);
        b->layer_norm_backward(b, sum[0].matrix, weight, mean, rstd, wide ? dy.wide : dy.own, stream[i].matrix,
                               rounded.own, sums[i].matrix.data, sums[i].matrix.data + sums[i].matrix.stride);
        b->position_backward(b, wide ? dy.wide : dy.own, position[i].matrix);
    }
    guarded_compare(&sum[1], &sum[0], 1e-6, "residual_layer_norm, the sum");
    guarded_compare(&position[1], &position[0], 1e-5, "position_backward");
    guarded_compare(&stream[1], &stream[0], 1e-5, "layer_norm_backward");
    guarded_compare(&sums[1], &sums[0], 1e-5, "layer_norm_backward's sums");
    rounded.wide = stream[1].matrix;
    twins_compare(&rounded, 0, "layer_norm_backward, dx in 16 bits");
    twins_compare(&y, 1, "gelu");
    twins_compare(&dx, 1, "gelu dx");
    twins_compare(&masked, 1, "mask_multiply");
    twins_compare(&normed, 1, "layer_norm");
    twins_compare(&branch, 1, "residual_layer_norm");
    twins_compare(&x, 0, "x");
    twins_compare(&dy, 0, "dy");
    twins back = twins_open(type, ROWS, columns, place);
    p->fast->convert(p->fast, x.wide, back.own);
    back.wide = x.wide;
    twins_compare(&back, 0, "convert");
}

CUDA_TEST(elementwise_operations_in_16_bits)
{
    static const int64_t columns[] = {7, 48, 97, 384, 1013, 2500};
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        check_elementwise(p, type, columns[i], TWINS_ALIGNED);
        check_elementwise(p, type, columns[i], TWINS_APART);
    }
}

/* A float32 stream at 16-byte boundaries, for which LayerNorm has special kernels: forward, over a residual and
 * backward, with a branch and gradients of this type beside it; what is rounded takes the place of dy. */
static void check_aligned_norms(const pair *both, vt_type type, int64_t rows, int64_t columns)
{
    enum { X, BRANCH, SUM, NORMED, DX, ROUNDED, MATRICES };
    vt_mask mask = {.path = {.rate = 0.2f, .seed = 4, .step = &dropout_step, .site = 4}, .tokens = rows};
    int64_t size = (rows * columns + 15) / 16 * 16, width = (columns + 15) / 16 * 16, tall = (rows + 15) / 16 * 16;
    int64_t all = MATRICES * size + 3 * width + 2 * tall;
    float *memory[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *p = i == 0 ? both->plain : both->fast;
        float *m = memory[i] = vt_test_owned(aligned_alloc(64, (size_t)all * sizeof *m)), *weight = m + MATRICES * size;
        float *mean = weight + 3 * width, *rstd = mean + tall;
        VT_ASSERT(m != NULL);
        fill_random(m, all, 6, 1);
        vt_matrix matrix[MATRICES];
        for (int k = 0; k < MATRICES; k++) matrix[k] = vt_matrix_make(m + k * size, rows, columns);
        vt_matrix branch = matrix[BRANCH], rounded = matrix[ROUNDED];
        branch.type = rounded.type = type; /* in the first half of their memory */
        if (type != VT_FLOAT32) p->convert(p, matrix[X], branch);
        p->residual_layer_norm(p, matrix[X], branch, &mask, weight, weight + width, 1e-6f, matrix[SUM], matrix[NORMED],
                               mean, rstd);
        if (type != VT_FLOAT32) p->convert(p, matrix[X], branch);
        const vt_matrix none = {0};
        p->layer_norm_backward(p, matrix[SUM], weight, mean, rstd, type == VT_FLOAT32 ? matrix[NORMED] : branch,
                               matrix[DX], type == VT_FLOAT32 ? none : branch, weight + width, weight + 2 * width);
        if (type != VT_FLOAT32) { /* compared as numbers: the stream's gradient to the bit, which is what was rounded */
            p->convert(p, matrix[DX], rounded);
            EXPECT(memcmp(branch.half, rounded.half, (size_t)(rows * columns) * sizeof(uint16_t)) == 0,
                   "%ld x %ld in %s: what is rounded is not dx", rows, columns, half_name(type));
            memset(branch.half, 0, (size_t)size * sizeof(float));
            memset(rounded.half, 0, (size_t)size * sizeof(float));
        }
        p->layer_norm_forward(p, matrix[SUM], weight, weight, 1e-6f, matrix[X], mean, rstd);
    }
    /* sums of `rows` terms, and of `columns`, in another order */
    double tolerance = 64 * sqrt((double)(rows > columns ? rows : columns)) * 0x1p-24;
    for (int64_t i = 0; i < all; i++)
        EXPECT(fabs((double)memory[1][i] - (double)memory[0][i]) <= tolerance * fmax(1, fabs((double)memory[0][i])),
               "%ld x %ld, place %ld: %g instead of %g", rows, columns, i, (double)memory[1][i], (double)memory[0][i]);
}

CUDA_TEST(aligned_norms_of_a_stream)
{
    static const int64_t sizes[][2] = {{29, 8}, {29, 200}, {61, 384}, {61, 1024}, {13, 1200}, {3500, 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) /* the last: more rows than warps */
        for (int type = VT_FLOAT32; type <= VT_FLOAT16; type++)
            check_aligned_norms(p, (vt_type)type, sizes[i][0], sizes[i][1]);
}

/* dx and y equal gelu_backward's to the bit; the sums are those of dx as it is stored, in another order; in place,
 * unaligned, with more rows than blocks, and added to what was there. */
static void check_gelu_bias(const pair *p, vt_type type, int64_t rows, int64_t columns, twins_place place)
{
    vt_backend *b = p->fast;
    twins x = twins_random(type, rows, columns, 1, 1, place), dy = twins_random(type, rows, columns, 2, 1, place);
    twins own = twins_random(type, rows, columns, 2, 1, place), dx = twins_open(type, rows, columns, place);
    twins y = twins_open(type, rows, columns, place), again = twins_open(type, rows, columns, place);
    guarded sums[3];
    for (int i = 0; i < 3; i++) sums[i] = guarded_random(1, columns, 6, 1);
    b->gelu_backward(b, VT_GELU_ERF, x.own, dy.own, dx.own, y.own);
    b->convert(b, dx.own, dx.wide);
    b->convert(b, y.own, y.wide);
    p->plain->position_backward(p->plain, dx.wide, sums[0].matrix);
    b->gelu_backward_bias(b, VT_GELU_ERF, x.own, own.own, own.own, again.own, sums[1].matrix.data);
    own.wide = dx.wide;
    again.wide = y.wide;
    guarded_compare(&sums[1], &sums[0], 4 * sqrt((double)rows) * 0x1p-24, "gelu_backward_bias, sums");
    b->gelu_backward_bias(b, VT_GELU_ERF, x.own, dy.own, dx.own, (vt_matrix){0}, sums[2].matrix.data);
    guarded_compare(&sums[2], &sums[1], 0, "gelu_backward_bias once more");
    twins_compare(&own, 0, "gelu_backward_bias, dx");
    twins_compare(&again, 0, "gelu_backward_bias, y");
    twins_compare(&dx, 0, "gelu_backward_bias without y, dx");
    twins_compare(&y, 0, "y");
    twins_compare(&x, 0, "x");
    twins_compare(&dy, 0, "dy");
}

static void check_gelu_bias_in_float32(const pair *p, int64_t rows, int64_t columns)
{
    guarded x = guarded_random(rows, columns, 1, 1), dy = guarded_random(rows, columns, 2, 1), dx[2], y[2], sums[2];
    for (int i = 0; i < 2; i++) {
        dx[i] = guarded_open(rows, columns), y[i] = guarded_open(rows, columns);
        sums[i] = guarded_random(1, columns, 3, 1);
    }
    p->fast->gelu_backward(p->fast, VT_GELU_TANH, x.matrix, dy.matrix, dx[0].matrix, y[0].matrix);
    p->plain->position_backward(p->plain, dx[0].matrix, sums[0].matrix);
    p->fast->gelu_backward_bias(p->fast, VT_GELU_TANH, x.matrix, dy.matrix, dx[1].matrix, y[1].matrix,
                                sums[1].matrix.data);
    guarded_compare(&dx[1], &dx[0], 0, "gelu_backward_bias in float32, dx");
    guarded_compare(&y[1], &y[0], 0, "gelu_backward_bias in float32, y");
    guarded_compare(&sums[1], &sums[0], 4 * sqrt((double)rows) * 0x1p-24, "gelu_backward_bias in float32, sums");
}

CUDA_TEST(gelu_and_the_biases_gradient)
{
    static const int64_t columns[] = {7, 48, 264, 1013}, rows[] = {1, 13, 97, 40, 4200};
    FOR_EACH_HALF(type)
    for (int i = 0; i < 4; i++) {
        check_gelu_bias(p, type, rows[i], columns[i], TWINS_ALIGNED);
        check_gelu_bias(p, type, rows[i], columns[i], TWINS_APART);
    }
    check_gelu_bias(p, VT_BFLOAT16, rows[4], 16, TWINS_ALIGNED);
    for (int i = 0; i < 4; i++) check_gelu_bias_in_float32(p, rows[3 - i], columns[i]);
}

/* More channels than a block has threads. */
CUDA_TEST(squares_of_many_channels)
{
    enum { BATCH = 2, CHANNELS = 300, TOKENS = 6, COLUMNS = CHANNELS * 4 };
    static double squares[2][2 * BATCH * CHANNELS];
    const float weights[4] = {0.5f, 1, 1.5f, 2};
    const vt_patch_grid grid = {BATCH,  CHANNELS,         CHANNELS,          4, 6, 2, VT_PATCH_CHANNEL_LAST, 0,
                                TOKENS, VT_MISSING_STAYS, VT_BEYOND_LEFT_OUT};
    guarded prediction = guarded_random(BATCH * TOKENS, COLUMNS, 1, 1);
    guarded target = guarded_random(BATCH * TOKENS, COLUMNS, 2, 1);
    for (int i = 0; i < 500; i++) /* some points are missing */
        target.matrix.data[i % (BATCH * TOKENS) * target.matrix.stride + i * 977 % COLUMNS] = VT_NO_POINT;
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        b->channel_squares(b, &grid, prediction.matrix, target.matrix, weights, squares[i]);
    }
    for (int i = 0; i < 2 * BATCH * CHANNELS; i++) EXPECT_NEAR(squares[1][i], squares[0][i], 1e-12 * squares[0][i]);
}
