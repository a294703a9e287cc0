/* bfloat16 operands: the rounding, every operation against float32 on the same rounded numbers, and oneDNN's own
 * products against the stand-ins. */
#include "base/bfloat16.h"

#include "backend/cpu/cpu.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

TEST(rounding_is_to_nearest_even)
{
    EXPECT(vt_bfloat16_round(1.0f) == 0x3f80);
    EXPECT(vt_bfloat16_round(1.0f + 0x1p-8f) == 0x3f80); /* a tie, to even */
    EXPECT(vt_bfloat16_round(1.0f + 0x1p-8f + 0x1p-20f) == 0x3f81);
    EXPECT(vt_bfloat16_round(1.0f + 3 * 0x1p-8f) == 0x3f82);
    EXPECT(vt_bfloat16_round(-2.5f) == 0xc020);
    EXPECT(isnan(vt_bfloat16_widen(vt_bfloat16_round(NAN))));
    EXPECT(isinf(vt_bfloat16_widen(vt_bfloat16_round(INFINITY))));
    EXPECT(isinf(vt_bfloat16_widen(vt_bfloat16_round(3.4e38f))));
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = vt_bfloat16_widen((uint16_t)bits);
        if (!isnan(value) && vt_bfloat16_round(value) != bits) EXPECT(false, "0x%x does not come back", bits);
    }
}

/* The same numbers twice: as bfloat16, and as the float32 numbers that those are. */
typedef struct {
    vt_matrix half, wide;
} twins;

static twins open_twins(int64_t rows, int64_t columns, uint64_t seed)
{
    int64_t count = rows * columns;
    twins t = {.wide = vt_matrix_make(malloc((size_t)count * sizeof(float)), rows, columns)};
    t.half = t.wide;
    t.half.half = malloc((size_t)count * sizeof(uint16_t));
    t.half.type = VT_BFLOAT16;
    fill_random(t.wide.data, count, seed, 1);
    for (int64_t i = 0; i < count; i++) {
        t.half.half[i] = vt_bfloat16_round(t.wide.data[i]);
        t.wide.data[i] = vt_bfloat16_widen(t.half.half[i]);
    }
    return t;
}

static void close_twins(twins *t)
{
    free(t->half.half);
    free(t->wide.data);
}

/* half must be wide, rounded: the same bits (ulps 0), or off by so many units of bfloat16. */
static void compare(const twins *t, int ulps, const char *name)
{
    int64_t count = t->wide.rows * t->wide.columns;
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)t->wide.data[i]));
    for (int64_t i = 0; i < count; i++) {
        double expected = (double)vt_bfloat16_widen(vt_bfloat16_round(t->wide.data[i]));
        worst = fmax(worst, fabs((double)vt_bfloat16_widen(t->half.half[i]) - expected));
    }
    EXPECT(worst <= ulps * 0x1p-8 * largest, "%s: off by %g of %g", name, worst, largest);
}

/* What the operations make of bfloat16 operands is, to the bit, what they make of the same numbers in float32, rounded.
 */
TEST(operations_are_those_of_float32)
{
    enum { ROWS = 26, COLUMNS = 24, WIDE = 40 };
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *b = NULL;
        EXPECT_OK(path_open(isa, &b));
        vt_onednn_close(&((vt_cpu_state *)b->state)->bfloat16_units); /* the stand-ins, whatever this processor has */
        vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 8, .queries = 13, .keys = 13};
        vt_mask mask = {.elements = {.rate = 0.3f, .seed = 4}, .tokens = 13};
        twins x = open_twins(ROWS, COLUMNS, 1), k = open_twins(ROWS, COLUMNS, 2), v = open_twins(ROWS, COLUMNS, 3);
        twins out = open_twins(ROWS, COLUMNS, 4), dout = open_twins(ROWS, COLUMNS, 5),
              dq = open_twins(ROWS, COLUMNS, 6);
        twins dk = open_twins(ROWS, COLUMNS, 7), dv = open_twins(ROWS, COLUMNS, 8), y = open_twins(ROWS, WIDE, 9);
        twins weight = open_twins(WIDE, COLUMNS, 10);
        float log_sum[2 * 3 * 13], bias[WIDE], mean[ROWS], rstd[ROWS], dweight[2][WIDE * COLUMNS] = {{0}},
                                                                                         dbias[2][WIDE] = {{0}};
        fill_random(bias, WIDE, 11, 1);
        b->attention_forward(b, &shape, x.half, k.half, v.half, out.half, log_sum);
        b->attention_forward(b, &shape, x.wide, k.wide, v.wide, out.wide, log_sum);
        compare(&out, 0, "attention out");
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) out.wide.data[i] = vt_bfloat16_widen(out.half.half[i]);
        b->attention_backward(b, &shape, x.half, k.half, v.half, out.half, log_sum, dout.half, dq.half, dk.half,
                              dv.half);
        b->attention_backward(b, &shape, x.wide, k.wide, v.wide, out.wide, log_sum, dout.wide, dq.wide, dk.wide,
                              dv.wide);
        compare(&dq, 0, "attention dq");
        compare(&dk, 0, "attention dk");
        compare(&dv, 0, "attention dv");
        b->linear_forward(b, x.half, weight.half, bias, y.half);
        b->linear_forward(b, x.wide, weight.wide, bias, y.wide);
        compare(&y, 0, "linear y");
        for (int64_t i = 0; i < ROWS * WIDE; i++) y.wide.data[i] = vt_bfloat16_widen(y.half.half[i]);
        b->linear_backward_weight(b, x.half, y.half, dweight[0], dbias[0]);
        b->linear_backward_weight(b, x.wide, y.wide, dweight[1], dbias[1]);
        EXPECT(memcmp(dweight[0], dweight[1], sizeof dweight[0]) == 0 &&
               memcmp(dbias[0], dbias[1], sizeof dbias[0]) == 0);
        b->linear_backward_input(b, y.half, weight.half, dq.half);
        b->linear_backward_input(b, y.wide, weight.wide, dq.wide);
        compare(&dq, 0, "linear dx");
        b->gelu_backward(b, VT_GELU_ERF, x.half, dout.half, dk.half, dv.half);
        b->gelu_backward(b, VT_GELU_ERF, x.wide, dout.wide, dk.wide, dv.wide);
        compare(&dk, 0, "gelu dx");
        compare(&dv, 0, "gelu y");
        b->gelu_forward(b, VT_GELU_ERF, x.half, dk.half);
        b->gelu_forward(b, VT_GELU_ERF, x.wide, dk.wide);
        compare(&dk, 0, "gelu");
        b->mask_multiply(b, x.half, &mask, dk.half);
        b->mask_multiply(b, x.wide, &mask, dk.wide);
        compare(&dk, 0, "mask");
        b->layer_norm_forward(b, x.wide, bias, bias, 1e-6f, dk.half, mean, rstd);
        b->layer_norm_forward(b, x.wide, bias, bias, 1e-6f, dk.wide, mean, rstd);
        compare(&dk, 0, "layer_norm");
        EXPECT_OK(b->check(b));
        twins *const all[] = {&x, &k, &v, &out, &dout, &dq, &dk, &dv, &y, &weight};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) close_twins(all[i]);
        vt_backend_close(&b);
    }
}

/* Attention may mix: q, k, v, dout bfloat16, and float32 results, which sums over ranks want. */
TEST(attention_of_mixed_types)
{
    enum { QUERIES = 13, KEYS = 9, COLUMNS = 24, OUT = 2 * QUERIES * COLUMNS, IN = 2 * KEYS * COLUMNS };
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *b = NULL;
        EXPECT_OK(path_open(isa, &b));
        vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 8, .queries = QUERIES, .keys = KEYS};
        twins q = open_twins(2 * QUERIES, COLUMNS, 1), k = open_twins(2 * KEYS, COLUMNS, 2);
        twins v = open_twins(2 * KEYS, COLUMNS, 3), dout = open_twins(2 * QUERIES, COLUMNS, 4);
        float out[2][OUT], dq[2][OUT], dk[2][IN], dv[2][IN], log_sum[2][2 * 3 * QUERIES];
        for (int i = 0; i < 2; i++) {
            vt_matrix result = vt_matrix_make(out[i], 2 * QUERIES, COLUMNS);
            b->attention_forward(b, &shape, i == 0 ? q.half : q.wide, i == 0 ? k.half : k.wide,
                                 i == 0 ? v.half : v.wide, result, log_sum[i]);
            b->attention_backward(b, &shape, i == 0 ? q.half : q.wide, i == 0 ? k.half : k.wide,
                                  i == 0 ? v.half : v.wide, result, log_sum[i], i == 0 ? dout.half : dout.wide,
                                  vt_matrix_make(dq[i], 2 * QUERIES, COLUMNS), vt_matrix_make(dk[i], 2 * KEYS, COLUMNS),
                                  vt_matrix_make(dv[i], 2 * KEYS, COLUMNS));
        }
        EXPECT(memcmp(out[0], out[1], sizeof out[0]) == 0 && memcmp(log_sum[0], log_sum[1], sizeof log_sum[0]) == 0);
        EXPECT(memcmp(dq[0], dq[1], sizeof dq[0]) == 0 && memcmp(dk[0], dk[1], sizeof dk[0]) == 0 &&
               memcmp(dv[0], dv[1], sizeof dv[0]) == 0);
        EXPECT_OK(b->check(b));
        twins *const all[] = {&q, &k, &v, &dout};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) close_twins(all[i]);
        vt_backend_close(&b);
    }
}

/* oneDNN's bfloat16 products (which this processor may have to imitate) against float32 sums of the same operands. */
TEST(products_of_the_units)
{
    enum { ROWS = 97, IN = 48, OUT = 80 };
    struct vt_onednn *library = vt_onednn_open();
    vt_backend *b = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &b));
    twins x = open_twins(ROWS, IN, 1), weight = open_twins(OUT, IN, 2), y = open_twins(ROWS, OUT, 3);
    twins dx = open_twins(ROWS, IN, 4);
    float bias[OUT], dweight[2][OUT * IN] = {{0}};
    fill_random(bias, OUT, 5, 1);
    if (!vt_onednn_forward(library, x.half, weight.half, bias, y.half)) {
        vt_test_skip("oneDNN has no bfloat16 product for this processor");
    } else {
        for (int round = 0; round < 2; round++) { /* the second with other weights: packed anew */
            EXPECT(vt_onednn_forward(library, x.half, weight.half, bias, y.half));
            b->linear_forward(b, x.wide, weight.wide, bias, y.wide);
            compare(&y, 1, "y");
            EXPECT(vt_onednn_backward_input(library, y.half, weight.half, dx.half));
            for (int64_t i = 0; i < ROWS * OUT; i++) y.wide.data[i] = vt_bfloat16_widen(y.half.half[i]);
            b->linear_backward_input(b, y.wide, weight.wide, dx.wide);
            compare(&dx, 1, "dx");
            EXPECT(vt_onednn_backward_weight(library, x.half, y.half, dweight[0]));
            b->linear_backward_weight(b, x.wide, y.wide, dweight[1], NULL);
            for (int i = 0; i < OUT * IN; i++)
                EXPECT_NEAR(dweight[0][i], dweight[1][i], 4 * sqrt(ROWS) * 0x1p-24 * (100 + fabs(dweight[1][i])));
            for (int64_t i = 0; i < OUT * IN; i++) {
                weight.half.half[i] ^= 0x8000; /* the other sign */
                weight.wide.data[i] = -weight.wide.data[i];
            }
            vt_onednn_weights_changed(library);
        }
    }
    vt_matrix wide = y.wide; /* a float32 result */
    EXPECT(vt_onednn_forward(library, x.half, weight.half, NULL, wide));
    close_twins(&x);
    close_twins(&weight);
    close_twins(&y);
    close_twins(&dx);
    vt_backend_close(&b);
    vt_onednn_close(&library);
}
