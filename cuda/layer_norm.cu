/* LayerNorm: one warp a row, which stays in registers up to 2048 columns (forward) or 1024 (backward). */
#include "mask.h"
#include "sums.h"

enum { WARPS = 8, MOST_BACKWARD_BLOCKS = 256 };

/* The columns of group g of this lane. */
__device__ static inline int64_t column_of(int g)
{
    return ((int64_t)g * 32 + (int)threadIdx.x % 32) * VT_GROUP;
}

__device__ static inline int count_of(int64_t columns, int64_t column)
{
    return column < columns ? vt_count(columns, column) : 0;
}

typedef struct {
    vt_matrix x, branch; /* branch.data NULL: none */
    vt_mask mask;
    bool active; /* the mask */
    const float *weight, *bias;
    float epsilon;
    vt_matrix sum; /* x + masked(branch) */
    vt_matrix y;
    float *mean, *rstd;
    bool wide;
} forward_arguments;

/* Eight columns of what is normalised; with a branch the sum is stored, and the masked branch, too. */
__device__ static inline void load_input(const forward_arguments &a, int64_t row, int64_t column, int count,
                                         float values[VT_GROUP])
{
    vt_load(a.x, row * a.x.stride + column, count, a.wide, values);
    if (a.branch.data == NULL || count == 0) return;
    float added[VT_GROUP];
    vt_load(a.branch, row * a.branch.stride + column, count, a.wide, added);
    if (a.active) {
        vt_mask_apply(a.mask, row, column, added);
        vt_store(a.branch, row * a.branch.stride + column, count, a.wide, added);
    }
    for (int i = 0; i < VT_GROUP; i++) values[i] = values[i] + added[i];
    vt_store(a.sum, row * a.sum.stride + column, count, a.wide, values);
}

__device__ static inline void store_normed(const forward_arguments &a, int64_t row, int64_t column, int count,
                                           float mean, float rstd, const float values[VT_GROUP])
{
    if (count == 0) return;
    float weight[VT_GROUP], bias[VT_GROUP], normed[VT_GROUP];
    vt_load_floats(a.weight + column, count, a.wide, weight);
    vt_load_floats(a.bias + column, count, a.wide, bias);
    for (int i = 0; i < VT_GROUP; i++) normed[i] = fmaf((values[i] - mean) * rstd, weight[i], bias[i]);
    vt_store(a.y, row * a.y.stride + column, count, a.wide, normed);
}

template <int GROUPS> VT_KERNEL void __launch_bounds__(32 * WARPS) forward_kernel(forward_arguments a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, columns = a.x.columns;
    if (row >= a.x.rows) return;
    float values[GROUPS][VT_GROUP], sum = 0, squares = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        load_input(a, row, column_of(g), count_of(columns, column_of(g)), values[g]);
        for (int i = 0; i < VT_GROUP; i++) sum += values[g][i];
    }
    float mean = vt_warp_sum(sum) / (float)columns;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int count = count_of(columns, column_of(g));
        for (int i = 0; i < VT_GROUP; i++) {
            float distance = i < count ? values[g][i] - mean : 0.0f;
            squares = fmaf(distance, distance, squares);
        }
    }
    float rstd = 1.0f / sqrtf(vt_warp_sum(squares) / (float)columns + a.epsilon);
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        store_normed(a, row, column_of(g), count_of(columns, column_of(g)), mean, rstd, values[g]);
    if (threadIdx.x % 32 != 0) return;
    a.mean[row] = mean;
    a.rstd[row] = rstd;
}

/* Rows that registers can't hold: read three times. */
VT_KERNEL void __launch_bounds__(32 * WARPS) forward_long_kernel(forward_arguments a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, columns = a.x.columns;
    if (row >= a.x.rows) return;
    int groups = (int)((columns + 32 * VT_GROUP - 1) / (32 * VT_GROUP));
    float values[VT_GROUP], sum = 0, squares = 0;
    for (int g = 0; g < groups; g++) {
        load_input(a, row, column_of(g), count_of(columns, column_of(g)), values);
        for (int i = 0; i < VT_GROUP; i++) sum += values[i];
    }
    const vt_matrix &again = a.branch.data != NULL ? a.sum : a.x;
    float mean = vt_warp_sum(sum) / (float)columns;
    for (int g = 0; g < groups; g++) {
        int count = count_of(columns, column_of(g));
        vt_load(again, row * again.stride + column_of(g), count, a.wide, values);
        for (int i = 0; i < VT_GROUP; i++) {
            float distance = i < count ? values[i] - mean : 0.0f;
            squares = fmaf(distance, distance, squares);
        }
    }
    float rstd = 1.0f / sqrtf(vt_warp_sum(squares) / (float)columns + a.epsilon);
    for (int g = 0; g < groups; g++) {
        int count = count_of(columns, column_of(g));
        vt_load(again, row * again.stride + column_of(g), count, a.wide, values);
        store_normed(a, row, column_of(g), count, mean, rstd, values);
    }
    if (threadIdx.x % 32 != 0) return;
    a.mean[row] = mean;
    a.rstd[row] = rstd;
}

static void launch_forward(vt_backend *backend, forward_arguments a)
{
    dim3 blocks((unsigned)((a.x.rows + WARPS - 1) / WARPS));
    int64_t groups = (vt_groups(a.x.columns) + 31) / 32;
    if (groups <= 1)
        VT_LAUNCH(forward_kernel<1>, blocks, 32 * WARPS, 0, backend, a);
    else if (groups <= 2)
        VT_LAUNCH(forward_kernel<2>, blocks, 32 * WARPS, 0, backend, a);
    else if (groups <= 4)
        VT_LAUNCH(forward_kernel<4>, blocks, 32 * WARPS, 0, backend, a);
    else if (groups <= 8)
        VT_LAUNCH(forward_kernel<8>, blocks, 32 * WARPS, 0, backend, a);
    else
        VT_LAUNCH(forward_long_kernel, blocks, 32 * WARPS, 0, backend, a);
}

static void layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias, float epsilon,
                               vt_matrix y, float *mean, float *rstd)
{
    forward_arguments a = {};
    a.x = x, a.weight = weight, a.bias = bias, a.epsilon = epsilon, a.y = y, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x) && vt_is_wide(y) && vt_is_wide(weight) && vt_is_wide(bias);
    launch_forward(backend, a);
}

static void residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                float *mean, float *rstd)
{
    forward_arguments a = {};
    a.x = x, a.branch = branch, a.mask = *mask, a.active = vt_mask_is_active(mask), a.sum = y;
    a.weight = weight, a.bias = bias, a.epsilon = epsilon, a.y = normed, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x) && vt_is_wide(branch) && vt_is_wide(y) && vt_is_wide(normed) && vt_is_wide(weight) &&
             vt_is_wide(bias);
    launch_forward(backend, a);
}

typedef struct {
    vt_matrix x, dy, dx;
    const float *weight, *mean, *rstd;
    int64_t rows_a_block;
    float *partial; /* [blocks, 2, columns]: of dweight and dbias */
    bool wide;
} backward_arguments;

/* With h = (x - mean) * rstd and g = dy * weight: dx += rstd * (g - mean(g) - h * mean(g * h)). */
__device__ static inline void add_input_gradient(const backward_arguments &a, int64_t row, int64_t column, int count,
                                                 float rstd, float g_mean, float product_mean, const float h[VT_GROUP],
                                                 const float g[VT_GROUP])
{
    if (count == 0) return;
    float dx[VT_GROUP];
    vt_load(a.dx, row * a.dx.stride + column, count, a.wide, dx);
    for (int i = 0; i < VT_GROUP; i++) dx[i] = fmaf(rstd, g[i] - g_mean - h[i] * product_mean, dx[i]);
    vt_store(a.dx, row * a.dx.stride + column, count, a.wide, dx);
}

/* The warps of a block take its rows in turn; each keeps its sums of dweight and dbias, then they are added in order.
 */
template <int GROUPS> VT_KERNEL void __launch_bounds__(32 * WARPS) backward_kernel(backward_arguments a)
{
    VT_DYNAMIC_SHARED(float, shared); /* [2, GROUPS, VT_GROUP, 32]: neighbouring lanes in neighbouring banks */
    const int half = GROUPS * VT_GROUP * 32;
    int64_t columns = a.x.columns, first = (int64_t)blockIdx.x * a.rows_a_block;
    int64_t end = first + a.rows_a_block < a.x.rows ? first + a.rows_a_block : a.x.rows;
    int warp = (int)threadIdx.x / 32;
    float dweight[GROUPS][VT_GROUP] = {}, dbias[GROUPS][VT_GROUP] = {}, h[GROUPS][VT_GROUP], g[GROUPS][VT_GROUP];
    for (int64_t row = first + warp; row < end; row += WARPS) {
        float mean = a.mean[row], rstd = a.rstd[row], sum = 0, product = 0;
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            int64_t column = column_of(j);
            int count = count_of(columns, column);
            float weight[VT_GROUP];
            vt_load(a.x, row * a.x.stride + column, count, a.wide, h[j]);
            vt_load(a.dy, row * a.dy.stride + column, count, a.wide, g[j]);
            vt_load_floats(a.weight + column, count, a.wide, weight);
            for (int i = 0; i < VT_GROUP; i++) {
                h[j][i] = (h[j][i] - mean) * rstd;
                dweight[j][i] = fmaf(g[j][i], h[j][i], dweight[j][i]);
                dbias[j][i] += g[j][i];
                g[j][i] *= weight[i];
                sum += g[j][i];
                product = fmaf(g[j][i], h[j][i], product);
            }
        }
        sum = vt_warp_sum(sum) / (float)columns;
        product = vt_warp_sum(product) / (float)columns;
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            add_input_gradient(a, row, column_of(j), count_of(columns, column_of(j)), rstd, sum, product, h[j], g[j]);
    }
    for (int w = 0; w < WARPS; w++) {
        if (warp == w) {
#pragma unroll
            for (int j = 0; j < GROUPS; j++) {
                for (int i = 0; i < VT_GROUP; i++) {
                    int place = (j * VT_GROUP + i) * 32 + (int)threadIdx.x % 32;
                    shared[place] = w == 0 ? dweight[j][i] : shared[place] + dweight[j][i];
                    shared[half + place] = w == 0 ? dbias[j][i] : shared[half + place] + dbias[j][i];
                }
            }
        }
        __syncthreads();
    }
    float *partial = a.partial + blockIdx.x * 2 * columns;
    for (int column = (int)threadIdx.x; column < (int)columns; column += (int)blockDim.x) {
        int group = column / VT_GROUP, place = (group / 32 * VT_GROUP + column % VT_GROUP) * 32 + group % 32;
        partial[column] = shared[place];
        partial[columns + column] = shared[half + place];
    }
}

/* Long rows: the input's gradient, a warp a row; then the columns' sums. */
VT_KERNEL void __launch_bounds__(32 * WARPS) backward_long_kernel(backward_arguments a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, columns = a.x.columns;
    if (row >= a.x.rows) return;
    int groups = (int)((columns + 32 * VT_GROUP - 1) / (32 * VT_GROUP));
    float mean = a.mean[row], rstd = a.rstd[row], sum = 0, product = 0, h[VT_GROUP], g[VT_GROUP], weight[VT_GROUP];
    for (int pass = 0; pass < 2; pass++) {
        for (int j = 0; j < groups; j++) {
            int64_t column = column_of(j);
            int count = count_of(columns, column);
            vt_load(a.x, row * a.x.stride + column, count, a.wide, h);
            vt_load(a.dy, row * a.dy.stride + column, count, a.wide, g);
            vt_load_floats(a.weight + column, count, a.wide, weight);
            for (int i = 0; i < VT_GROUP; i++) h[i] = (h[i] - mean) * rstd, g[i] *= weight[i];
            if (pass == 1) {
                add_input_gradient(a, row, column, count, rstd, sum, product, h, g);
                continue;
            }
            for (int i = 0; i < VT_GROUP; i++) sum += g[i], product = fmaf(g[i], h[i], product);
        }
        if (pass == 1) break;
        sum = vt_warp_sum(sum) / (float)columns;
        product = vt_warp_sum(product) / (float)columns;
    }
}

/* A thread adds one column over a block's rows. */
VT_KERNEL void weight_gradient_kernel(backward_arguments a)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, columns = a.x.columns;
    int64_t first = (int64_t)blockIdx.y * a.rows_a_block;
    int64_t end = first + a.rows_a_block < a.x.rows ? first + a.rows_a_block : a.x.rows;
    if (column >= columns) return;
    float dweight = 0, dbias = 0;
    for (int64_t row = first; row < end; row++) {
        float gradient = vt_element(a.dy, row * a.dy.stride + column);
        float h = (vt_element(a.x, row * a.x.stride + column) - a.mean[row]) * a.rstd[row];
        dweight = fmaf(gradient, h, dweight);
        dbias += gradient;
    }
    a.partial[(2 * blockIdx.y) * columns + column] = dweight;
    a.partial[(2 * blockIdx.y + 1) * columns + column] = dbias;
}

static void layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                const float *rstd, vt_matrix dy, vt_matrix dx, float *dweight, float *dbias)
{
    backward_arguments a = {};
    a.x = x, a.dy = dy, a.dx = dx, a.weight = weight, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x) && vt_is_wide(dy) && vt_is_wide(dx) && vt_is_wide(weight);
    int64_t blocks = (x.rows + WARPS - 1) / WARPS, columns = x.columns;
    if (blocks > MOST_BACKWARD_BLOCKS) blocks = MOST_BACKWARD_BLOCKS;
    a.rows_a_block = (x.rows + blocks - 1) / blocks;
    blocks = (x.rows + a.rows_a_block - 1) / a.rows_a_block;
    a.partial = (float *)vt_common(backend)->workspace(backend, (size_t)(2 * blocks * columns) * sizeof *a.partial);
    if (a.partial == NULL) return;
    int64_t groups = (vt_groups(columns) + 31) / 32;
    const size_t bytes = 2 * VT_GROUP * 32 * sizeof(float); /* a group's */
    dim3 grid((unsigned)blocks);
    if (groups <= 1) {
        VT_LAUNCH(backward_kernel<1>, grid, 32 * WARPS, bytes, backend, a);
    } else if (groups <= 2) {
        VT_LAUNCH(backward_kernel<2>, grid, 32 * WARPS, 2 * bytes, backend, a);
    } else if (groups <= 4) {
        VT_LAUNCH(backward_kernel<4>, grid, 32 * WARPS, 4 * bytes, backend, a);
    } else {
        VT_LAUNCH(backward_long_kernel, dim3((unsigned)((x.rows + WARPS - 1) / WARPS)), 32 * WARPS, 0, backend, a);
        VT_LAUNCH(weight_gradient_kernel, dim3((unsigned)((columns + 127) / 128), (unsigned)blocks), 128, 0, backend,
                  a);
    }
    vt_add_partial_sums(backend, a.partial, blocks, 2 * columns, columns, dweight);
    vt_add_partial_sums(backend, a.partial + columns, blocks, 2 * columns, columns, dbias);
}

void VT_CUDA_NAME(layer_norm_fill)(vt_backend *backend)
{
    backend->layer_norm_forward = layer_norm_forward;
    backend->residual_layer_norm = residual_layer_norm;
    backend->layer_norm_backward = layer_norm_backward;
}
