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

/* The same operands each time, as numbers of `type`, which weights, x and dy are first rounded to. A weight's gradient
 * that is stored comes into memory full of NaN. */
static results convolve(vt_backend *b, const vt_convolution *shape, vt_type type, vt_type round)
{
    const int64_t rows = shape->batch * shape->side * shape->side * shape->side, columns = shape->in * 64;
    guarded of[] = {guarded_random(8 * rows, shape->in, 1, 1), guarded_random(rows, shape->out, 2, 1),
                    guarded_random(shape->out, columns, 3, 1)};
    vt_matrix operands[3], outputs[2];
    results r = {guarded_open(rows, shape->out), guarded_open(8 * rows, shape->in),
                 shape->stores ? guarded_open(1, shape->out * columns) : guarded_random(1, shape->out * columns, 4, 1)};
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
    vt_convolution with_squares = *shape;
    double squares = -1, expected = 0;
    with_squares.squares = shape->stores ? &squares : NULL;
    b->convolution_backward_weight(b, &with_squares, operands[0], operands[1], r.dweight.matrix.data);
    vt_plain_sum_of_squares(b, r.dweight.matrix.data, shape->out * columns, 1, &expected);
    EXPECT(squares < 0 || fabs(squares - expected) <= 1e-6 * expected, "%s: %g, %g", b->name, squares, expected);
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
    vt_convolution shape = {batch, side, in, out, false, NULL};
    check_type(paths, &shape, VT_FLOAT32);
    check_type(paths, &shape, VT_BFLOAT16);
    shape.stores = true;
    check_type(paths, &shape, VT_FLOAT32);
    check_type(paths, &shape, VT_FLOAT16);
}

/* Few channels of x (amx/convolution_thin.c), with the smallest side that this file takes. */
static void check_thin(const path_list *paths, int64_t in, int64_t out)
{
    check_type(paths, &(vt_convolution){1, 32, in, out, false, NULL}, VT_FLOAT32);
    check_type(paths, &(vt_convolution){1, 32, in, out, true, NULL}, VT_BFLOAT16);
}

/* Many points and few, of one channel's vector and of several. */
TEST(convolutions_do_not_depend_on_threads)
{
    static const vt_convolution shapes[] = {{2, 8, 33, 130, true, NULL}, {1, 16, 4, 64, false, NULL},
                                            {1, 32, 3, 40, true, NULL},  {1, 4, 35, 300, true, NULL},
                                            {1, 2, 66, 9, false, NULL},  {2, 3, 5, 7, true, NULL},
                                            {1, 8, 64, 192, false, NULL}};
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

/* Gradients that are stored past the caches are those that are added to 0: over 1, 8 and 64 points. */
TEST(large_gradients_are_stored)
{
    enum { IN = 128, OUT = 131 };
    const size_t count = (size_t)IN * 64 * OUT;
    if (vt_test_gpu_alone()) return;
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= PATH_TILES_MODEL; isa++) {
        vt_backend *b = NULL;
        void *made[2];
        if ((isa > VT_ISA_AMX && isa != PATH_TILES_MODEL) || !path_is_available(isa)) continue;
        EXPECT_OK(path_open(isa, &b));
        for (int i = 0; i < 2; i++) EXPECT_OK(b->allocate(b, VT_MEMORY_WORKSPACE, count * sizeof(float), &made[i]));
        for (int64_t side = 1; side <= 4; side *= 2) {
            const int64_t points = side * side * side;
            const guarded x = guarded_random(8 * points, IN, 1, 1), dy = guarded_random(points, OUT, 2, 1);
            vt_convolution shape = {1, side, IN, OUT, false, NULL};
            float *const added = made[0], *const stored = made[1];
            memset(added, 0, count * sizeof *added);
            memset(stored, 0xff, count * sizeof *stored); /* NaN */
            b->convolution_backward_weight(b, &shape, x.matrix, dy.matrix, added);
            shape.stores = true;
            b->convolution_backward_weight(b, &shape, x.matrix, dy.matrix, stored);
            size_t different = 0;
            for (size_t i = 0; i < count; i++) different += !(added[i] == stored[i]);
            EXPECT(different == 0);
        }
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
}

/* Against the squares of the plain loops' gradient. In the last case the gradient is 0: two points cancel each other.
 */
TEST(squares_of_few_points)
{
    static const vt_convolution shapes[] = {{1, 1, 5, 3, true, NULL},
                                            {2, 1, 33, 49, true, NULL},
                                            {1, 2, 16, 130, true, NULL},
                                            {1, 3, 7, 9, true, NULL},
                                            {4, 2, 20, 8, true, NULL}};
    if (vt_test_gpu_alone()) return;
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= VT_ISA_AMX; isa++) {
        vt_backend *b = NULL;
        if (!path_is_available(isa)) continue;
        EXPECT_OK(path_open(isa, &b));
        for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
            const vt_convolution *s = &shapes[i / 3];
            const vt_type type = (vt_type[]){VT_FLOAT32, VT_BFLOAT16, VT_FLOAT16}[i % 3];
            const int64_t points = s->batch * s->side * s->side * s->side, count = 64 * s->in * s->out;
            const twins x = twins_random(type, 8 * points, s->in, 1, 1, TWINS_APART);
            const twins dy = twins_random(type, points, s->out, 2, 1, TWINS_APART);
            float *dweight = vt_test_owned(calloc((size_t)count, sizeof *dweight));
            double squares = 7, expected = 7;
            vt_plain_convolution_backward_weight(b, s, x.wide, dy.wide, dweight);
            vt_plain_sum_of_squares(b, dweight, count, 1, &expected);
            b->convolution_squares(b, s, x.own, dy.own, &squares);
            EXPECT_NEAR(squares, expected, 1e-6 * expected);
        }
        float same[16], apart[2] = {0.7f, -0.7f};
        double squares = 0;
        for (int i = 0; i < 16; i++) same[i] = 0.3f;
        b->convolution_squares(b, &(vt_convolution){2, 1, 1, 1, true, NULL}, vt_matrix_make(same, 16, 1),
                               vt_matrix_make(apart, 2, 1), &squares);
        EXPECT(squares >= 0 && squares < 1e-12);
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
}

/* Of the updated numbers: as the update by a gradient that the plain loops stored. */
static void check_update(vt_backend *b, const vt_convolution *shape, vt_type type, const vt_update *update)
{
    static const char *const names[] = {"weight", "moment1", "moment2"};
    const int64_t points = shape->batch * shape->side * shape->side * shape->side, count = 64 * shape->in * shape->out;
    const twins x = twins_random(type, 8 * points, shape->in, 1, 1, TWINS_APART);
    const twins dy = twins_random(type, points, shape->out, 2, 1, TWINS_APART);
    const vt_step_state state = {.learning_rate = 1e-2, .factor = 0.7f, .correction1 = 0.3, .correction2 = 0.2},
                        not_finite = {.factor = NAN};
    const guarded gradient = guarded_open(1, count);
    guarded numbers[2][3];
    vt_plain_convolution_backward_weight(b, shape, x.wide, dy.wide, gradient.matrix.data);
    for (int i = 0; i < 2; i++) {
        const guarded_rounded rounded = guarded_rounded_open(update->rounded, count);
        float *of[3];
        for (int k = 0; k < 3; k++) {
            numbers[i][k] = guarded_random(1, count, 3 + (uint64_t)k, 0.1f);
            of[k] = numbers[i][k].matrix.data;
        }
        for (int64_t j = 0; j < count; j++) of[2][j] = fabsf(of[2][j]);
        if (i == 0) {
            vt_plain_update(b, update, &state, gradient.matrix.data, of[0], rounded.at, of[1], of[2], count);
        } else {
            b->convolution_update(b, shape, x.own, dy.own, update, &not_finite, of[0], NULL, of[1], of[2]);
            b->convolution_update(b, shape, x.own, dy.own, update, &state, of[0], rounded.at, of[1], of[2]);
        }
        guarded_rounded_check(&rounded, of[0], "an update of few points");
    }
    for (int k = 0; k < 3; k++) guarded_compare(&numbers[1][k], &numbers[0][k], 1e-5, names[k]);
}

TEST(updates_of_few_points)
{
    static const vt_convolution shapes[] = {
        {1, 1, 5, 3, true, NULL}, {1, 2, 16, 130, true, NULL}, {4, 2, 70, 8, true, NULL}};
    static const vt_update updates[] = {
        {.kind = VT_OPTIMIZER_Adam, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
        {.kind = VT_OPTIMIZER_AdamW, .beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-4, .weight_decay = 0.1}};
    if (vt_test_gpu_alone()) return;
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= VT_ISA_AMX; isa++) {
        vt_backend *b = NULL;
        if (!path_is_available(isa)) continue;
        EXPECT_OK(path_open(isa, &b));
        for (size_t i = 0; i < 6 * sizeof shapes / sizeof *shapes; i++) {
            vt_update update = updates[i % 2];
            update.rounded = (vt_type[]){VT_FLOAT32, VT_BFLOAT16, VT_FLOAT16}[i / 2 % 3];
            check_update(b, &shapes[i / 6], update.rounded, &update);
        }
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
}

/* A large y goes past the caches if its rows are aligned. Here the first y is and the second is not: both get the same
 * numbers, and nothing is written between their rows. */
TEST(a_large_y_is_stored)
{
    enum { SIDE = 32, OUT = 32, ROWS = SIDE * SIDE * SIDE };
    const vt_convolution shape = {1, SIDE, 1, OUT, false, NULL};
    if (vt_test_gpu_alone()) return;
    for (vt_cpu_isa isa = VT_ISA_AMX; isa <= PATH_TILES_MODEL; isa++) {
        vt_backend *b = NULL;
        void *made[2];
        size_t different = 0;
        if ((isa != VT_ISA_AMX && isa != PATH_TILES_MODEL) || !path_is_available(isa)) continue;
        EXPECT_OK(path_open(isa, &b));
        const guarded x = guarded_random(8 * ROWS, 1, 1, 1), numbers = guarded_random(1, 64 * OUT, 2, 1);
        const vt_matrix weight = {.data = numbers.matrix.data, .rows = OUT, .columns = 64, .stride = 64};
        for (int i = 0; i < 2; i++) {
            EXPECT_OK(b->allocate(b, VT_MEMORY_WORKSPACE, (2 * OUT * ROWS + 1) * sizeof(float), &made[i]));
            made[i] = (float *)made[i] + i;
            memset(made[i], 0xff, 2 * OUT * ROWS * sizeof(float));
            const vt_matrix y = {.data = made[i], .rows = ROWS, .columns = OUT, .stride = 2 * OUT};
            b->convolution_forward(b, &shape, x.matrix, weight, y);
        }
        for (size_t i = 0; i < 2 * OUT * ROWS; i++)
            different += (i % (2 * OUT) < OUT) != (((float *)made[0])[i] == ((float *)made[1])[i]);
        EXPECT(different == 0);
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
}

static bool is_tiles_model(vt_cpu_isa isa)
{
    return isa == PATH_TILES_MODEL;
}

LONG_TEST(convolutions_on_the_model_of_tiles)
{
    path_list paths = open_paths(is_tiles_model);
    check_convolution(&paths, 2, 8, 32, 33);
    check_type(&paths, &(vt_convolution){1, 8, 32, 64, false, NULL}, VT_FLOAT32); /* convolution_few.c */
    check_thin(&paths, 1, 33);
    /* more cells than are in memory at once */
    check_type(&paths, &(vt_convolution){1, 14, 33, 34, true, NULL}, VT_FLOAT32);
    close_paths(&paths);
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

static bool is_amx(vt_cpu_isa isa)
{
    return isa == VT_ISA_AMX;
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
    check_convolution(&paths, 1, 4, 35, 300); /* fewer rows than the weight has */
    check_convolution(&paths, 4, 5, 17, 9);   /* more points than are gathered at once */
    close_paths(&paths);
    paths = open_paths(is_amx);
    check_thin(&paths, 5, 33);
    check_thin(&paths, 8, 32);
    close_paths(&paths);
}

LONG_GPU_TEST(convolutions_of_many_products)
{
    path_list paths = open_paths(is_not_on_host);
    check_convolution(&paths, 2, 8, 33, 130);
    close_paths(&paths);
    paths = open_paths(is_amx);
    check_convolution(&paths, 1, 8, 96, 128);
    close_paths(&paths);
}
