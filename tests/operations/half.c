/* 16-bit operands: every operation against float32 on the same rounded numbers. */
#include "backend/cpu/cpu.h"
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

/* What a 16-bit matrix holds of these numbers. */
static void round_twin(twins *t)
{
    for (int64_t r = 0; r < t->wide.rows; r++)
        for (int64_t c = 0; c < t->wide.columns; c++) {
            float *value = t->wide.data + r * t->wide.stride + c;
            *value = vt_half_widen(t->own.type, vt_half_round(t->own.type, *value));
        }
}

static twins open_twins(vt_type type, int64_t rows, int64_t columns, uint64_t seed)
{
    return twins_random(type, rows, columns, seed, 1, TWINS_TIGHT);
}

/* The residual stream is float32; the branch, LayerNorm's result and its gradient have 16 bits, and so has, once more,
 * the gradient of the stream. An active mask's result is rounded before it is added. */
static void check_stream(vt_cpu_isa isa, vt_type type, int64_t columns, float rate)
{
    enum { ROWS = 71 };
    SCOPED(vt_backend) *b = open_path(isa);
    const vt_mask mask = {.elements = {.rate = rate, .seed = 4, .step = &(const uint32_t){3}}, .tokens = ROWS};
    const vt_mask none = {.tokens = 1};
    guarded x = guarded_random(ROWS, columns, 1, 1), weight = guarded_random(1, columns, 2, 1), sum[4], dx[2];
    guarded dweight[2], dbias[2];
    float mean[ROWS], rstd[ROWS];
    const float *w = weight.matrix.data;
    twins branch = open_twins(type, ROWS, columns, 3), again = open_twins(type, ROWS, columns, 3);
    twins normed = open_twins(type, ROWS, columns, 4), dy = open_twins(type, ROWS, columns, 5);
    twins rounded = open_twins(type, ROWS, columns, 6);
    for (int i = 0; i < 4; i++) sum[i] = guarded_open(ROWS, columns);
    for (int i = 0; i < 2; i++) {
        const bool wide = i == 0;
        dx[i] = guarded_random(ROWS, columns, 7, 1);
        dweight[i] = guarded_random(1, columns, 8, 1);
        dbias[i] = guarded_random(1, columns, 9, 1);
        if (wide && rate > 0) {
            b->mask_multiply(b, branch.wide, &mask, branch.wide);
            round_twin(&branch);
            b->convert(b, branch.wide, again.wide);
        }
        b->residual_add(b, x.matrix, wide ? branch.wide : branch.own, wide ? &none : &mask, sum[i].matrix);
        b->residual_layer_norm(b, x.matrix, wide ? again.wide : again.own, wide ? &none : &mask, w, w, 1e-6f,
                               sum[2 + i].matrix, wide ? normed.wide : normed.own, mean, rstd);
        b->layer_norm_backward(b, sum[0].matrix, w, mean, rstd, wide ? dy.wide : dy.own, dx[i].matrix,
                               wide ? (vt_matrix){0} : rounded.own, dweight[i].matrix.data, dbias[i].matrix.data);
    }
    rounded.wide = dx[0].matrix;
    guarded_compare(&sum[1], &sum[0], 0, "residual_add of 16 bits");
    guarded_compare(&sum[3], &sum[2], 0, "residual_layer_norm of 16 bits, the sum");
    guarded_compare(&dx[1], &dx[0], 0, "layer_norm_backward of 16 bits, dx");
    guarded_compare(&dweight[1], &dweight[0], 0, "layer_norm_backward of 16 bits, dweight");
    guarded_compare(&dbias[1], &dbias[0], 0, "layer_norm_backward of 16 bits, dbias");
    twins_compare(&branch, 0, "the masked branch of residual_add");
    twins_compare(&again, 0, "the masked branch of residual_layer_norm");
    twins_compare(&normed, 0, "residual_layer_norm of 16 bits");
    twins_compare(&rounded, 0, "layer_norm_backward, dx in 16 bits");
    b->layer_norm_backward(b, sum[0].matrix, w, mean, rstd, dy.wide, dx[0].matrix, rounded.own, dweight[0].matrix.data,
                           dbias[0].matrix.data);
    twins_compare(&rounded, 0, "layer_norm_backward of float32, dx in 16 bits");
    EXPECT_OK(b->check(b));
}

TEST(residual_stream_beside_16_bits)
{
    static const int64_t columns[] = {1, 7, 40, 97, 384};
    FOR_EACH_CPU_PATH(isa)
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (int masked = 0; masked < 2; masked++) check_stream(isa, type, columns[i], masked ? 0.3f : 0);
}

/* Whether bfloat16 products add up in another order than float32 products: pairs and tiles do. */
static bool has_own_products(vt_cpu_isa isa, vt_type type)
{
    return type == VT_BFLOAT16 && (isa == VT_ISA_BF16 || isa == VT_ISA_AMX);
}

/* Operations on 16-bit operands give, to the bit, the rounded results of the same numbers in float32. The exception are
 * tiles, where sums run along bfloat16 numbers in another order than along the terms of float32 ones (amx/terms.h). */
static void check_operations(vt_cpu_isa isa, vt_type type)
{
    enum { HEADS = 2, TOKENS = 37, ROWS = 2 * TOKENS, COLUMNS = 40, WIDE = 56 };
    SCOPED(vt_backend) *b = open_path(isa);
    const bool tiles = isa == VT_ISA_AMX && type == VT_BFLOAT16; /* attention: operations/tiles.c */
    const int order = has_own_products(isa, type) ? 2 : 0;
    vt_attention_shape shape = {
        .batch = 2, .heads = HEADS, .head_dim = COLUMNS / HEADS, .queries = TOKENS, .keys = TOKENS};
    vt_mask mask = {.elements = {.rate = 0.3f, .seed = 4, .step = &(const uint32_t){3}}, .tokens = TOKENS};
    twins x = open_twins(type, ROWS, COLUMNS, 1), k = open_twins(type, ROWS, COLUMNS, 2),
          v = open_twins(type, ROWS, COLUMNS, 3);
    twins out = open_twins(type, ROWS, COLUMNS, 4), dout = open_twins(type, ROWS, COLUMNS, 5),
          dq = open_twins(type, ROWS, COLUMNS, 6);
    twins dk = open_twins(type, ROWS, COLUMNS, 7), dv = open_twins(type, ROWS, COLUMNS, 8),
          y = open_twins(type, ROWS, WIDE, 9);
    twins weight = open_twins(type, WIDE, COLUMNS, 10);
    float log_sum[ROWS * HEADS], bias[WIDE], mean[ROWS], rstd[ROWS], dweight[2][WIDE * COLUMNS] = {{0}},
                                                                                       dbias[2][WIDE] = {{0}};
    fill_random(bias, WIDE, 11, 1);
    b->attention_forward(b, &shape, x.own, k.own, v.own, out.own, log_sum);
    b->attention_forward(b, &shape, x.wide, k.wide, v.wide, out.wide, log_sum);
    if (!tiles) twins_compare(&out, 0, "attention out");
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) out.wide.data[i] = vt_half_widen(type, out.own.half[i]);
    b->attention_backward(b, &shape, x.own, k.own, v.own, out.own, log_sum, dout.own, dq.own, dk.own, dv.own);
    b->attention_backward(b, &shape, x.wide, k.wide, v.wide, out.wide, log_sum, dout.wide, dq.wide, dk.wide, dv.wide);
    if (!tiles) {
        twins_compare(&dq, 0, "attention dq");
        twins_compare(&dk, 0, "attention dk");
        twins_compare(&dv, 0, "attention dv");
    }
    b->linear_forward(b, x.own, weight.own, bias, NULL, y.own);
    b->linear_forward(b, x.wide, weight.wide, bias, NULL, y.wide);
    twins_compare(&y, order, "linear y");
    for (int64_t i = 0; i < ROWS * WIDE; i++) y.wide.data[i] = vt_half_widen(type, y.own.half[i]);
    b->linear_backward_weight(b, x.own, y.own, dweight[0], dbias[0]);
    b->linear_backward_weight(b, x.wide, y.wide, dweight[1], dbias[1]);
    double largest = 0, off = 0;
    for (int i = 0; i < WIDE * COLUMNS; i++) {
        const double error = fabs((double)dweight[0][i] - (double)dweight[1][i]);
        largest = fmax(largest, fabs((double)dweight[1][i]));
        off = error <= off ? off : error; /* a NaN counts as worst */
    }
    EXPECT(off <= order * ROWS * 0x1p-24 * largest, "dweight in %s: off by %g of %g", half_name(type), off, largest);
    EXPECT(memcmp(dbias[0], dbias[1], sizeof dbias[0]) == 0);
    b->linear_backward_input(b, y.own, weight.own, dq.own);
    b->linear_backward_input(b, y.wide, weight.wide, dq.wide);
    twins_compare(&dq, order, "linear dx");
    b->gelu_backward(b, VT_GELU_ERF, x.own, dout.own, dk.own, dv.own);
    b->gelu_backward(b, VT_GELU_ERF, x.wide, dout.wide, dk.wide, dv.wide);
    twins_compare(&dk, 0, "gelu dx");
    twins_compare(&dv, 0, "gelu y");
    b->gelu_forward(b, VT_GELU_ERF, x.own, dk.own);
    b->gelu_forward(b, VT_GELU_ERF, x.wide, dk.wide);
    twins_compare(&dk, 0, "gelu");
    b->mask_multiply(b, x.own, &mask, dk.own);
    b->mask_multiply(b, x.wide, &mask, dk.wide);
    twins_compare(&dk, 0, "mask");
    b->layer_norm_forward(b, x.wide, bias, bias, 1e-6f, dk.own, mean, rstd);
    b->layer_norm_forward(b, x.wide, bias, bias, 1e-6f, dk.wide, mean, rstd);
    twins_compare(&dk, 0, "layer_norm");
    EXPECT_OK(b->check(b));
}

TEST(operations_are_those_of_float32)
{
    FOR_EACH_CPU_PATH(isa)
    {
        FOR_EACH_HALF(type) check_operations(isa, type);
    }
}

/* Some rows, and a weight that each thread packs for itself. */
static void check_large_weight(vt_cpu_isa isa, vt_type type)
{
    enum { ROWS = 21, IN = 1030, OUT = 1101 };
    const int order = has_own_products(isa, type) ? 2 : 0;
    SCOPED(vt_backend) *b = open_path(isa);
    twins x = open_twins(type, ROWS, IN, 1), weight = open_twins(type, OUT, IN, 2), y = open_twins(type, ROWS, OUT, 3);
    b->linear_forward(b, x.own, weight.own, NULL, NULL, y.own);
    b->linear_forward(b, x.wide, weight.wide, NULL, NULL, y.wide);
    twins_compare(&y, order, "linear y");
    for (int64_t i = 0; i < ROWS * OUT; i++) y.wide.data[i] = vt_half_widen(type, y.own.half[i]);
    b->linear_backward_input(b, y.own, weight.own, x.own);
    b->linear_backward_input(b, y.wide, weight.wide, x.wide);
    twins_compare(&x, order, "linear dx");
}

TEST(a_large_weight_is_that_of_float32)
{
    FOR_EACH_CPU_PATH(isa)
    {
        FOR_EACH_HALF(type) check_large_weight(isa, type);
    }
}

/* Attention may mix types: q, k, v, dout of 16 bits, and float32 results, which sums over ranks need. */
static void check_mixed_attention(vt_cpu_isa isa, vt_type type)
{
    enum { HEADS = 2, QUERIES = 41, KEYS = 23, COLUMNS = 40, OUT = 2 * QUERIES * COLUMNS, IN = 2 * KEYS * COLUMNS };
    SCOPED(vt_backend) *b = open_path(isa);
    vt_attention_shape shape = {
        .batch = 2, .heads = HEADS, .head_dim = COLUMNS / HEADS, .queries = QUERIES, .keys = KEYS};
    twins q = open_twins(type, 2 * QUERIES, COLUMNS, 1), k = open_twins(type, 2 * KEYS, COLUMNS, 2);
    twins v = open_twins(type, 2 * KEYS, COLUMNS, 3), dout = open_twins(type, 2 * QUERIES, COLUMNS, 4);
    float out[2][OUT], dq[2][OUT], dk[2][IN], dv[2][IN], log_sum[2][2 * HEADS * QUERIES];
    for (int i = 0; i < 2; i++) {
        vt_matrix result = vt_matrix_make(out[i], 2 * QUERIES, COLUMNS);
        b->attention_forward(b, &shape, i == 0 ? q.own : q.wide, i == 0 ? k.own : k.wide, i == 0 ? v.own : v.wide,
                             result, log_sum[i]);
        b->attention_backward(b, &shape, i == 0 ? q.own : q.wide, i == 0 ? k.own : k.wide, i == 0 ? v.own : v.wide,
                              result, log_sum[i], i == 0 ? dout.own : dout.wide,
                              vt_matrix_make(dq[i], 2 * QUERIES, COLUMNS), vt_matrix_make(dk[i], 2 * KEYS, COLUMNS),
                              vt_matrix_make(dv[i], 2 * KEYS, COLUMNS));
    }
    EXPECT(memcmp(out[0], out[1], sizeof out[0]) == 0 && memcmp(log_sum[0], log_sum[1], sizeof log_sum[0]) == 0);
    EXPECT(memcmp(dq[0], dq[1], sizeof dq[0]) == 0 && memcmp(dk[0], dk[1], sizeof dk[0]) == 0 &&
           memcmp(dv[0], dv[1], sizeof dv[0]) == 0);
    EXPECT_OK(b->check(b));
}

TEST(attention_of_mixed_types)
{
    FOR_EACH_CPU_PATH(isa)
    {
        FOR_EACH_HALF(type)
        {
            if (isa == VT_ISA_AMX && type == VT_BFLOAT16) continue; /* tiles: operations/tiles.c */
            check_mixed_attention(isa, type);
        }
    }
}

/* A copy of a matrix whose rows are `stride` numbers apart, with NaN between them. */
static vt_matrix copy_apart(const vt_matrix *from, int64_t stride)
{
    vt_matrix to = *from;
    to.stride = stride;
    to.half = vt_test_owned(malloc((size_t)(to.rows * stride) * sizeof *to.half));
    for (int64_t i = 0; i < to.rows * stride; i++) to.half[i] = 0x7fc1;
    for (int64_t r = 0; r < to.rows; r++)
        memcpy(to.half + r * stride, from->half + r * from->stride, (size_t)to.columns * sizeof *to.half);
    return to;
}

/* Rows of bfloat16 that can be read as tiles' rows in place are not packed; rows an odd number apart are. */
static void check_places(vt_cpu_isa isa, int64_t columns)
{
    enum { ROWS = 75, WIDE = 41, PLACES = 4 };
    const int64_t gap[PLACES] = {1, 0, 2, 34}; /* the first is the one that is packed */
    uint16_t results[PLACES][3][ROWS * WIDE];
    SCOPED(vt_backend) *b = open_path(isa);
    twins x = open_twins(VT_BFLOAT16, ROWS, columns, 1), weight = open_twins(VT_BFLOAT16, WIDE, columns, 2);
    twins across = open_twins(VT_BFLOAT16, columns, WIDE, 3);
    float bias[WIDE];
    fill_random(bias, WIDE, 4, 1);
    for (int i = 0; i < PLACES; i++) {
        vt_matrix left = copy_apart(&x.own, columns + gap[i]), result[3];
        for (int j = 0; j < 3; j++)
            result[j] =
                (vt_matrix){.half = results[i][j], .rows = ROWS, .columns = WIDE, .stride = WIDE, .type = VT_BFLOAT16};
        b->linear_gelu_forward(b, VT_GELU_ERF, left, weight.own, bias, NULL, result[0], result[1]);
        b->linear_backward_input(b, left, across.own, result[2]);
        EXPECT(memcmp(results[i], results[0], sizeof results[0]) == 0, "%ld columns, %ld apart", columns, left.stride);
    }
    EXPECT_OK(b->check(b));
}

TEST(products_do_not_depend_on_where_rows_lie)
{
    FOR_EACH_TILES_PATH(isa)
    {
        check_places(isa, 64);
        check_places(isa, 416);   /* two runs of sums */
        check_places(isa, 80);    /* no whole tiles */
        check_places(isa, 16640); /* no block of rows fits the cache with all of them */
    }
}
