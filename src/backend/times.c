#include "backend/times.h"

#include <stdlib.h>

#include "base/clock.h"

enum { MOST = 128 };

static vt_backend *counting; /* the dry one, whose counts tell what an operation has to do */
static vt_backend real;      /* the table that is timed */
static vt_operation_time times[MOST];
static int used;
static int depth; /* operations that are made of others count once */

/* What the dry back end has counted so far. */
static void counted(double *flops, double *bytes)
{
    const vt_dry_count *count = vt_backend_dry_count(counting);
    *flops = count->flops;
    *bytes = 0;
    for (int i = 0; i < VT_WORK_COUNT; i++) *bytes += count->moved[i];
}

static vt_operation_time *find(const char *operation, int64_t rows, int64_t columns, int64_t deep)
{
    for (int i = 0; i < used; i++) {
        vt_operation_time *t = &times[i];
        if (t->operation == operation && t->rows == rows && t->columns == columns && t->deep == deep) return t;
    }
    if (used < MOST) used++;
    times[used - 1] = (vt_operation_time){.operation = operation, .rows = rows, .columns = columns, .deep = deep};
    return &times[used - 1];
}

/* Now, when all that was asked is done. A failure stays noted for the step's own check. */
static double reached(vt_backend *backend)
{
    if (!backend->shares_host_memory) (void)real.check(backend);
    return vt_clock_seconds();
}

/* TIMED(operation, (parameters), (arguments), rows, columns, depth of the product): a row of the table. */
#define TIMED(operation, parameters, arguments, rows, columns, deep)                                                   \
    static const char operation##_name[] = #operation;                                                                 \
    static void timed_##operation parameters                                                                           \
    {                                                                                                                  \
        double flops = 0, bytes = 0, more_flops = 0, more_bytes = 0, begin = 0;                                        \
        if (depth++ == 0) {                                                                                            \
            vt_backend *real_backend = backend;                                                                        \
            counted(&flops, &bytes);                                                                                   \
            backend = counting;                                                                                        \
            if (counting->operation != NULL) counting->operation arguments;                                            \
            backend = real_backend;                                                                                    \
            counted(&more_flops, &more_bytes);                                                                         \
            begin = reached(backend);                                                                                  \
        }                                                                                                              \
        real.operation arguments;                                                                                      \
        if (--depth > 0) return;                                                                                       \
        vt_operation_time *time = find(operation##_name, rows, columns, deep);                                         \
        time->seconds += reached(backend) - begin;                                                                     \
        time->flops += more_flops - flops;                                                                             \
        time->bytes += more_bytes - bytes;                                                                             \
        time->calls++;                                                                                                 \
    }

TIMED(zero, (vt_backend * backend, void *memory, size_t bytes_), (backend, memory, bytes_), 0, 0, 0)
TIMED(convert, (vt_backend * backend, vt_matrix from, vt_matrix to), (backend, from, to), 0, 0, 0)
TIMED(linear_forward, (vt_backend * backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y),
      (backend, x, weight, bias, y), y.rows, y.columns, x.columns)
TIMED(linear_backward_input, (vt_backend * backend, vt_matrix dy, vt_matrix weight, vt_matrix dx),
      (backend, dy, weight, dx), dx.rows, dx.columns, dy.columns)
TIMED(linear_backward_weight, (vt_backend * backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias),
      (backend, x, dy, dweight, dbias), dy.columns, x.columns, x.rows)
TIMED(layer_norm_forward,
      (vt_backend * backend, vt_matrix x, const float *weight, const float *bias, float epsilon, vt_matrix y,
       float *mean, float *rstd),
      (backend, x, weight, bias, epsilon, y, mean, rstd), 0, 0, 0)
TIMED(layer_norm_backward,
      (vt_backend * backend, vt_matrix x, const float *weight, const float *mean, const float *rstd, vt_matrix dy,
       vt_matrix dx, float *dweight, float *dbias),
      (backend, x, weight, mean, rstd, dy, dx, dweight, dbias), 0, 0, 0)
TIMED(gelu_forward, (vt_backend * backend, vt_gelu kind, vt_matrix x, vt_matrix y), (backend, kind, x, y), 0, 0, 0)
TIMED(gelu_backward, (vt_backend * backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y),
      (backend, kind, x, dy, dx, y), 0, 0, 0)
TIMED(attention_forward,
      (vt_backend * backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v, vt_matrix out,
       float *log_sum),
      (backend, shape, q, k, v, out, log_sum), 0, 0, 0)
TIMED(attention_merge,
      (vt_backend * backend, const vt_attention_shape *shape, vt_matrix part, const float *part_log_sum, vt_matrix out,
       float *log_sum),
      (backend, shape, part, part_log_sum, out, log_sum), 0, 0, 0)
TIMED(attention_backward,
      (vt_backend * backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v, vt_matrix out,
       const float *log_sum, vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv),
      (backend, shape, q, k, v, out, log_sum, dout, dq, dk, dv), 0, 0, 0)
TIMED(residual_add, (vt_backend * backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y),
      (backend, x, branch, mask, y), 0, 0, 0)
TIMED(mask_multiply, (vt_backend * backend, vt_matrix x, const vt_mask *mask, vt_matrix y), (backend, x, mask, y), 0, 0,
      0)
TIMED(position_add, (vt_backend * backend, vt_matrix x, vt_matrix position), (backend, x, position), 0, 0, 0)
TIMED(position_backward, (vt_backend * backend, vt_matrix dx, vt_matrix dposition), (backend, dx, dposition), 0, 0, 0)
TIMED(linear_gelu_forward,
      (vt_backend * backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix hidden,
       vt_matrix active),
      (backend, kind, x, weight, bias, hidden, active), hidden.rows, hidden.columns, x.columns)
TIMED(residual_layer_norm,
      (vt_backend * backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, const float *weight, const float *bias,
       float epsilon, vt_matrix y, vt_matrix normed, float *mean, float *rstd),
      (backend, x, branch, mask, weight, bias, epsilon, y, normed, mean, rstd), 0, 0, 0)
TIMED(patches_load,
      (vt_backend * backend, const vt_patch_grid *grid, const float *fields, const float *mean,
       const float *inverse_std, vt_matrix patches),
      (backend, grid, fields, mean, inverse_std, patches), 0, 0, 0)
TIMED(squared_norms, (vt_backend * backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares),
      (backend, batch, prediction, target, squares), 0, 0, 0)
TIMED(relative_l2_backward,
      (vt_backend * backend, int64_t batch, vt_matrix prediction, vt_matrix target, const double *squares, float scale,
       const double *loss_scale, vt_matrix dprediction),
      (backend, batch, prediction, target, squares, scale, loss_scale, dprediction), 0, 0, 0)
TIMED(gelu_backward_bias,
      (vt_backend * backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y, float *dbias),
      (backend, kind, x, dy, dx, y, dbias), 0, 0, 0)
TIMED(relative_l2, (vt_backend * backend, int64_t batch, const double *squares, float *losses, double *sum),
      (backend, batch, squares, losses, sum), 0, 0, 0)
TIMED(step_decide, (vt_backend * backend, const vt_update *update, vt_step_state *state), (backend, update, state), 0,
      0, 0)
TIMED(first_nonfinite,
      (vt_backend * backend, const float *x, const int64_t *ranges, int64_t count, const double *figure,
       int32_t *first),
      (backend, x, ranges, count, figure, first), 0, 0, 0)
TIMED(copy, (vt_backend * backend, void *to, const void *from, size_t bytes_), (backend, to, from, bytes_), 0, 0, 0)
TIMED(copy_from_host, (vt_backend * backend, void *memory, const void *host, size_t bytes_),
      (backend, memory, host, bytes_), 0, 0, 0)
TIMED(copy_to_host, (vt_backend * backend, void *host, const void *memory, size_t bytes_),
      (backend, host, memory, bytes_), 0, 0, 0)
TIMED(sum_of_squares, (vt_backend * backend, const float *x, int64_t count, double weight, double *result),
      (backend, x, count, weight, result), 0, 0, 0)
TIMED(update,
      (vt_backend * backend, const vt_update *update, const vt_step_state *state, const float *gradients,
       float *parameters, float *moment1, float *moment2, int64_t count),
      (backend, update, state, gradients, parameters, moment1, moment2, count), 0, 0, 0)

vt_status vt_times_open(vt_backend *backend)
{
    vt_status status = VT_OK;
    VT_TRY(vt_backend_open_dry(&counting));
    vt_times_clear();
    real = *backend;
#define TAKE(operation) backend->operation = timed_##operation
    TAKE(zero);
    TAKE(convert);
    TAKE(linear_forward);
    TAKE(linear_backward_input);
    TAKE(linear_backward_weight);
    TAKE(layer_norm_forward);
    TAKE(layer_norm_backward);
    TAKE(gelu_forward);
    TAKE(gelu_backward);
    TAKE(attention_forward);
    TAKE(attention_merge);
    TAKE(attention_backward);
    TAKE(residual_add);
    TAKE(mask_multiply);
    TAKE(position_add);
    TAKE(position_backward);
    TAKE(linear_gelu_forward);
    TAKE(residual_layer_norm);
    TAKE(patches_load);
    TAKE(squared_norms);
    TAKE(relative_l2_backward);
    if (real.gelu_backward_bias != NULL) TAKE(gelu_backward_bias);
    TAKE(relative_l2);
    TAKE(step_decide);
    TAKE(first_nonfinite);
    TAKE(copy);
    TAKE(copy_from_host);
    TAKE(copy_to_host);
    TAKE(sum_of_squares);
    TAKE(update);
done:
    return status;
}

void vt_times_close(vt_backend *backend)
{
    if (counting == NULL) return;
    *backend = real;
    vt_backend_close(&counting);
}

void vt_times_clear(void)
{
    used = 0;
}

static int longer_first(const void *a, const void *b)
{
    double difference = ((const vt_operation_time *)b)->seconds - ((const vt_operation_time *)a)->seconds;
    return difference < 0 ? -1 : difference > 0;
}

const vt_operation_time *vt_times_sorted(int *count)
{
    qsort(times, (size_t)used, sizeof times[0], longer_first);
    *count = used;
    return times;
}
