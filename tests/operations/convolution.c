/* Convolutions over cubes, and the activations behind them, on every fast path against the plain loops: odd sides, few
 * and many channels, matrices beside guards, outputs full of NaN. */
#include "backend/cpu/cpu.h"
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

static double tolerance(int64_t terms)
{
    return 4 * sqrt((double)terms) * 0x1p-24 + 0x1p-22;
}

typedef struct {
    guarded y, dx, dweight;
} results;

/* The same operands each time, as numbers of `type`, which weights, x and dy are first rounded to. */
static results convolve(vt_backend *b, const vt_convolution *shape, vt_type type, vt_type round)
{
    const int64_t rows = shape->batch * shape->side * shape->side * shape->side, columns = shape->in * 64;
    guarded of[] = {guarded_random(8 * rows, shape->in, 1, 1), guarded_random(rows, shape->out, 2, 1),
                    guarded_random(shape->out, columns, 3, 1)};
    vt_matrix operands[3], outputs[2];
    results r = {guarded_open(rows, shape->out), guarded_open(8 * rows, shape->in),
                 guarded_random(1, shape->out * columns, 4, 1)};
    guarded *const made[] = {&r.y, &r.dx};
    for (int i = 0; i < 3; i++) {
        const vt_matrix *wide = &of[i].matrix;
        /* a weight has no gaps between its rows */
        const int64_t stride = i == 2 ? columns : wide->stride;
        operands[i] = (vt_matrix){.rows = wide->rows, .columns = wide->columns, .stride = stride, .type = type};
        operands[i].data = vt_test_owned(calloc((size_t)(wide->rows * stride), sizeof(float)));
        operands[i].half = (uint16_t *)operands[i].data;
        for (int64_t row = 0; row < wide->rows; row++) {
            float *from = wide->data + row * wide->stride;
            uint16_t half[8192];
            EXPECT(wide->columns <= 8192);
            if (round != VT_FLOAT32) vt_half_round_row(round, from, wide->columns, half);
            if (type != VT_FLOAT32) {
                memcpy(operands[i].half + row * stride, half, (size_t)wide->columns * sizeof *half);
                continue;
            }
            if (round != VT_FLOAT32) vt_half_widen_row(round, half, wide->columns, from);
            memcpy(operands[i].data + row * stride, from, (size_t)wide->columns * sizeof *from);
        }
    }
    for (int i = 0; i < 2; i++) {
        outputs[i] = made[i]->matrix;
        outputs[i].type = type;
        if (type != VT_FLOAT32)
            outputs[i].half = vt_test_owned(calloc((size_t)(outputs[i].rows * outputs[i].stride), sizeof(uint16_t)));
    }
    b->convolution_forward(b, shape, operands[0], operands[2], outputs[0]);
    b->convolution_backward_input(b, shape, operands[1], operands[2], outputs[1]);
    b->convolution_backward_weight(b, shape, operands[0], operands[1], r.dweight.matrix.data);
    for (int i = 0; i < 2 && type != VT_FLOAT32; i++)
        for (int64_t row = 0; row < outputs[i].rows; row++)
            vt_half_widen_row(type, outputs[i].half + row * outputs[i].stride, outputs[i].columns,
                              made[i]->matrix.data + row * made[i]->matrix.stride);
    return r;
}

static void compare(const results *actual, const results *expected, const double allowed[3])
{
    guarded_compare(&actual->y, &expected->y, allowed[0], "convolution y");
    guarded_compare(&actual->dx, &expected->dx, allowed[1], "convolution dx");
    guarded_compare(&actual->dweight, &expected->dweight, allowed[2], "convolution dweight");
}

/* On the paths of the GPU's code a weight's gradient comes in the operands' type, too. */
static bool rounds_gradients(vt_cpu_isa isa)
{
    return isa == PATH_GPU || isa == PATH_CUDNN;
}

/* The plain loops, which are slow, compute once for all the other paths. */
static void check_type(const path_list *paths, const vt_convolution *shape, vt_type type)
{
    if (paths->count == 0) return;
    const results plain = convolve(paths->plain, shape, VT_FLOAT32, type);
    const double unit = type == VT_FLOAT32 ? 0 : half_unit(type);
    const int64_t points = shape->batch * shape->side * shape->side * shape->side;
    for (int i = 0; i < paths->count; i++) {
        const double of_gradients = rounds_gradients(paths->isa[i]) ? unit : 0;
        const results fast = convolve(paths->at[i], shape, type, type);
        compare(&fast, &plain,
                (const double[]){unit + tolerance(64 * shape->in), unit + tolerance(8 * shape->out),
                                 of_gradients + tolerance(points)});
    }
}

static void check_convolution(const path_list *paths, int64_t batch, int64_t side, int64_t in, int64_t out)
{
    for (int type = VT_FLOAT32; type <= VT_FLOAT16; type++)
        check_type(paths, &(vt_convolution){batch, side, in, out}, (vt_type)type);
}

/* Many points and few, of one channel's vector and of several. */
TEST(convolutions_do_not_depend_on_threads)
{
    static const vt_convolution shapes[] = {{2, 8, 33, 130}, {1, 16, 4, 64}, {1, 32, 3, 40},
                                            {1, 4, 35, 300}, {1, 2, 66, 9},  {2, 3, 5, 7}};
    static const int threads[] = {1, 2, 5, 8};
    if (vt_test_gpu_alone()) return;
    for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++) {
        const vt_type type = s % 2 == 0 ? VT_FLOAT32 : VT_BFLOAT16;
        results made[4];
        for (int i = 0; i < 4; i++) {
            vt_backend *b = NULL;
            EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, threads[i], &b));
            made[i] = convolve(b, &shapes[s / 2], type, type);
            EXPECT_OK(b->check(b));
            vt_backend_close(&b);
            compare(&made[i], &made[0], (const double[]){0, 0, 0});
        }
    }
}

static void check_activation(const path_list *paths, vt_activation kind, int64_t rows, int64_t columns)
{
    guarded bias = guarded_random(1, columns, 1, 1), dy = guarded_random(rows, columns, 2, 1);
    guarded more = guarded_random(rows, columns, 3, 1), y[2], dx[2], dbias[2];
    for (int i = -1; i < paths->count; i++) {
        vt_backend *b = i < 0 ? paths->plain : paths->at[i];
        const int of = i >= 0;
        y[of] = guarded_random(rows, columns, 4, 12); /* tanh: from its polynomial to 1 */
        dx[of] = guarded_open(rows, columns);
        dbias[of] = guarded_random(1, columns, 5, 1);
        b->bias_activation_forward(b, kind, bias.matrix.data, y[of].matrix);
        b->bias_activation_backward(b, kind, y[of].matrix, dy.matrix, more.matrix, dx[of].matrix,
                                    dbias[of].matrix.data);
        if (i < 0) continue;
        guarded_compare(&y[1], &y[0], tolerance(1), "activation y");
        guarded_compare(&dx[1], &dx[0], tolerance(1), "activation dx");
        guarded_compare(&dbias[1], &dbias[0], tolerance(rows), "activation dbias");
        for (int all_ones = 0; all_ones < 2; all_ones++) { /* as in a file that was filled with ones */
            y[1].matrix.data[0] = NAN;
            if (all_ones) memset(y[1].matrix.data, 0xff, sizeof(float));
            b->bias_activation_forward(b, kind, bias.matrix.data, y[1].matrix);
            EXPECT(isnan(y[1].matrix.data[0]), "%s, activation %d: %g", b->name, (int)kind,
                   (double)y[1].matrix.data[0]);
        }
    }
}

static bool takes_convolutions(vt_cpu_isa isa)
{
    return isa <= PATH_GPU || isa == PATH_CUDNN;
}

/* The GPU's code on the host is slow, and takes any size in the same way. */
static bool is_on_host(vt_cpu_isa isa)
{
    return isa == PATH_HOST_CUDA || isa == PATH_CUDNN;
}

static bool is_not_on_host(vt_cpu_isa isa)
{
    return isa <= VT_ISA_AMX || isa == PATH_GPU;
}

GPU_TEST(convolutions_and_activations)
{
    path_list paths = open_paths(takes_convolutions);
    check_convolution(&paths, 1, 1, 1, 1);
    check_convolution(&paths, 2, 3, 4, 7);
    check_convolution(&paths, 2, 1, 64, 65);
    for (int kind = VT_ACTIVATION_LEAKY; kind <= VT_ACTIVATION_TANH; kind++) {
        check_activation(&paths, (vt_activation)kind, 1, 1);
        check_activation(&paths, (vt_activation)kind, 2100, 37);
    }
    close_paths(&paths);
    paths = open_paths(is_on_host);
    check_convolution(&paths, 2, 2, 5, 16);
    close_paths(&paths);
    paths = open_paths(is_not_on_host);
    check_convolution(&paths, 1, 8, 5, 16);
    check_convolution(&paths, 1, 3, 33, 49);
    check_convolution(&paths, 5, 4, 66, 7);
    check_convolution(&paths, 1, 4, 35, 300);  /* fewer rows than the weight has */
    check_convolution(&paths, 2, 9, 17, 9);    /* more planes than are gathered at once, across the cubes' border */
    check_convolution(&paths, 1, 33, 1, 3);    /* more points in a plane */
    check_convolution(&paths, 1, 11, 1, 1400); /* more rows than are gathered at once, and fewer than the weight has */
    close_paths(&paths);
}

LONG_GPU_TEST(convolutions_of_many_products)
{
    path_list paths = open_paths(is_not_on_host);
    check_convolution(&paths, 2, 8, 33, 130);
    close_paths(&paths);
}
