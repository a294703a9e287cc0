/* Convolutions over cubes, and the activations behind them, on every fast path of the CPU against the plain loops: odd
 * sides, few and many channels, matrices beside guards, outputs full of NaN. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static double tolerance(int64_t terms)
{
    return 4 * sqrt((double)terms) * 0x1p-24 + 0x1p-22;
}

static void check_convolution(vt_backend *const backends[2], int64_t batch, int64_t side, int64_t in, int64_t out)
{
    const vt_convolution shape = {batch, side, in, out};
    const int64_t rows = batch * side * side * side;
    guarded x = guarded_random(8 * rows, in, 1, 1), dy = guarded_random(rows, out, 2, 1);
    guarded weight = guarded_random(1, out * in * 64, 3, 1), y[2], dx[2], dweight[2];
    const vt_matrix weights = vt_matrix_make(weight.matrix.data, out, in * 64);
    for (int i = 0; i < 2; i++) {
        vt_backend *b = backends[i];
        y[i] = guarded_open(rows, out);
        dx[i] = guarded_open(8 * rows, in);
        dweight[i] = guarded_random(1, out * in * 64, 4, 1);
        b->convolution_forward(b, &shape, x.matrix, weights, y[i].matrix);
        b->convolution_backward_input(b, &shape, dy.matrix, weights, dx[i].matrix);
        b->convolution_backward_weight(b, &shape, x.matrix, dy.matrix, dweight[i].matrix.data);
    }
    guarded_compare(&y[1], &y[0], tolerance(64 * in), "convolution y");
    guarded_compare(&dx[1], &dx[0], tolerance(8 * out), "convolution dx");
    guarded_compare(&dweight[1], &dweight[0], tolerance(rows), "convolution dweight");
}

static void check_activation(vt_backend *const backends[2], vt_activation kind, int64_t rows, int64_t columns)
{
    guarded bias = guarded_random(1, columns, 1, 1), dy = guarded_random(rows, columns, 2, 1);
    guarded more = guarded_random(rows, columns, 3, 1), y[2], dx[2], dbias[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *b = backends[i];
        y[i] = guarded_random(rows, columns, 4, 12); /* tanh: from its polynomial to 1 */
        dx[i] = guarded_open(rows, columns);
        dbias[i] = guarded_random(1, columns, 5, 1);
        b->bias_activation_forward(b, kind, bias.matrix.data, y[i].matrix);
        b->bias_activation_backward(b, kind, y[i].matrix, dy.matrix, more.matrix, dx[i].matrix, dbias[i].matrix.data);
    }
    guarded_compare(&y[1], &y[0], tolerance(1), "activation y");
    guarded_compare(&dx[1], &dx[0], tolerance(1), "activation dx");
    guarded_compare(&dbias[1], &dbias[0], tolerance(rows), "activation dbias");
}

TEST(convolutions_and_activations)
{
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= VT_ISA_AMX; isa++) {
        vt_backend *backends[2] = {NULL, NULL};
        if (!path_is_available(isa)) continue;
        EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &backends[0]));
        EXPECT_OK(vt_backend_open_cpu(isa, 0, &backends[1]));
        check_convolution(backends, 1, 1, 1, 1);
        check_convolution(backends, 2, 3, 4, 7);
        check_convolution(backends, 2, 1, 64, 65);
        check_convolution(backends, 1, 3, 33, 49);
        check_convolution(backends, 1, 8, 5, 16);
        check_convolution(backends, 2, 8, 33, 130);
        check_convolution(backends, 5, 4, 66, 7);
        check_convolution(backends, 3, 5, 17, 9); /* more points than are gathered at once */
        for (int kind = VT_ACTIVATION_LEAKY; kind <= VT_ACTIVATION_TANH; kind++) {
            check_activation(backends, (vt_activation)kind, 1, 1);
            check_activation(backends, (vt_activation)kind, 2100, 37);
        }
        EXPECT_OK(backends[1]->check(backends[1]));
        vt_backend_close(&backends[0]);
        vt_backend_close(&backends[1]);
    }
}
