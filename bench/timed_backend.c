#include "timed_backend.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "report/profile.h"

typedef enum { PRODUCTS, ATTENTION, NORM, GELU, RESIDUAL, PATCHES_AND_LOSS, OPTIMIZER, COPIES, CLASS_COUNT } class_of;

static const char *const names[CLASS_COUNT] = {"products", "attention",        "LayerNorm", "GELU",
                                               "residual", "patches and loss", "optimizer", "copies"};
static vt_backend plain; /* the table as it was */
static double sums[CLASS_COUNT];
static long calls;

static double start(vt_backend *backend)
{
    (void)plain.check(backend); /* a failure stays noted, and the step's own check reports it */
    return vt_clock_seconds();
}

static void stop(vt_backend *backend, class_of kind, double begin)
{
    (void)plain.check(backend);
    sums[kind] += vt_clock_seconds() - begin;
    calls++;
}

/* One operation, in the table's words: parameters and arguments in parentheses. */
#define TIMED(kind, operation, parameters, arguments)                                                                  \
    static void timed_##operation parameters                                                                           \
    {                                                                                                                  \
        double begin = start(b);                                                                                       \
        plain.operation arguments;                                                                                     \
        stop(b, kind, begin);                                                                                          \
    }

TIMED(RESIDUAL, convert, (vt_backend * b, vt_matrix from, vt_matrix to), (b, from, to))
TIMED(PRODUCTS, linear_forward, (vt_backend * b, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y),
      (b, x, weight, bias, y))
TIMED(PRODUCTS, linear_backward_input, (vt_backend * b, vt_matrix dy, vt_matrix weight, vt_matrix dx),
      (b, dy, weight, dx))
TIMED(PRODUCTS, linear_backward_weight, (vt_backend * b, vt_matrix x, vt_matrix dy, float *dweight, float *dbias),
      (b, x, dy, dweight, dbias))
TIMED(PRODUCTS, linear_gelu_forward,
      (vt_backend * b, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix hidden,
       vt_matrix active),
      (b, kind, x, weight, bias, hidden, active))
TIMED(NORM, layer_norm_forward,
      (vt_backend * b, vt_matrix x, const float *weight, const float *bias, float epsilon, vt_matrix y, float *mean,
       float *rstd),
      (b, x, weight, bias, epsilon, y, mean, rstd))
TIMED(NORM, layer_norm_backward,
      (vt_backend * b, vt_matrix x, const float *weight, const float *mean, const float *rstd, vt_matrix dy,
       vt_matrix dx, float *dweight, float *dbias),
      (b, x, weight, mean, rstd, dy, dx, dweight, dbias))
TIMED(NORM, residual_layer_norm,
      (vt_backend * b, vt_matrix x, vt_matrix branch, const vt_mask *mask, const float *weight, const float *bias,
       float epsilon, vt_matrix y, vt_matrix normed, float *mean, float *rstd),
      (b, x, branch, mask, weight, bias, epsilon, y, normed, mean, rstd))
TIMED(GELU, gelu_forward, (vt_backend * b, vt_gelu kind, vt_matrix x, vt_matrix y), (b, kind, x, y))
TIMED(GELU, gelu_backward, (vt_backend * b, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y),
      (b, kind, x, dy, dx, y))
TIMED(GELU, gelu_backward_bias,
      (vt_backend * b, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y, float *dbias),
      (b, kind, x, dy, dx, y, dbias))
TIMED(ATTENTION, attention_forward,
      (vt_backend * b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v, vt_matrix out,
       float *log_sum),
      (b, shape, q, k, v, out, log_sum))
TIMED(ATTENTION, attention_backward,
      (vt_backend * b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v, vt_matrix out,
       const float *log_sum, vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv),
      (b, shape, q, k, v, out, log_sum, dout, dq, dk, dv))
TIMED(RESIDUAL, residual_add, (vt_backend * b, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y),
      (b, x, branch, mask, y))
TIMED(RESIDUAL, mask_multiply, (vt_backend * b, vt_matrix x, const vt_mask *mask, vt_matrix y), (b, x, mask, y))
TIMED(RESIDUAL, position_add, (vt_backend * b, vt_matrix x, vt_matrix position), (b, x, position))
TIMED(RESIDUAL, position_backward, (vt_backend * b, vt_matrix dx, vt_matrix dposition), (b, dx, dposition))
TIMED(PATCHES_AND_LOSS, patches_load,
      (vt_backend * b, const vt_patch_grid *grid, const float *fields, const float *mean, const float *inverse_std,
       vt_matrix patches),
      (b, grid, fields, mean, inverse_std, patches))
TIMED(PATCHES_AND_LOSS, squared_norms,
      (vt_backend * b, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares),
      (b, batch, prediction, target, squares))
TIMED(PATCHES_AND_LOSS, relative_l2, (vt_backend * b, int64_t batch, const double *squares, float *losses, double *sum),
      (b, batch, squares, losses, sum))
TIMED(PATCHES_AND_LOSS, relative_l2_backward,
      (vt_backend * b, int64_t batch, vt_matrix prediction, vt_matrix target, const double *squares, float scale,
       const double *loss_scale, vt_matrix dprediction),
      (b, batch, prediction, target, squares, scale, loss_scale, dprediction))
TIMED(OPTIMIZER, sum_of_squares, (vt_backend * b, const float *x, int64_t count, double weight, double *result),
      (b, x, count, weight, result))
TIMED(OPTIMIZER, step_decide, (vt_backend * b, const vt_update *update, vt_step_state *state), (b, update, state))
TIMED(OPTIMIZER, first_nonfinite,
      (vt_backend * b, const float *x, const int64_t *ranges, int64_t count, const double *figure, int32_t *first),
      (b, x, ranges, count, figure, first))
TIMED(OPTIMIZER, update,
      (vt_backend * b, const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
       float *moment1, float *moment2, int64_t count),
      (b, update, state, gradients, parameters, moment1, moment2, count))
TIMED(COPIES, zero, (vt_backend * b, void *memory, size_t bytes), (b, memory, bytes))
TIMED(COPIES, copy_from_host, (vt_backend * b, void *memory, const void *host, size_t bytes), (b, memory, host, bytes))
TIMED(COPIES, copy_to_host, (vt_backend * b, void *host, const void *memory, size_t bytes), (b, host, memory, bytes))

#define EXCHANGE(operation) backend->operation = timed_##operation

void timed_backend_begin(vt_backend *backend)
{
    plain = *backend;
    vt_profile_pretend(true);
    memset(sums, 0, sizeof sums);
    calls = 0;
    EXCHANGE(convert);
    EXCHANGE(linear_forward);
    EXCHANGE(linear_backward_input);
    EXCHANGE(linear_backward_weight);
    EXCHANGE(linear_gelu_forward);
    EXCHANGE(layer_norm_forward);
    EXCHANGE(layer_norm_backward);
    EXCHANGE(residual_layer_norm);
    EXCHANGE(gelu_forward);
    EXCHANGE(gelu_backward);
    if (plain.gelu_backward_bias != NULL) EXCHANGE(gelu_backward_bias);
    EXCHANGE(attention_forward);
    EXCHANGE(attention_backward);
    EXCHANGE(residual_add);
    EXCHANGE(mask_multiply);
    EXCHANGE(position_add);
    EXCHANGE(position_backward);
    EXCHANGE(patches_load);
    EXCHANGE(squared_norms);
    EXCHANGE(relative_l2);
    EXCHANGE(relative_l2_backward);
    EXCHANGE(sum_of_squares);
    EXCHANGE(step_decide);
    EXCHANGE(first_nonfinite);
    EXCHANGE(update);
    EXCHANGE(zero);
    EXCHANGE(copy_from_host);
    EXCHANGE(copy_to_host);
}

void timed_backend_end(vt_backend *backend)
{
    *backend = plain;
    vt_profile_pretend(false);
}

void timed_backend_print(double step_seconds)
{
    double sum = 0;
    printf("{");
    for (int i = 0; i < CLASS_COUNT; i++) {
        printf("\"%s\": %.6f, ", names[i], sums[i]);
        sum += sums[i];
    }
    printf("\"between operations\": %.6f, \"step_seconds\": %.6f, \"calls\": %ld}\n", step_seconds - sum, step_seconds,
           calls);
}
