/* LayerNorm: one warp a row, which stays in registers up to 1024 columns (forward of aligned float32: 2048). A row's
 * loads are all under way before the first is waited for. */
#include "mask.h"
#include "sums.h"

enum { WARPS = 8 };

/* The columns of group g of this lane. */
__device__ static inline int64_t column_of(int g)
{
    return ((int64_t)g * 32 + (int)threadIdx.x % 32) * VT_GROUP;
}

__device__ static inline int count_of(int64_t columns, int64_t column)
{
    return column < columns ? vt_count(columns, column) : 0;
}

/* What a kernel is specialised for. With fewer cases, the compiler keeps a row's loads together and in fewer
 * registers. */
typedef enum {
    ANY,
    /* As in every model's residual stream: all but normed rows, branches and dy are float32, branches and dy have the
     * form's type, and all accesses are of 16 bytes. */
    FLOAT32,
    BFLOAT16,
    FLOAT16
} form;

__device__ static inline int count_of(form made_for, int64_t columns, int64_t column)
{
    if (made_for == ANY) return count_of(columns, column);
    return column < columns ? (int)VT_GROUP : 0;
}

/* Of the stream. */
__device__ static inline constexpr vt_type type_of(form made_for, vt_type type)
{
    return made_for == ANY ? type : VT_FLOAT32;
}

/* Of a branch or dy. */
__host__ __device__ static inline constexpr vt_type type_beside(form made_for, vt_type type)
{
    return made_for == BFLOAT16  ? VT_BFLOAT16
           : made_for == FLOAT16 ? VT_FLOAT16
           : made_for == FLOAT32 ? VT_FLOAT32
                                 : type;
}

/* launch<form>(...) for a branch, or dy, of this type; ANY unless all else fits the other forms. */
#define BY_FORM(fits, type, launch, ...)                                                                               \
    do {                                                                                                               \
        if (!(fits))                                                                                                   \
            launch<ANY>(__VA_ARGS__);                                                                                  \
        else if ((type) == VT_BFLOAT16)                                                                                \
            launch<BFLOAT16>(__VA_ARGS__);                                                                             \
        else if ((type) == VT_FLOAT16)                                                                                 \
            launch<FLOAT16>(__VA_ARGS__);                                                                              \
        else                                                                                                           \
            launch<FLOAT32>(__VA_ARGS__);                                                                              \
    } while (0)

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

/* Eight columns of a row. */
typedef struct {
    vt_raw x, branch;
} input_part;

__device__ static inline input_part fetch_input(const forward_arguments &a, int64_t row, int64_t column, int count)
{
    input_part part;
    int also = a.branch.data != NULL ? count : 0;
    part.x = vt_fetch(a.x, row * a.x.stride + column, count, a.wide);
    part.branch = vt_fetch(a.branch, row * a.branch.stride + column, also, a.wide);
    return part;
}

/* The row to normalise; with a branch the sum is stored, and so is the masked branch. */
__device__ static inline void make_input(const forward_arguments &a, const input_part &part, int64_t row,
                                         int64_t column, int count, float values[VT_GROUP])
{
    vt_widen_eight(a.x.type, part.x, values);
    if (a.branch.data == NULL || count == 0) return;
    float added[VT_GROUP];
    vt_widen_eight(a.branch.type, part.branch, added);
    if (a.active) {
        vt_mask_apply(a.mask, row, column, added);
        vt_as_stored(a.branch.type, added);
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

/* Blocks on a multiprocessor, as registers allow. */
__host__ __device__ constexpr int forward_blocks(int groups)
{
    return groups <= 1 ? 5 : groups <= 2 ? 3 : groups <= 4 ? 2 : 0;
}

template <int GROUPS, form FORM>
VT_KERNEL void __launch_bounds__(32 * WARPS, FORM == ANY ? 0 : forward_blocks(GROUPS))
    forward_kernel(const forward_arguments given)
{
    forward_arguments a = given;
    a.x.type = type_of(FORM, a.x.type), a.branch.type = type_beside(FORM, a.branch.type);
    a.sum.type = type_of(FORM, a.sum.type);
    a.wide = FORM != ANY || a.wide;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, columns = a.x.columns;
    if (row >= a.x.rows) return;
    int counts[GROUPS];
    input_part parts[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        counts[g] = count_of(FORM, columns, column_of(g));
        parts[g] = fetch_input(a, row, column_of(g), counts[g]);
    }
    __syncwarp(); /* ptxas moves no load over this: otherwise it issues some loads only where others are waited for */
    float values[GROUPS][VT_GROUP], sum = 0, squares = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        make_input(a, parts[g], row, column_of(g), counts[g], values[g]);
        for (int i = 0; i < VT_GROUP; i++) sum += values[g][i];
    }
    float mean = vt_warp_sum(sum) / (float)columns;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < VT_GROUP; i++) {
            float distance = i < counts[g] ? values[g][i] - mean : 0.0f;
            squares = fmaf(distance, distance, squares);
        }
    }
    float rstd = 1.0f / sqrtf(vt_warp_sum(squares) / (float)columns + a.epsilon);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) store_normed(a, row, column_of(g), counts[g], mean, rstd, values[g]);
    if (threadIdx.x % 32 != 0) return;
    a.mean[row] = mean;
    a.rstd[row] = rstd;
}

/* Rows too long for registers: read three times. */
VT_KERNEL void __launch_bounds__(32 * WARPS) forward_long_kernel(forward_arguments a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, columns = a.x.columns;
    if (row >= a.x.rows) return;
    int groups = (int)((columns + 32 * VT_GROUP - 1) / (32 * VT_GROUP));
    float values[VT_GROUP], sum = 0, squares = 0;
    for (int g = 0; g < groups; g++) {
        int count = count_of(columns, column_of(g));
        make_input(a, fetch_input(a, row, column_of(g), count), row, column_of(g), count, values);
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

template <form FORM> static void launch_forward_of(vt_backend *backend, forward_arguments a)
{
    const int64_t groups = (vt_groups(a.x.columns) + 31) / 32;
    constexpr form EIGHT = FORM == ANY ? FLOAT32 : FORM; /* no instance for ANY: its long rows are read three times */
    const auto kernel = groups <= 1                  ? forward_kernel<1, FORM>
                        : groups <= 2                ? forward_kernel<2, FORM>
                        : groups <= 4                ? forward_kernel<4, FORM>
                        : groups <= 8 && FORM != ANY ? forward_kernel<8, EIGHT>
                                                     : forward_long_kernel;
    VT_LAUNCH(kernel, (unsigned)((a.x.rows + WARPS - 1) / WARPS), 32 * WARPS, 0, backend, a);
}

static void launch_forward(vt_backend *backend, forward_arguments a)
{
    const bool floats = a.x.type == VT_FLOAT32 && (a.branch.data == NULL || a.sum.type == VT_FLOAT32);
    BY_FORM(floats && a.wide && a.x.columns % VT_GROUP == 0, a.branch.type, launch_forward_of, backend, a);
}

void VT_CUDA_NAME(layer_norm_forward)(vt_backend *backend, vt_matrix x, const float *weight, const float *bias,
                                      float epsilon, vt_matrix y, float *mean, float *rstd)
{
    forward_arguments a = {};
    a.x = x, a.weight = weight, a.bias = bias, a.epsilon = epsilon, a.y = y, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x, y, weight, bias);
    launch_forward(backend, a);
}

void VT_CUDA_NAME(residual_layer_norm)(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                       const float *weight, const float *bias, float epsilon, vt_matrix y,
                                       vt_matrix normed, float *mean, float *rstd)
{
    forward_arguments a = {};
    a.x = x, a.branch = branch, a.mask = *mask, a.active = vt_mask_is_active(mask), a.sum = y;
    a.weight = weight, a.bias = bias, a.epsilon = epsilon, a.y = normed, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x, branch, y, normed, weight, bias);
    launch_forward(backend, a);
}

typedef struct {
    vt_matrix x, dy, dx, rounded; /* rounded.data NULL: not wanted */
    const float *weight, *mean, *rstd;
    int64_t rows_a_block;
    float *partial; /* [blocks, 2, columns]: of dweight and dbias */
    bool wide;
} backward_arguments;

/* Eight columns of a row. */
typedef struct {
    vt_raw x, dy, dx;
} row_part;

__device__ static inline row_part fetch_part(const backward_arguments &a, int64_t row, int64_t column, int count)
{
    row_part part;
    part.x = vt_fetch(a.x, row * a.x.stride + column, count, a.wide);
    part.dy = vt_fetch(a.dy, row * a.dy.stride + column, count, a.wide);
    part.dx = vt_fetch(a.dx, row * a.dx.stride + column, count, a.wide);
    return part;
}

/* With h = (x - mean) * rstd and g = dy * weight: dx += rstd * (g - mean(g) - h * mean(g * h)). */
__device__ static inline void add_input_gradient(const backward_arguments &a, const row_part &part, int64_t row,
                                                 int64_t column, int count, float rstd, float g_mean,
                                                 float product_mean, const float h[VT_GROUP], const float g[VT_GROUP])
{
    if (count == 0) return;
    float dx[VT_GROUP];
    vt_widen_eight(a.dx.type, part.dx, dx);
    for (int i = 0; i < VT_GROUP; i++) dx[i] = fmaf(rstd, g[i] - g_mean - h[i] * product_mean, dx[i]);
    vt_store(a.dx, row * a.dx.stride + column, count, a.wide, dx);
    if (a.rounded.data != NULL) vt_store(a.rounded, row * a.rounded.stride + column, count, a.wide, dx);
}

/* Warps of a block, and the blocks on a multiprocessor that registers allow. */
__host__ __device__ constexpr int backward_warps(int groups)
{
    return groups <= 2 ? 8 : 4;
}

__host__ __device__ constexpr int backward_blocks(int groups)
{
    return groups <= 1 ? 3 : 2;
}

/* The warps of a block take its rows in turn; each keeps its own sums of dweight and dbias, which are then added in
 * order. */
template <int GROUPS, form FORM>
VT_KERNEL void __launch_bounds__(32 * backward_warps(GROUPS), FORM == ANY ? 0 : backward_blocks(GROUPS))
    backward_kernel(const backward_arguments given)
{
    VT_DYNAMIC_SHARED(float, shared); /* [2, GROUPS, VT_GROUP, 32]: neighbouring lanes in neighbouring banks */
    const int warps = backward_warps(GROUPS), half = GROUPS * VT_GROUP * 32;
    backward_arguments a = given;
    a.x.type = type_of(FORM, a.x.type), a.dy.type = type_beside(FORM, a.dy.type), a.dx.type = type_of(FORM, a.dx.type);
    a.rounded.type = type_beside(FORM, a.rounded.type);
    if (FORM == FLOAT32) a.rounded.data = NULL;
    a.wide = FORM != ANY || a.wide;
    int64_t columns = a.x.columns, first = (int64_t)blockIdx.x * a.rows_a_block;
    int64_t end = first + a.rows_a_block < a.x.rows ? first + a.rows_a_block : a.x.rows;
    int warp = (int)threadIdx.x / 32, counts[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; j++) counts[j] = count_of(FORM, columns, column_of(j));
    float dweight[GROUPS][VT_GROUP] = {}, dbias[GROUPS][VT_GROUP] = {};
    for (int64_t row = first + warp; row < end; row += warps) {
        float mean = a.mean[row], rstd = a.rstd[row], sum = 0, product = 0;
        float h[GROUPS][VT_GROUP], g[GROUPS][VT_GROUP], weight[VT_GROUP];
        row_part parts[GROUPS];
#pragma unroll
        for (int j = 0; j < GROUPS; j++) parts[j] = fetch_part(a, row, column_of(j), counts[j]);
        __syncwarp(); /* ptxas moves no load over this: otherwise it issues some loads only where others are waited for
                       */
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            vt_widen_eight(a.x.type, parts[j].x, h[j]);
            vt_widen_eight(a.dy.type, parts[j].dy, g[j]);
            vt_load_floats(a.weight + column_of(j), counts[j], a.wide, weight);
            for (int i = 0; i < VT_GROUP; i++) {
                h[j][i] = (h[j][i] - mean) * rstd;
                dweight[j][i] = fmaf(g[j][i], h[j][i], dweight[j][i]);
                dbias[j][i] += g[j][i];
                g[j][i] *= weight[i];
                sum += g[j][i];
                product = fmaf(g[j][i], h[j][i], product);
            }
        }
        vt_warp_sums(&sum, &product);
        sum /= (float)columns;
        product /= (float)columns;
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            add_input_gradient(a, parts[j], row, column_of(j), counts[j], rstd, sum, product, h[j], g[j]);
    }
    for (int w = 0; w < warps; w++) {
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

/* Long rows: the input's gradient, one row per warp. */
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
            row_part part = fetch_part(a, row, column, count);
            vt_load_floats(a.weight + column, count, a.wide, weight);
            vt_widen_eight(a.x.type, part.x, h);
            vt_widen_eight(a.dy.type, part.dy, g);
            for (int i = 0; i < VT_GROUP; i++) h[i] = (h[i] - mean) * rstd, g[i] *= weight[i];
            if (pass == 1)
                add_input_gradient(a, part, row, column, count, rstd, sum, product, h, g);
            else
                for (int i = 0; i < VT_GROUP; i++) sum += g[i], product = fmaf(g[i], h[i], product);
        }
        if (pass == 1) break;
        vt_warp_sums(&sum, &product);
        sum /= (float)columns;
        product /= (float)columns;
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

template <form FORM>
static void launch_backward(vt_backend *backend, const backward_arguments &a, int64_t groups, unsigned blocks)
{
    const int most = groups <= 1 ? 1 : groups <= 2 ? 2 : 4;
    const auto kernel = groups <= 1   ? backward_kernel<1, FORM>
                        : groups <= 2 ? backward_kernel<2, FORM>
                                      : backward_kernel<4, FORM>;
    VT_LAUNCH(kernel, blocks, 32 * backward_warps(most), most * 2 * VT_GROUP * 32 * sizeof(float), backend, a);
}

void VT_CUDA_NAME(layer_norm_backward)(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                       const float *rstd, vt_matrix dy, vt_matrix dx, vt_matrix rounded, float *dweight,
                                       float *dbias)
{
    const bool rounds = rounded.data != NULL;
    backward_arguments a = {};
    a.x = x, a.dy = dy, a.dx = dx, a.rounded = rounded, a.weight = weight, a.mean = mean, a.rstd = rstd;
    a.wide = vt_is_wide(x, dy, dx, weight, rounded);
    const bool floats = x.type == VT_FLOAT32 && dx.type == VT_FLOAT32 && (!rounds || rounded.type == dy.type);
    int64_t columns = x.columns, groups = (vt_groups(columns) + 31) / 32;
    /* as many as 128 multiprocessors run at once, on every GPU: the order of the sums depends on it */
    int64_t blocks = min((x.rows + WARPS - 1) / WARPS, (int64_t)128 * backward_blocks((int)min(groups, (int64_t)4)));
    a.rows_a_block = (x.rows + blocks - 1) / blocks;
    blocks = (x.rows + a.rows_a_block - 1) / a.rows_a_block;
    a.partial = (float *)vt_common(backend)->workspace(backend, (size_t)(2 * blocks * columns) * sizeof *a.partial);
    if (a.partial == NULL) return;
    if (groups > 4) {
        /* first what only reads dy: the other may overwrite it with what it rounds */
        VT_LAUNCH(weight_gradient_kernel, dim3((unsigned)((columns + 127) / 128), (unsigned)blocks), 128, 0, backend,
                  a);
        VT_LAUNCH(backward_long_kernel, dim3((unsigned)((x.rows + WARPS - 1) / WARPS)), 32 * WARPS, 0, backend, a);
    } else {
        BY_FORM(floats && a.wide && columns % VT_GROUP == 0, dy.type, launch_backward, backend, a, groups,
                (unsigned)blocks);
    }
    vt_add_partial_sums(backend, a.partial, blocks, 2 * columns, columns, dweight);
    vt_add_partial_sums(backend, a.partial + columns, blocks, 2 * columns, columns, dbias);
}
