/* Attention with the causal mask and without scale: the gradients of the plain loops are those of finite differences,
 * and every other back end has the plain loops' numbers; of whole windows, and of blocks of keys before, across and
 * behind the queries' places, as ranks have them. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static guarded_attention open_case(const vt_attention_shape *shape)
{
    return guarded_attention_open(shape, shape->unscaled ? 0.3f : 1);
}

static guarded_attention attend(vt_backend *b, const vt_attention_shape *shape)
{
    guarded_attention a = open_case(shape);
    guarded_attention_forward(b, &a);
    guarded_attention_backward(b, &a, &a);
    return a;
}

/* ---- the plain loops ---- */

/* The sum of out · dout. */
static double objective(vt_backend *b, guarded_attention *a)
{
    double sum = 0;
    guarded_attention_forward(b, a);
    for (int64_t r = 0; r < a->out.matrix.rows; r++)
        for (int64_t d = 0; d < a->out.matrix.columns; d++)
            sum += (double)a->out.matrix.data[r * a->out.matrix.stride + d] *
                   (double)a->dout.matrix.data[r * a->dout.matrix.stride + d];
    return sum;
}

static void check_slopes(vt_backend *b, guarded_attention *a, guarded *x, const guarded *gradient)
{
    const float h = 0x1p-7f;
    for (int64_t i = 0; i < x->matrix.rows * x->matrix.columns; i++) {
        const int64_t row = i / x->matrix.columns, column = i % x->matrix.columns;
        float *at = x->matrix.data + row * x->matrix.stride + column, old = *at;
        *at = old + h;
        const double more = objective(b, a);
        *at = old - h;
        const double less = objective(b, a);
        *at = old;
        EXPECT_NEAR(gradient->matrix.data[row * gradient->matrix.stride + column], (more - less) / (2 * (double)h),
                    3e-3);
    }
}

TEST(gradients_of_causal_attention_are_those_of_finite_differences)
{
    SCOPED(vt_backend) *b = open_path(VT_ISA_PLAIN);
    for (int kind = 0; kind < 4; kind++) {
        const vt_attention_shape shape = {.batch = 2,
                                          .heads = 2,
                                          .head_dim = 3,
                                          .queries = 5,
                                          .keys = kind == 2 ? 4 : 5,
                                          .first_query = kind == 2 ? 2 : 0,
                                          .first_key = kind == 3 ? 2 : 0,
                                          .causal = true,
                                          .unscaled = kind == 1};
        guarded_attention a = attend(b, &shape);
        check_slopes(b, &a, &a.q, &a.dq);
        check_slopes(b, &a, &a.k, &a.dk);
        check_slopes(b, &a, &a.v, &a.dv);
    }
}

/* A query sees the keys up to its own place: later ones may be anything. */
TEST(later_keys_are_not_seen)
{
    FOR_EACH_CPU_PATH(isa)
    {
        SCOPED(vt_backend) *b = NULL;
        EXPECT_OK(vt_backend_open_cpu(isa, 0, &b));
        const vt_attention_shape shape = {
            .batch = 1, .heads = 2, .head_dim = 32, .queries = 150, .keys = 150, .causal = true};
        guarded_attention one = open_case(&shape), other = open_case(&shape);
        for (int64_t r = 100; r < 150; r++)
            for (int64_t c = 0; c < 64; c++) {
                other.k.matrix.data[r * other.k.matrix.stride + c] *= -30;
                other.v.matrix.data[r * other.v.matrix.stride + c] *= -30;
            }
        guarded_attention_forward(b, &one);
        guarded_attention_forward(b, &other);
        for (int64_t r = 0; r < 100; r++)
            EXPECT(memcmp(one.out.matrix.data + r * one.out.matrix.stride,
                          other.out.matrix.data + r * other.out.matrix.stride, 64 * sizeof(float)) == 0,
                   "isa %d, row %d", (int)isa, (int)r);
    }
}

/* ---- against them ---- */

static void compare(vt_backend *b, const vt_attention_shape *shape, vt_backend *plain)
{
    const guarded_attention own = attend(b, shape), expected = attend(plain, shape);
    for (int64_t i = 0; i < own.log_sum.matrix.columns; i++) {
        const float sum = expected.log_sum.matrix.data[i];
        if (isinf(sum))
            EXPECT(own.log_sum.matrix.data[i] == sum);
        else
            EXPECT_NEAR(own.log_sum.matrix.data[i], sum, 1e-5);
    }
    guarded_attention_compare(&own, &expected, (const double[]){1e-5, -1, 2e-5, 2e-5, 2e-5});
}

GPU_TEST(causal_attention_is_that_of_the_plain_loops)
{
    static const struct {
        int64_t batch, heads, dim, queries, keys, first_query, first_key;
        float dropout;
    } sizes[] = {{3, 4, 32, 32, 32, 0, 0, 0},       {2, 2, 8, 16, 16, 0, 0, 0},      {1, 2, 32, 300, 300, 0, 0, 0},
                 {2, 3, 33, 97, 97, 0, 0, 0.2f},    {1, 1, 64, 600, 600, 0, 0, 0},   {1, 2, 32, 140, 400, 260, 0, 0.1f},
                 {1, 2, 40, 150, 150, 150, 0, 0},   {2, 2, 32, 60, 200, 130, 70, 0}, {1, 2, 32, 200, 90, 0, 110, 0},
                 {1, 2, 16, 200, 150, 0, 70, 0.3f}, {1, 1, 32, 1, 77, 76, 0, 0},     {1, 2, 128, 130, 130, 0, 0, 0}};
    static const uint32_t step = 3;
    SCOPED(vt_backend) *plain = open_path(VT_ISA_PLAIN);
    FOR_EACH_BACKEND(isa, b)
    {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const vt_attention_shape shape = {.batch = sizes[i].batch,
                                              .heads = sizes[i].heads,
                                              .head_dim = sizes[i].dim,
                                              .queries = sizes[i].queries,
                                              .keys = sizes[i].keys,
                                              .first_query = sizes[i].first_query,
                                              .first_key = sizes[i].first_key,
                                              .causal = true,
                                              .unscaled = i % 3 == 1,
                                              .dropout = {.rate = sizes[i].dropout, .seed = 5, .step = &step}};
            compare(b, &shape, plain);
        }
    }
}
