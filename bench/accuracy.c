/* The errors of float32 products and attention on each instruction set of this machine: the root mean square of the
 * differences from the plain loops (cpu_isa=plain), which sum in float64, divided by that of the results, for normal
 * random numbers.
 *
 *     build/bench/accuracy */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "base/random.h"

enum { ROWS = 512, OUT = 256, IN = 1024, TOKENS = 2048, HEADS = 2, HEAD = 48, WIDTH = HEADS * HEAD };

enum { X, DY, WEIGHT, Q, K, V, DOUT, OPERANDS };
enum { FORWARD, DX, DWEIGHT, ATTENTION, DQ, DK, DV, RESULTS };

static const char *const names[RESULTS] = {"linear, forward",
                                           "linear, input's gradient",
                                           "linear, weight's gradient",
                                           "attention, out",
                                           "attention, dq",
                                           "attention, dk",
                                           "attention, dv"};

static vt_matrix matrix_new(int64_t rows, int64_t columns)
{
    float *data = calloc((size_t)(rows * columns), sizeof *data);
    if (data == NULL) {
        fputs("bench/accuracy: no memory\n", stderr);
        exit(1);
    }
    return vt_matrix_make(data, rows, columns);
}

static void open_operands(vt_matrix m[OPERANDS])
{
    m[X] = matrix_new(ROWS, IN);
    m[DY] = matrix_new(ROWS, OUT);
    m[WEIGHT] = matrix_new(OUT, IN);
    for (int i = Q; i <= DOUT; i++) m[i] = matrix_new(TOKENS, WIDTH);
    for (int i = 0; i < OPERANDS; i++)
        for (int64_t j = 0; j < m[i].rows * m[i].columns; j++)
            m[i].data[j] = (float)vt_random_normal_quantile(vt_random_element(1, (uint64_t)i, (uint64_t)j));
}

static void open_results(vt_matrix m[RESULTS])
{
    m[FORWARD] = matrix_new(ROWS, OUT);
    m[DX] = matrix_new(ROWS, IN);
    m[DWEIGHT] = matrix_new(OUT, IN);
    for (int i = ATTENTION; i < RESULTS; i++) m[i] = matrix_new(TOKENS, WIDTH);
}

static void compute(vt_backend *b, const vt_matrix in[OPERANDS], const vt_matrix to[RESULTS])
{
    static float bias[OUT], log_sum[HEADS * TOKENS];
    const vt_attention_shape shape = {.batch = 1, .heads = HEADS, .head_dim = HEAD, .queries = TOKENS, .keys = TOKENS};
    b->linear_forward(b, in[X], in[WEIGHT], bias, to[FORWARD]);
    b->linear_backward_input(b, in[DY], in[WEIGHT], to[DX]);
    b->linear_backward_weight(b, in[X], in[DY], to[DWEIGHT].data, NULL);
    b->attention_forward(b, &shape, in[Q], in[K], in[V], to[ATTENTION], log_sum);
    b->attention_backward(b, &shape, in[Q], in[K], in[V], to[ATTENTION], log_sum, in[DOUT], to[DQ], to[DK], to[DV]);
}

static double relative_error(vt_matrix result, vt_matrix truth)
{
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < truth.rows * truth.columns; i++) {
        double error = (double)result.data[i] - (double)truth.data[i];
        errors += error * error;
        squares += (double)truth.data[i] * (double)truth.data[i];
    }
    return sqrt(errors / squares);
}

int main(void)
{
    static const struct {
        vt_cpu_isa isa;
        const char *name;
    } paths[] = {{VT_ISA_BASELINE, "baseline"}, {VT_ISA_AVX2, "avx2"}, {VT_ISA_AVX512, "avx512"}, {VT_ISA_AMX, "amx"}};
    vt_matrix operands[OPERANDS], truth[RESULTS];
    vt_backend *plain;
    open_operands(operands);
    open_results(truth);
    if (vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain) != VT_OK) return 1;
    compute(plain, operands, truth);
    vt_backend_close(&plain);
    printf("%d x %d by %d, attention of %d tokens, heads of %d; errors (root mean square) over the results'\n", ROWS,
           IN, OUT, TOKENS, HEAD);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        vt_backend *b;
        vt_matrix results[RESULTS];
        if (vt_backend_open_cpu(paths[i].isa, 0, &b) != VT_OK) {
            printf("%s: not on this machine\n", paths[i].name);
            continue;
        }
        open_results(results);
        compute(b, operands, results);
        printf("%s:", paths[i].name);
        for (int r = 0; r < RESULTS; r++)
            printf("%s %s %.1e", r > 0 ? "," : "", names[r], relative_error(results[r], truth[r]));
        printf("\n");
        for (int r = 0; r < RESULTS; r++) free(results[r].data);
        vt_backend_close(&b);
    }
    for (int i = 0; i < OPERANDS; i++) free(operands[i].data);
    for (int i = 0; i < RESULTS; i++) free(truth[i].data);
    return 0;
}
