/* The plain loops against PyTorch in float64 (operations.h5), and each backward against finite differences of its own
 * forward. */
#include "golden/golden_file.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 1; /* of dropout */

/* Half a unit in the last place is what storing a result in float32 costs. */
static const double stored = 0x1p-23;

static void compare(hid_t file, const char *group, const char *name, const float *actual, double tolerance)
{
    int64_t count;
    const double *expected = golden_read(file, &count, "%s/%s", group, name);
    const double difference = golden_difference(actual, expected, count);
    EXPECT(difference <= tolerance, "%s/%s: differs by %.3g, allowed %.3g", group, name, difference, tolerance);
}

static void check_gelu(hid_t file, vt_backend *b)
{
    for (int kind = VT_GELU_ERF; kind <= VT_GELU_TANH; kind++) {
        const char *group = kind == VT_GELU_ERF ? "gelu/erf" : "gelu/tanh";
        int64_t count;
        float *x = golden_read_float(file, &count, "%s/%s", group, "x"),
              *dy = golden_read_float(file, &count, "%s/%s", group, "grad_output");
        float *y = vt_test_owned(malloc((size_t)count * sizeof *y)),
              *dx = vt_test_owned(malloc((size_t)count * sizeof *dx));
        b->gelu_forward(b, (vt_gelu)kind, vt_matrix_make(x, 1, count), vt_matrix_make(y, 1, count));
        b->gelu_backward(b, (vt_gelu)kind, vt_matrix_make(x, 1, count), vt_matrix_make(dy, 1, count),
                         vt_matrix_make(dx, 1, count), (vt_matrix){0});
        compare(file, group, "output", y, stored);
        compare(file, group, "grad_x", dx, stored);
    }
}

static void check_layer_norm(hid_t file, vt_backend *b, const char *group, double tolerance)
{
    enum { ROWS = 5, COLUMNS = 37 };
    int64_t count;
    float *x = golden_read_float(file, &count, "%s/%s", group, "x"),
          *dy = golden_read_float(file, &count, "%s/%s", group, "grad_output");
    float *weight = golden_read_float(file, &count, "%s/%s", group, "weight"),
          *bias = golden_read_float(file, &count, "%s/%s", group, "bias");
    float y[ROWS * COLUMNS], dx[ROWS * COLUMNS] = {0}, dweight[COLUMNS] = {0}, dbias[COLUMNS] = {0}, mean[ROWS],
                                       rstd[ROWS];
    vt_matrix input = vt_matrix_make(x, ROWS, COLUMNS), gradient = vt_matrix_make(dy, ROWS, COLUMNS);
    b->layer_norm_forward(b, input, weight, bias, 1e-6f, vt_matrix_make(y, ROWS, COLUMNS), mean, rstd);
    b->layer_norm_backward(b, input, weight, mean, rstd, gradient, vt_matrix_make(dx, ROWS, COLUMNS), (vt_matrix){0},
                           dweight, dbias);
    compare(file, group, "output", y, stored);
    compare(file, group, "mean", mean, stored);
    compare(file, group, "rstd", rstd, stored);
    /* backward reads mean and rstd as they are stored */
    compare(file, group, "grad_x", dx, tolerance);
    compare(file, group, "grad_weight", dweight, tolerance);
    compare(file, group, "grad_bias", dbias, stored);
}

static void check_attention(hid_t file, vt_backend *b, const char *group)
{
    enum { BATCH = 2, TOKENS = 13, WIDTH = 24, COUNT = BATCH * TOKENS * WIDTH };
    vt_attention_shape shape = {.batch = BATCH, .heads = 3, .head_dim = 8, .queries = TOKENS, .keys = TOKENS};
    int64_t count;
    static const char *const names[4] = {"q", "k", "v", "grad_output"};
    float *in[4], out[COUNT], dq[COUNT], dk[COUNT], dv[COUNT], log_sum[BATCH * 3 * TOKENS];
    vt_matrix m[4];
    for (int i = 0; i < 4; i++) {
        in[i] = golden_read_float(file, &count, "%s/%s", group, names[i]);
        m[i] = vt_matrix_make(in[i], BATCH * TOKENS, WIDTH);
    }
    vt_matrix result = vt_matrix_make(out, BATCH * TOKENS, WIDTH);
    b->attention_forward(b, &shape, m[0], m[1], m[2], result, log_sum);
    b->attention_backward(b, &shape, m[0], m[1], m[2], result, log_sum, m[3], vt_matrix_make(dq, BATCH * TOKENS, WIDTH),
                          vt_matrix_make(dk, BATCH * TOKENS, WIDTH), vt_matrix_make(dv, BATCH * TOKENS, WIDTH));
    /* out and log_sum are stored in between; an error of half a unit of log_sum changes every weight of its row by that
     * much */
    double score = golden_attribute(file, group, "largest_score"), tolerance = (4 + score) * stored;
    compare(file, group, "output", out, stored);
    compare(file, group, "grad_q", dq, 4 * tolerance);
    compare(file, group, "grad_k", dk, 4 * tolerance);
    compare(file, group, "grad_v", dv, tolerance);
}

TEST(operations_are_pytorchs)
{
    hid_t file = golden_open("operations.h5");
    SCOPED(vt_backend) *b = open_path(VT_ISA_PLAIN);
    check_gelu(file, b);
    check_layer_norm(file, b, "layer_norm/plain", 4 * stored);
    check_layer_norm(file, b, "layer_norm/small_variance", 4 * stored);
    check_layer_norm(file, b, "layer_norm/offset",
                     1000 * stored); /* half a unit of the mean, 1000, against deviations of 1 */
    check_attention(file, b, "attention/plain");
    check_attention(file, b, "attention/large_scores");
}

/* ---- finite differences ---- */

/* A function of one array x: results [output_count] from x [count], and its gradient for the sum of weights · results.
 */
typedef struct problem problem;
struct problem {
    const char *name;
    int64_t count, output_count;
    void (*forward)(vt_backend *b, const float *x, float *results);
    void (*backward)(vt_backend *b, const float *x, const float *weights, float *gradient);
};

enum { MOST = 4096 };

/* Sum of weights · results at x + step · direction; `moved` gets the point as float32 has it. */
static double value_at(const problem *p, vt_backend *b, const float *x, const float *direction, double step,
                       const float *weights, float *moved)
{
    float results[MOST];
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++) moved[i] = (float)((double)x[i] + step * (double)direction[i]);
    p->forward(b, moved, results);
    for (int64_t i = 0; i < p->output_count; i++) sum += (double)weights[i] * (double)results[i];
    return sum;
}

/* The central difference along `direction` minus the prediction by the gradient, over the distance of the points as
 * stored, so that rounding of x does not count. */
static double mismatch(const problem *p, vt_backend *b, const float *x, const float *direction, double step,
                       const float *weights, const float *gradient, double *slope)
{
    float above[MOST], below[MOST];
    double difference = value_at(p, b, x, direction, step, weights, above);
    difference -= value_at(p, b, x, direction, -step, weights, below);
    double predicted = 0;
    for (int64_t i = 0; i < p->count; i++) predicted += (double)gradient[i] * ((double)above[i] - (double)below[i]);
    *slope = predicted / (2 * step);
    return (difference - predicted) / (2 * step);
}

/* The tolerance has two parts: rounding of the results, each by half a unit, divided by the step; and the difference
 * quotient's own error, c · step², estimated with a step twice as long (whose error is four times as large). */
static void check_problem(const problem *p)
{
    float x[MOST], direction[MOST], weights[MOST], gradient[MOST] = {0}, results[MOST];
    double size = 0, slope;
    const double step = 2e-3;
    VT_ASSERT(p->count <= MOST && p->output_count <= MOST);
    SCOPED(vt_backend) *b = open_path(VT_ISA_PLAIN);
    for (uint64_t trial = 0; trial < 4; trial++) {
        fill_random(x, p->count, 10 * trial + 1, 1);
        fill_random(direction, p->count, 10 * trial + 2, 1);
        fill_random(weights, p->output_count, 10 * trial + 3, 1);
        memset(gradient, 0, sizeof gradient);
        p->forward(b, x, results);
        size = 0;
        for (int64_t i = 0; i < p->output_count; i++) size += fabs((double)weights[i] * (double)results[i]);
        p->backward(b, x, weights, gradient);
        double error = mismatch(p, b, x, direction, step, weights, gradient, &slope), unused;
        double longer = mismatch(p, b, x, direction, 2 * step, weights, gradient, &unused);
        double rounding = 0x1p-24 * size / step;
        double tolerance = 2 * rounding + fabs(longer - error) + 1e-6 * fabs(slope);
        EXPECT(fabs(error) <= tolerance, "%s: slope %.6g is off by %.3g, allowed %.3g", p->name, slope, error,
               tolerance);
        /* the tolerance must be able to catch a wrong gradient */
        EXPECT(tolerance < 0.02 * fabs(slope) + 0.02 * size, "%s: tolerance %.3g beside slope %.3g", p->name, tolerance,
               slope);
    }
}

/* Constant inputs of the problems. */
static void constants(float *values, int64_t count, uint64_t seed)
{
    fill_random(values, count, 1000 + seed, 1);
}

enum { ROWS = 6, IN = 9, OUT = 7 };

static void linear_x_forward(vt_backend *b, const float *x, float *y)
{
    float weight[OUT * IN], bias[OUT];
    constants(weight, OUT * IN, 1);
    constants(bias, OUT, 2);
    b->linear_forward(b, vt_matrix_make((float *)x, ROWS, IN), vt_matrix_make(weight, OUT, IN), bias, NULL,
                      vt_matrix_make(y, ROWS, OUT));
}

static void linear_x_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    float weight[OUT * IN];
    (void)x;
    constants(weight, OUT * IN, 1);
    b->linear_backward_input(b, vt_matrix_make((float *)dy, ROWS, OUT), vt_matrix_make(weight, OUT, IN),
                             vt_matrix_make(dx, ROWS, IN));
}

/* weight and bias one after another */
static void linear_w_forward(vt_backend *b, const float *w, float *y)
{
    float x[ROWS * IN];
    constants(x, ROWS * IN, 3);
    b->linear_forward(b, vt_matrix_make(x, ROWS, IN), vt_matrix_make((float *)w, OUT, IN), w + OUT * IN, NULL,
                      vt_matrix_make(y, ROWS, OUT));
}

static void linear_w_backward(vt_backend *b, const float *w, const float *dy, float *dw)
{
    float x[ROWS * IN];
    (void)w;
    constants(x, ROWS * IN, 3);
    b->linear_backward_weight(b, vt_matrix_make(x, ROWS, IN), vt_matrix_make((float *)dy, ROWS, OUT), dw,
                              dw + OUT * IN);
}

TEST(finite_differences_linear)
{
    check_problem(&(problem){"linear x", ROWS * IN, ROWS * OUT, linear_x_forward, linear_x_backward});
    check_problem(
        &(problem){"linear weight and bias", OUT * IN + OUT, ROWS * OUT, linear_w_forward, linear_w_backward});
}

enum { CUBE_IN = 2, CUBE_OUT = 3, POINTS = 4 * 4 * 4, HALF_POINTS = 2 * 2 * 2, KERNELS = CUBE_OUT * CUBE_IN * 64 };
static const vt_convolution cube = {.batch = 1, .side = 2, .in = CUBE_IN, .out = CUBE_OUT};

static void convolve(vt_backend *b, const float *x, const float *weight, float *y)
{
    b->convolution_forward(b, &cube, vt_matrix_make((float *)x, POINTS, CUBE_IN),
                           vt_matrix_make((float *)weight, CUBE_OUT, CUBE_IN * 64),
                           vt_matrix_make(y, HALF_POINTS, CUBE_OUT));
}

static void convolution_x_forward(vt_backend *b, const float *x, float *y)
{
    float weight[KERNELS];
    constants(weight, KERNELS, 1);
    convolve(b, x, weight, y);
}

static void convolution_x_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    float weight[KERNELS];
    (void)x;
    constants(weight, KERNELS, 1);
    b->convolution_backward_input(b, &cube, vt_matrix_make((float *)dy, HALF_POINTS, CUBE_OUT),
                                  vt_matrix_make(weight, CUBE_OUT, CUBE_IN * 64), vt_matrix_make(dx, POINTS, CUBE_IN));
}

static void convolution_w_forward(vt_backend *b, const float *weight, float *y)
{
    float x[POINTS * CUBE_IN];
    constants(x, POINTS * CUBE_IN, 2);
    convolve(b, x, weight, y);
}

static void convolution_w_backward(vt_backend *b, const float *weight, const float *dy, float *dweight)
{
    float x[POINTS * CUBE_IN];
    (void)weight;
    constants(x, POINTS * CUBE_IN, 2);
    b->convolution_backward_weight(b, &cube, vt_matrix_make(x, POINTS, CUBE_IN),
                                   vt_matrix_make((float *)dy, HALF_POINTS, CUBE_OUT), dweight);
}

TEST(finite_differences_convolution)
{
    check_problem(&(problem){"convolution x", POINTS * CUBE_IN, HALF_POINTS * CUBE_OUT, convolution_x_forward,
                             convolution_x_backward});
    check_problem(&(problem){"convolution weight", KERNELS, HALF_POINTS * CUBE_OUT, convolution_w_forward,
                             convolution_w_backward});
}

/* x, weight and bias one after another */
static void layer_norm_forward(vt_backend *b, const float *x, float *y)
{
    float mean[ROWS], rstd[ROWS];
    b->layer_norm_forward(b, vt_matrix_make((float *)x, ROWS, IN), x + ROWS * IN, x + ROWS * IN + IN, 1e-6f,
                          vt_matrix_make(y, ROWS, IN), mean, rstd);
}

static void layer_norm_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    float mean[ROWS], rstd[ROWS], y[ROWS * IN];
    vt_matrix input = vt_matrix_make((float *)x, ROWS, IN);
    const float *weight = x + ROWS * IN;
    b->layer_norm_forward(b, input, weight, weight + IN, 1e-6f, vt_matrix_make(y, ROWS, IN), mean, rstd);
    b->layer_norm_backward(b, input, weight, mean, rstd, vt_matrix_make((float *)dy, ROWS, IN),
                           vt_matrix_make(dx, ROWS, IN), (vt_matrix){0}, dx + ROWS * IN, dx + ROWS * IN + IN);
}

TEST(finite_differences_layer_norm)
{
    check_problem(&(problem){"layer_norm", ROWS * IN + 2 * IN, ROWS * IN, layer_norm_forward, layer_norm_backward});
}

static vt_gelu gelu;

static void gelu_forward(vt_backend *b, const float *x, float *y)
{
    b->gelu_forward(b, gelu, vt_matrix_make((float *)x, ROWS, IN), vt_matrix_make(y, ROWS, IN));
}

static void gelu_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    b->gelu_backward(b, gelu, vt_matrix_make((float *)x, ROWS, IN), vt_matrix_make((float *)dy, ROWS, IN),
                     vt_matrix_make(dx, ROWS, IN), (vt_matrix){0});
}

TEST(finite_differences_gelu)
{
    for (gelu = VT_GELU_ERF; gelu <= VT_GELU_TANH; gelu++)
        check_problem(&(problem){"gelu", ROWS * IN, ROWS * IN, gelu_forward, gelu_backward});
}

enum { BATCH = 2, HEADS = 2, DIM = 5, TOKENS = 6, QKV = BATCH * TOKENS * HEADS * DIM };

static vt_attention_shape attention_shape = {.batch = BATCH,
                                             .heads = HEADS,
                                             .head_dim = DIM,
                                             .queries = TOKENS,
                                             .keys = TOKENS,
                                             .dropout = {.seed = 3, .step = &dropout_step}}; /* whose rate changes */

static void attention_matrices(const float *x, vt_matrix m[3])
{
    for (int i = 0; i < 3; i++) m[i] = vt_matrix_make((float *)x + i * QKV, BATCH * TOKENS, HEADS * DIM);
}

static void attend(vt_backend *b, const float *x, float *y, float *log_sum)
{
    vt_matrix m[3];
    attention_matrices(x, m);
    b->attention_forward(b, &attention_shape, m[0], m[1], m[2], vt_matrix_make(y, BATCH * TOKENS, HEADS * DIM),
                         log_sum);
}

static void attention_forward(vt_backend *b, const float *x, float *y)
{
    float log_sum[BATCH * HEADS * TOKENS];
    attend(b, x, y, log_sum);
}

static void attention_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    float y[QKV], log_sum[BATCH * HEADS * TOKENS];
    vt_matrix m[3], d[3];
    attention_matrices(x, m);
    attention_matrices(dx, d);
    attend(b, x, y, log_sum);
    b->attention_backward(b, &attention_shape, m[0], m[1], m[2], vt_matrix_make(y, BATCH * TOKENS, HEADS * DIM),
                          log_sum, vt_matrix_make((float *)dy, BATCH * TOKENS, HEADS * DIM), d[0], d[1], d[2]);
}

TEST(finite_differences_attention)
{
    static const float rates[] = {0, 0.4f};
    for (int i = 0; i < 2; i++) {
        attention_shape.dropout.rate = rates[i];
        check_problem(&(problem){i == 0 ? "attention" : "attention with dropout", 3 * QKV, QKV, attention_forward,
                                 attention_backward});
    }
}

/* Missing points, in the target and in the prediction: every seventh, and every eleventh. */
static bool with_gaps;

static void take_gaps(float *target, float *prediction)
{
    for (int i = 0; i < ROWS * IN && with_gaps; i++) {
        if (i % 7 == 2) target[i] = VT_NO_POINT;
        if (i % 11 == 4) prediction[i] = VT_NO_POINT;
    }
}

static vt_loss_measure measure;
static bool with_weights;

/* Without memory where there are none. */
static vt_matrix point_weights(float weights[ROWS / 2 * IN])
{
    constants(weights, ROWS / 2 * IN, 5);
    for (int i = 0; i < ROWS / 2 * IN; i++) weights[i] *= weights[i];
    return with_weights ? vt_matrix_make(weights, ROWS / 2, IN) : (vt_matrix){0};
}

static void loss_of(vt_backend *b, const float *x, float *prediction, float *target, double sums[4])
{
    float weights[ROWS / 2 * IN];
    memcpy(prediction, x, ROWS * IN * sizeof *prediction);
    constants(target, ROWS * IN, 4);
    take_gaps(target, prediction);
    b->loss_sums(b, measure, 2, vt_matrix_make(prediction, ROWS, IN), vt_matrix_make(target, ROWS, IN),
                 point_weights(weights), sums);
}

/* The operation takes one scale for all samples, so both losses weigh the same here. */
static void equal_losses_forward(vt_backend *b, const float *x, float *sum)
{
    float losses[2], prediction[ROWS * IN], target[ROWS * IN];
    double sums[4];
    loss_of(b, x, prediction, target, sums);
    b->loss_values(b, measure, 2, sums, losses, NULL);
    sum[0] = losses[0] + losses[1];
}

static void equal_losses_backward(vt_backend *b, const float *x, const float *weight, float *dx)
{
    float prediction[ROWS * IN], target[ROWS * IN], weights[ROWS / 2 * IN];
    double sums[4];
    loss_of(b, x, prediction, target, sums);
    b->loss_backward(b, measure, 2, vt_matrix_make(prediction, ROWS, IN), vt_matrix_make(target, ROWS, IN),
                     point_weights(weights), sums, weight[0], NULL, vt_matrix_make(dx, ROWS, IN));
}

TEST(finite_differences_loss)
{
    static const char *const names[] = {"relative l2", "mse", "mae"};
    for (int kind = 0; kind < 12; kind++) {
        measure = (vt_loss_measure)(kind / 4);
        with_weights = kind / 2 % 2 == 1;
        with_gaps = kind % 2 == 1;
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", names[measure], with_weights ? " with weights" : "",
                 with_gaps ? " with gaps" : "");
        check_problem(&(problem){name, ROWS * IN, 1, equal_losses_forward, equal_losses_backward});
    }
    with_gaps = false;
}

/* x [ROWS, IN], then position [3, IN] */
static void position_forward(vt_backend *b, const float *x, float *y)
{
    memcpy(y, x, ROWS * IN * sizeof *y);
    b->position_add(b, vt_matrix_make(y, ROWS, IN), vt_matrix_make((float *)x + ROWS * IN, 3, IN));
}

static void position_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    (void)x;
    memcpy(dx, dy, ROWS * IN * sizeof *dx);
    b->position_backward(b, vt_matrix_make((float *)dy, ROWS, IN), vt_matrix_make(dx + ROWS * IN, 3, IN));
}

static vt_mask test_mask(void)
{
    return (vt_mask){.elements = {.rate = 0.3f, .seed = 8, .step = &dropout_step, .site = 2},
                     .path = {.rate = 0.4f, .seed = 8, .step = &dropout_step, .site = 4},
                     .tokens = 1};
}

static void mask_forward(vt_backend *b, const float *x, float *y)
{
    vt_mask mask = test_mask();
    b->mask_multiply(b, vt_matrix_make((float *)x, ROWS, IN), &mask, vt_matrix_make(y, ROWS, IN));
}

static void mask_backward(vt_backend *b, const float *x, const float *dy, float *dx)
{
    (void)x;
    mask_forward(b, dy, dx);
}

TEST(finite_differences_position_and_dropout)
{
    check_problem(&(problem){"position", ROWS * IN + 3 * IN, ROWS * IN, position_forward, position_backward});
    check_problem(&(problem){"dropout and drop path", ROWS * IN, ROWS * IN, mask_forward, mask_backward});
}
