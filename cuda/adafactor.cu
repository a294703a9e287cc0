/* Adafactor: sums of squares by rows and columns, the means they move, and the update (backend/factored.h). */
#include "sums.h"

#include "backend/factored.h"

enum { MOST_BLOCKS = 1024, PART_ROWS = 64 };

/* A warp for each line. totals [blocks]: of a block's lines. */
VT_KERNEL void row_squares_kernel(vt_factored shape, const float *x, double *sums, double *totals)
{
    __shared__ double shared[32];
    int lane = (int)threadIdx.x % 32;
    int64_t index = vt_factored_first_line(&shape) + vt_thread() / 32;
    double sum = 0;
    if (index < vt_factored_end_line(&shape)) {
        const vt_factored_line line = vt_factored_line_at(&shape, index);
        for (int64_t j = lane; j < line.length; j += 32) sum += (double)x[line.begin + j] * (double)x[line.begin + j];
        sum = vt_warp_sum(sum);
        if (lane == 0) sums[line.row] += sum;
    }
    sum = vt_block_sum(lane == 0 ? sum : 0, shared);
    if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}

/* The columns of the matrices that the operands reach into: the number of the first of these matrices, in the part. */
typedef struct {
    int64_t first_matrix, count, parts;
} column_range;

/* partial [parts, count]: a thread for each column of each matrix, and of PART_ROWS of its rows. */
VT_KERNEL void column_squares_kernel(vt_factored shape, column_range range, const float *x, double *partial)
{
    int64_t own = vt_thread(), row = (int64_t)blockIdx.y * PART_ROWS;
    if (own >= range.count) return;
    int64_t matrix = range.first_matrix + own / shape.part_columns, column = own % shape.part_columns;
    int64_t end = min(row + PART_ROWS, shape.part_rows);
    double sum = 0;
    for (; row < end; row++) {
        int64_t at = (matrix * shape.part_rows + row) * shape.part_columns + column - shape.first;
        if (at >= 0 && at < shape.count) sum += (double)x[at] * (double)x[at];
    }
    partial[blockIdx.y * range.count + own] = sum;
}

VT_KERNEL void add_columns_kernel(vt_factored shape, column_range range, const double *partial, double *sums)
{
    int64_t own = vt_thread();
    if (own >= range.count) return;
    int64_t matrix = shape.first_matrix + range.first_matrix + own / shape.part_columns;
    int64_t column = shape.first_column + own % shape.part_columns;
    double sum = 0;
    for (int64_t p = 0; p < range.parts; p++) sum += partial[p * range.count + own];
    sums[shape.matrices * shape.rows + matrix * shape.columns + column] += sum;
}

void VT_CUDA_NAME(factored_squares)(vt_backend *backend, const vt_factored *shape, const float *x, double *sums,
                                    double weight, double *result)
{
    int64_t first = vt_factored_first_line(shape), end = vt_factored_end_line(shape);
    if (shape->count == 0) return;
    column_range range = {first / shape->part_rows, 0, (shape->part_rows + PART_ROWS - 1) / PART_ROWS};
    range.count = ((end - 1) / shape->part_rows - range.first_matrix + 1) * shape->part_columns;
    dim3 columns = vt_blocks(range.count), lines = vt_blocks(32 * (end - first));
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(range.parts * range.count + lines.x) *
                                                                           sizeof *partial);
    if (partial == NULL) return;
    double *totals = partial + range.parts * range.count;
    VT_LAUNCH(row_squares_kernel, lines, VT_BLOCK_THREADS, 0, backend, *shape, x, sums, totals);
    vt_add_partial(backend, totals, lines.x, weight, result);
    VT_LAUNCH(column_squares_kernel, dim3(columns.x, (unsigned)range.parts), VT_BLOCK_THREADS, 0, backend, *shape,
              range, x, partial);
    VT_LAUNCH(add_columns_kernel, columns, VT_BLOCK_THREADS, 0, backend, *shape, range, partial, sums);
}

/* A block for each matrix. */
VT_KERNEL void means_kernel(vt_update update, const vt_step_state *state, vt_factored shape, const double *sums,
                            float *row, float *column, float *scales)
{
    __shared__ double shared[32];
    double keep = vt_adafactor_keep(&update, state), more = vt_adafactor_more(&update), mean = 0;
    double factor = (double)state->factor * (double)state->factor, least = vt_adafactor_least(&update);
    if (isnan(state->factor)) return;
    int64_t rows = (int64_t)blockIdx.x * shape.rows, columns = (int64_t)blockIdx.x * shape.columns;
    int64_t behind = shape.matrices * shape.rows + columns;
    for (int64_t i = threadIdx.x; i < shape.rows; i += blockDim.x) {
        double now = factor * sums[rows + i] / (double)shape.columns + more;
        row[rows + i] = (float)(keep * (double)row[rows + i] + (1 - keep) * now);
        mean += (double)row[rows + i] / (double)shape.rows;
    }
    mean = fmax(vt_block_sum(mean, shared), least);
    for (int64_t i = threadIdx.x; i < shape.rows; i += blockDim.x)
        scales[rows + i] = (float)sqrt(mean / (double)row[rows + i]);
    for (int64_t j = threadIdx.x; j < shape.columns; j += blockDim.x) {
        double now = factor * sums[behind + j] / (double)shape.rows + more;
        column[columns + j] = (float)(keep * (double)column[columns + j] + (1 - keep) * now);
        scales[behind + j] = 1 / sqrtf(column[columns + j]);
    }
}

void VT_CUDA_NAME(adafactor_means)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                   const vt_factored *shape, const double *sums, float *row, float *column,
                                   float *scales)
{
    VT_LAUNCH(means_kernel, dim3((unsigned)shape->matrices), VT_BLOCK_THREADS, 0, backend, *update, state, *shape, sums,
              row, column, scales);
}

/* 1 / the root of an element's mean square, `most` at most. */
__device__ static inline float scale_of(const vt_factored &shape, const float *scales, int64_t at, float most)
{
    int64_t line, column, matrix, row;
    vt_split(shape.first + at, shape.part_columns, &line, &column);
    vt_split(line, shape.part_rows, &matrix, &row);
    matrix += shape.first_matrix;
    return fminf(scales[matrix * shape.rows + shape.first_row + row] *
                     scales[shape.matrices * shape.rows + matrix * shape.columns + shape.first_column + column],
                 most);
}

/* partial [2, blocks]: of the squares of values, and of steps. */
VT_KERNEL void norm_kernel(vt_update update, const vt_step_state *state, vt_factored shape, const float *gradients,
                           const float *values, const float *scales, float *moment2, double *partial)
{
    __shared__ double shared[32];
    float factor = state->factor, most = (float)(1 / vt_adafactor_least(&update));
    float more = (float)vt_adafactor_more(&update);
    float keep = (float)vt_adafactor_keep(&update, state);
    double sum = 0, of_values = 0;
    for (int64_t i = vt_thread(); i < shape.count && !isnan(factor); i += vt_thread_count()) {
        of_values += (double)values[i] * (double)values[i];
        float gradient = factor * gradients[i], scale;
        if (shape.rows == 0) {
            moment2[i] = fmaf(keep, moment2[i], (1 - keep) * fmaf(gradient, gradient, more));
            scale = fminf(1 / sqrtf(moment2[i]), most);
        } else {
            scale = scale_of(shape, scales, i, most);
        }
        sum += (double)(gradient * scale) * (double)(gradient * scale);
    }
    sum = vt_block_sum(sum, shared);
    of_values = vt_block_sum(of_values, shared);
    if (threadIdx.x > 0) return;
    partial[blockIdx.x] = of_values;
    partial[gridDim.x + blockIdx.x] = sum;
}

void VT_CUDA_NAME(adafactor_norm)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                  const vt_factored *shape, const float *gradients, const float *values,
                                  const float *scales, float *moment2, double *sizes)
{
    if (shape->count == 0) return;
    int64_t blocks = min((int64_t)vt_blocks(shape->count).x, (int64_t)MOST_BLOCKS);
    double *partial = (double *)vt_common(backend)->workspace(backend, 2 * (size_t)blocks * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(norm_kernel, dim3((unsigned)blocks), VT_BLOCK_THREADS, 0, backend, *update, state, *shape, gradients,
              values, scales, moment2, partial);
    for (int k = 0; k < 2 && sizes != NULL; k++) vt_add_partial(backend, partial + k * blocks, blocks, 1, &sizes[k]);
}

VT_KERNEL void apply_kernel(vt_update update, const vt_step_state *state, vt_factored shape, const float *gradients,
                            const float *scales, const float *moment2, const double *sizes, float *values,
                            vt_matrix rounded, float *moment1)
{
    __shared__ float shared_rate;
    float factor = state->factor, most = (float)(1 / vt_adafactor_least(&update)), keep = (float)update.adafactor.beta1;
    float shrink = (float)(1 - state->learning_rate * update.weight_decay);
    if (isnan(factor)) return;
    if (threadIdx.x == 0) shared_rate = (float)vt_adafactor_rate(&update, state, &shape, sizes);
    __syncthreads();
    float rate = shared_rate;
    for (int64_t i = vt_thread(); i < shape.count; i += vt_thread_count()) {
        float scale = shape.rows == 0 ? fminf(1 / sqrtf(moment2[i]), most) : scale_of(shape, scales, i, most);
        float change = rate * (factor * gradients[i] * scale);
        if (moment1 != NULL) moment1[i] = change = fmaf(keep, moment1[i], (1 - keep) * change);
        float value = fmaf(values[i], shrink, -change);
        values[i] = value;
        if (rounded.data != NULL) vt_set_element(rounded, i, value);
    }
}

void VT_CUDA_NAME(adafactor_apply)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                   const vt_factored *shape, const float *gradients, const float *scales,
                                   const float *moment2, const double *sizes, float *values, uint16_t *rounded,
                                   float *moment1)
{
    VT_SPREAD(apply_kernel, shape->count, backend, *update, state, *shape, gradients, scales, moment2, sizes, values,
              vt_rounded(update, rounded, shape->count), moment1);
}
