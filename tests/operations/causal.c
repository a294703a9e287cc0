/* Attention with the causal mask and without scale: the gradients of the plain loops are those of finite differences,
 * and every other back end has the plain loops' numbers; of whole windows, and of blocks of keys before, across and
 * behind the queries' places, as ranks have them. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

typedef struct {
    guarded q, k, v, dout;            /* operands */
    guarded out, log_sum, dq, dk, dv; /* results */
} attention_case;

static attention_case open_case(const vt_attention_shape *shape)
{
    const int64_t queries = shape->batch * shape->queries, keys = shape->batch * shape->keys;
    const int64_t columns = shape->heads * shape->head_dim;
    return (attention_case){.q = guarded_random(queries, columns, 1, 1),
                            .k = guarded_random(keys, columns, 2, shape->unscaled ? 0.3f : 1),
                            .v = guarded_random(keys, columns, 3, 1),
                            .dout = guarded_random(queries, columns, 4, 1),
                            .out = guarded_open(queries, columns),
                            .log_sum = guarded_open(1, queries * shape->heads),
                            .dq = guarded_open(queries, columns),
                            .dk = guarded_open(keys, columns),
                            .dv = guarded_open(keys, columns)};
}

static void run(vt_backend *b, const vt_attention_shape *shape, attention_case *c)
{
    vt_attention_shape own = *shape;
    guarded_draw(b, &own);
    b->attention_forward(b, &own, c->q.matrix, c->k.matrix, c->v.matrix, c->out.matrix, c->log_sum.matrix.data);
    b->attention_backward(b, &own, c->q.matrix, c->k.matrix, c->v.matrix, c->out.matrix, c->log_sum.matrix.data,
                          c->dout.matrix, c->dq.matrix, c->dk.matrix, c->dv.matrix);
}

/* ---- the plain loops ---- */

/* The sum of out · dout. */
static double objective(vt_backend *b, const vt_attention_shape *shape, attention_case *c)
{
    double sum = 0;
    b->attention_forward(b, shape, c->q.matrix, c->k.matrix, c->v.matrix, c->out.matrix, c->log_sum.matrix.data);
    for (int64_t r = 0; r < c->out.matrix.rows; r++)
        for (int64_t d = 0; d < c->out.matrix.columns; d++)
            sum += (double)c->out.matrix.data[r * c->out.matrix.stride + d] *
                   (double)c->dout.matrix.data[r * c->dout.matrix.stride + d];
    return sum;
}

static void check_slopes(vt_backend *b, const vt_attention_shape *shape, attention_case *c, guarded *x,
                         const guarded *gradient)
{
    const float h = 0x1p-7f;
    for (int64_t i = 0; i < x->matrix.rows * x->matrix.columns; i++) {
        const int64_t row = i / x->matrix.columns, column = i % x->matrix.columns;
        float *at = x->matrix.data + row * x->matrix.stride + column, old = *at;
        *at = old + h;
        const double more = objective(b, shape, c);
        *at = old - h;
        const double less = objective(b, shape, c);
        *at = old;
        EXPECT_NEAR(gradient->matrix.data[row * gradient->matrix.stride + column], (more - less) / (2 * (double)h),
                    3e-3);
    }
}

TEST(gradients_of_causal_attention_are_those_of_finite_differences)
{
    vt_backend *b = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &b));
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
        attention_case c = open_case(&shape);
        run(b, &shape, &c);
        check_slopes(b, &shape, &c, &c.q, &c.dq);
        check_slopes(b, &shape, &c, &c.k, &c.dk);
        check_slopes(b, &shape, &c, &c.v, &c.dv);
    }
    vt_backend_close(&b);
}

/* A query sees the keys up to its own place: later ones may be anything. */
TEST(later_keys_are_not_seen)
{
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *b = NULL;
        EXPECT_OK(vt_backend_open_cpu(isa, 0, &b));
        const vt_attention_shape shape = {
            .batch = 1, .heads = 2, .head_dim = 32, .queries = 150, .keys = 150, .causal = true};
        attention_case one = open_case(&shape), other = open_case(&shape);
        for (int64_t r = 100; r < 150; r++)
            for (int64_t c = 0; c < 64; c++) {
                other.k.matrix.data[r * other.k.matrix.stride + c] *= -30;
                other.v.matrix.data[r * other.v.matrix.stride + c] *= -30;
            }
        run(b, &shape, &one);
        run(b, &shape, &other);
        for (int64_t r = 0; r < 100; r++)
            EXPECT(memcmp(one.out.matrix.data + r * one.out.matrix.stride,
                          other.out.matrix.data + r * other.out.matrix.stride, 64 * sizeof(float)) == 0,
                   "isa %d, row %d", (int)isa, (int)r);
        vt_backend_close(&b);
    }
}

/* ---- against them ---- */

static void compare(vt_backend *b, const vt_attention_shape *shape, vt_backend *plain)
{
    attention_case own = open_case(shape), expected = open_case(shape);
    run(b, shape, &own);
    run(plain, shape, &expected);
    guarded_check(&own.out, "out");
    guarded_check(&own.dq, "dq");
    guarded_check(&own.dk, "dk");
    guarded_check(&own.dv, "dv");
    for (int64_t i = 0; i < own.log_sum.matrix.columns; i++) {
        const float sum = expected.log_sum.matrix.data[i];
        if (isinf(sum))
            EXPECT(own.log_sum.matrix.data[i] == sum);
        else
            EXPECT_NEAR(own.log_sum.matrix.data[i], sum, 1e-5);
    }
    guarded_compare(&own.out, &expected.out, 1e-5, "out");
    guarded_compare(&own.dq, &expected.dq, 2e-5, "dq");
    guarded_compare(&own.dk, &expected.dk, 2e-5, "dk");
    guarded_compare(&own.dv, &expected.dv, 2e-5, "dv");
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
    vt_backend *plain = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain));
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
    vt_backend_close(&plain);
}
