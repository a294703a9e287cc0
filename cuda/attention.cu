/* Attention that never stores a matrix of queries × keys: Dao 2023, "FlashAttention-2". Forward: a block of four warps
 * has 64 queries and goes over the keys. Backward in two kernels, one for dq (a block has 64 queries) and one for dk
 * and dv (a block has 64 keys and goes over the queries), which computes the scores twice but needs no atomics: the
 * same bits every time. Head sizes up to 128, in steps of 8 without work for padding; wider ones: attention_wide.h. */
#include "attention_tiles.h"
#include "attention_wide.h"

#include "backend/dropout.h"

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

typedef struct {
    vt_attention_shape shape;
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum, *delta; /* [batch, heads, queries] */
    bool wide, exact;
} attention_arguments;

/* The head of a batch's sample that a block works on. */
typedef struct {
    int64_t unit, sample, head, column, first_query, last_query, first_key, last_key; /* rows of q and of k, v */
    vt_dropout dropout;
} head_place;

__device__ static inline head_place find_head(const attention_arguments &a, int64_t unit)
{
    head_place h;
    h.unit = unit;
    h.sample = unit / a.shape.heads;
    h.head = unit % a.shape.heads;
    h.column = h.head * a.shape.head_dim;
    h.first_query = h.sample * a.shape.queries;
    h.last_query = h.first_query + a.shape.queries;
    h.first_key = h.sample * a.shape.keys;
    h.last_key = h.first_key + a.shape.keys;
    h.dropout = a.shape.dropout;
    h.dropout.site = VT_SITE_ATTENTION + (uint32_t)(a.shape.first_head + h.head);
    h.dropout.first_sample += (uint32_t)h.sample;
    return h;
}

/* Which of a thread's weights dropout keeps, as bits: bit 4 * n + i for element i of tile n. Random numbers are many
 * instructions: these loops are not unrolled over the tiles, as those over scores must be. */

__device__ static inline bool is_kept(const head_place &h, const vt_random_block &block, uint32_t column)
{
    uint32_t place = column % 4;
    uint32_t low = place == 0 ? block.word[0] : block.word[1], high = place == 2 ? block.word[2] : block.word[3];
    return vt_random_uniform(place < 2 ? low : high) >= h.dropout.rate;
}

/* Rows are queries: query and query + 8; columns are keys: key + 8 * n and the next. */
template <int TILES>
__device__ static inline uint32_t kept_of_queries(const attention_arguments &a, const head_place &h, int64_t query,
                                                  int64_t key)
{
    uint32_t kept = 0;
#pragma unroll 1
    for (int n = 0; n < TILES; n++) {
        uint32_t column = (uint32_t)(a.shape.first_key + key) + 8 * (uint32_t)n;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t row = (uint32_t)(a.shape.first_query + query) + 8 * (uint32_t)half;
            vt_random_block block = vt_dropout_block(&h.dropout, h.dropout.first_sample, row, column / 4);
            kept |= (uint32_t)is_kept(h, block, column) << (4 * n + 2 * half);
            if (column % 4 == 3) block = vt_dropout_block(&h.dropout, h.dropout.first_sample, row, column / 4 + 1);
            kept |= (uint32_t)is_kept(h, block, column + 1) << (4 * n + 2 * half + 1);
        }
    }
    return kept;
}

/* Rows are keys: key and key + 8; columns are queries: query + 8 * n and the next. */
template <int TILES>
__device__ static inline uint32_t kept_of_keys(const attention_arguments &a, const head_place &h, int64_t query,
                                               int64_t key)
{
    uint32_t kept = 0;
#pragma unroll 1
    for (int n = 0; n < TILES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t row = (uint32_t)(a.shape.first_query + query) + 8 * (uint32_t)n + i % 2;
            uint32_t column = (uint32_t)(a.shape.first_key + key) + i / 2 * 8;
            vt_random_block block = vt_dropout_block(&h.dropout, h.dropout.first_sample, row, column / 4);
            kept |= (uint32_t)is_kept(h, block, column) << (4 * n + i);
        }
    }
    return kept;
}

/* What element i of tile n is multiplied by. */
__device__ static inline float keep_of(const head_place &h, uint32_t kept, int n, int i)
{
    return kept >> (4 * n + i) & 1 ? 1.0f / (1.0f - h.dropout.rate) : 0.0f;
}

__device__ static inline float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ static inline float quad_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/* Turns scores of keys first_key … into weights relative to the rows' maxima so far, which grow; sums and what was
 * accumulated before are scaled to the new maxima by `rescale`. */
template <int TILES>
__device__ static inline void soften(const attention_arguments &a, int64_t first_key, float exponent, float maximum[2],
                                     float sum[2], float rescale[2], float scores[TILES][4])
{
    int t = (int)threadIdx.x % 4;
    for (int half = 0; half < 2; half++) {
        float largest = maximum[half], part = 0;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 2; i++) {
                float *score = &scores[n][2 * half + i];
                if (first_key + 8 * n + 2 * t + i >= a.shape.keys) *score = -INFINITY;
                largest = fmaxf(largest, *score);
            }
        }
        largest = quad_max(largest);
        rescale[half] = exp2f((maximum[half] - largest) * exponent);
        maximum[half] = largest;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 2; i++) {
                float *score = &scores[n][2 * half + i];
                *score = exp2f((*score - largest) * exponent);
                part += *score;
            }
        }
        sum[half] = sum[half] * rescale[half] + quad_sum(part);
    }
}

template <typename number, int MOST, int TILES>
VT_KERNEL void __launch_bounds__(THREADS) forward_kernel(attention_arguments a)
{
    VT_DYNAMIC_SHARED(number, shared);
    int dim = (int)a.shape.head_dim, stride = vt_tile_stride<number>(dim), depth = vt_tile_depth<number>(dim);
    int columns = (dim + 7) / 8, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    number *queries = shared, *keys = queries + ROWS * stride, *values = keys + 8 * TILES * stride;
    int64_t blocks = (a.shape.queries + ROWS - 1) / ROWS, first = blockIdx.x % blocks * ROWS;
    head_place h = find_head(a, blockIdx.x / blocks);
    int64_t query = first + 16 * warp + lane / 4;
    float sums[MOST][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {}, rescale[2];
    const float exponent = 1.44269504f / sqrtf((float)dim);
    vt_tile_load(queries, a.q, h.first_query + first, h.last_query, ROWS, h.column, dim, a.wide);
    for (int64_t key = 0; key < a.shape.keys; key += 8 * TILES) {
        vt_tile_load(keys, a.k, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_tile_load(values, a.v, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_copies_wait();
        __syncthreads();
        float scores[TILES][4] = {};
        vt_scores<TILES>(queries + 16 * warp * stride, keys, depth, stride, a.exact, scores);
        soften<TILES>(a, key, exponent, maximum, sum, rescale, scores);
#pragma unroll
        for (int n = 0; n < MOST; n++)
            for (int i = 0; i < 4; i++) sums[n][i] *= rescale[i / 2];
        if (h.dropout.rate > 0) {
            uint32_t kept = kept_of_queries<TILES>(a, h, query, key + lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < TILES; n++)
                for (int i = 0; i < 4; i++) scores[n][i] *= keep_of(h, kept, n, i);
        }
        vt_accumulate<TILES, MOST>(scores, values, columns, stride, a.exact, sums);
        __syncthreads();
    }
    const float factor[2] = {1 / sum[0], 1 / sum[1]};
    vt_tile_store<MOST>(a.out, h.first_query + query, h.last_query, h.column, dim, a.wide, factor, sums);
    if (lane % 4 != 0) return;
    for (int half = 0; half < 2; half++)
        if (query + 8 * half < a.shape.queries)
            a.log_sum[h.unit * a.shape.queries + query + 8 * half] =
                maximum[half] / sqrtf((float)dim) + logf(sum[half]);
}

/* delta [batch, heads, queries] = sum of out * dout over the head's columns. */
VT_KERNEL void delta_kernel(attention_arguments a)
{
    int64_t rows = a.shape.batch * a.shape.queries, heads = a.shape.heads, dim = a.shape.head_dim, row, head;
    for (int64_t i = vt_thread(); i < rows * heads; i += vt_thread_count()) {
        vt_split(i, heads, &row, &head);
        float out[VT_GROUP], dout[VT_GROUP], sum = 0;
        for (int64_t d = 0; d < dim; d += VT_GROUP) {
            vt_raw own = vt_fetch(a.out, row * a.out.stride + head * dim + d, vt_count(dim, d), a.wide);
            vt_raw gradient = vt_fetch(a.dout, row * a.dout.stride + head * dim + d, vt_count(dim, d), a.wide);
            vt_widen_eight(a.out.type, own, out);
            vt_widen_eight(a.dout.type, gradient, dout);
            for (int j = 0; j < VT_GROUP; j++) sum = fmaf(out[j], dout[j], sum);
        }
        int64_t sample = row / a.shape.queries, query = row % a.shape.queries;
        a.delta[(sample * heads + head) * a.shape.queries + query] = sum;
    }
}

/* One weight and what reaches its score; scale is 1 / √dim. *score becomes the weight (after dropout, which keeps
 * `keep` of it), *gradient the score's gradient without its factor 1 / √dim. */
__device__ static inline void backward_one(const attention_arguments &a, int64_t query, int64_t key, float scale,
                                           float log_sum, float delta, float keep, float *score, float *gradient)
{
    bool inside = query < a.shape.queries && key < a.shape.keys;
    float weight = inside ? expf(*score * scale - log_sum) : 0.0f;
    *gradient = inside ? weight * (keep * *gradient - delta) : 0.0f;
    *score = keep * weight;
}

/* Heads up to 32 columns: four blocks a multiprocessor, which ptxas else misses by six registers. 0: it chooses. */
template <typename number, int MOST, int TILES>
VT_KERNEL void __launch_bounds__(THREADS, MOST <= 4 ? 4 : 0) query_gradient_kernel(attention_arguments a)
{
    VT_DYNAMIC_SHARED(number, shared);
    int dim = (int)a.shape.head_dim, stride = vt_tile_stride<number>(dim), depth = vt_tile_depth<number>(dim);
    int columns = (dim + 7) / 8, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    number *queries = shared, *dout = queries + ROWS * stride, *keys = dout + ROWS * stride;
    number *values = keys + 8 * TILES * stride;
    int64_t blocks = (a.shape.queries + ROWS - 1) / ROWS, first = blockIdx.x % blocks * ROWS;
    head_place h = find_head(a, blockIdx.x / blocks);
    int64_t query = first + 16 * warp + lane / 4;
    float sums[MOST][4] = {}, log_sum[2] = {}, delta[2] = {};
    for (int half = 0; half < 2; half++) {
        if (query + 8 * half >= a.shape.queries) continue;
        log_sum[half] = a.log_sum[h.unit * a.shape.queries + query + 8 * half];
        delta[half] = a.delta[h.unit * a.shape.queries + query + 8 * half];
    }
    vt_tile_load(queries, a.q, h.first_query + first, h.last_query, ROWS, h.column, dim, a.wide);
    vt_tile_load(dout, a.dout, h.first_query + first, h.last_query, ROWS, h.column, dim, a.wide);
    const float scale = 1 / sqrtf((float)dim);
    for (int64_t key = 0; key < a.shape.keys; key += 8 * TILES) {
        vt_tile_load(keys, a.k, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_tile_load(values, a.v, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_copies_wait();
        __syncthreads();
        float scores[TILES][4] = {}, gradients[TILES][4] = {};
        vt_scores<TILES>(queries + 16 * warp * stride, keys, depth, stride, a.exact, scores);
        vt_scores<TILES>(dout + 16 * warp * stride, values, depth, stride, a.exact, gradients);
        uint32_t kept = 0;
        if (h.dropout.rate > 0) kept = kept_of_queries<TILES>(a, h, query, key + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 4; i++) {
                int64_t row = query + i / 2 * 8, column = key + 8 * n + lane % 4 * 2 + i % 2;
                float keep = h.dropout.rate > 0 ? keep_of(h, kept, n, i) : 1.0f;
                backward_one(a, row, column, scale, log_sum[i / 2], delta[i / 2], keep, &scores[n][i],
                             &gradients[n][i]);
            }
        }
        vt_accumulate<TILES, MOST>(gradients, keys, columns, stride, a.exact, sums);
        __syncthreads();
    }
    const float factor[2] = {scale, scale};
    vt_tile_store<MOST>(a.dq, h.first_query + query, h.last_query, h.column, dim, a.wide, factor, sums);
}

/* As above with the roles of rows and columns changed: a warp's rows are keys. */
template <typename number, int MOST, int TILES>
VT_KERNEL void __launch_bounds__(THREADS) key_gradient_kernel(attention_arguments a)
{
    VT_DYNAMIC_SHARED(number, shared);
    __shared__ float log_sums[8 * TILES], deltas[8 * TILES];
    int dim = (int)a.shape.head_dim, stride = vt_tile_stride<number>(dim), depth = vt_tile_depth<number>(dim);
    int columns = (dim + 7) / 8, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    number *keys = shared, *values = keys + ROWS * stride, *queries = values + ROWS * stride;
    number *dout = queries + 8 * TILES * stride;
    int64_t blocks = (a.shape.keys + ROWS - 1) / ROWS, first = blockIdx.x % blocks * ROWS;
    head_place h = find_head(a, blockIdx.x / blocks);
    int64_t key = first + 16 * warp + lane / 4;
    float dk[MOST][4] = {}, dv[MOST][4] = {};
    vt_tile_load(keys, a.k, h.first_key + first, h.last_key, ROWS, h.column, dim, a.wide);
    vt_tile_load(values, a.v, h.first_key + first, h.last_key, ROWS, h.column, dim, a.wide);
    const float scale = 1 / sqrtf((float)dim);
    for (int64_t query = 0; query < a.shape.queries; query += 8 * TILES) {
        vt_tile_load(queries, a.q, h.first_query + query, h.last_query, 8 * TILES, h.column, dim, a.wide);
        vt_tile_load(dout, a.dout, h.first_query + query, h.last_query, 8 * TILES, h.column, dim, a.wide);
        if ((int)threadIdx.x < 8 * TILES && query + threadIdx.x < a.shape.queries) {
            log_sums[threadIdx.x] = a.log_sum[h.unit * a.shape.queries + query + threadIdx.x];
            deltas[threadIdx.x] = a.delta[h.unit * a.shape.queries + query + threadIdx.x];
        }
        vt_copies_wait();
        __syncthreads();
        float scores[TILES][4] = {}, gradients[TILES][4] = {};
        vt_scores<TILES>(keys + 16 * warp * stride, queries, depth, stride, a.exact, scores);
        vt_scores<TILES>(values + 16 * warp * stride, dout, depth, stride, a.exact, gradients);
        uint32_t kept = 0;
        if (h.dropout.rate > 0) kept = kept_of_keys<TILES>(a, h, query + lane % 4 * 2, key);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 4; i++) {
                int column = 8 * n + lane % 4 * 2 + i % 2;
                int64_t row = key + i / 2 * 8;
                float keep = h.dropout.rate > 0 ? keep_of(h, kept, n, i) : 1.0f;
                backward_one(a, query + column, row, scale, log_sums[column], deltas[column], keep, &scores[n][i],
                             &gradients[n][i]);
            }
        }
        vt_accumulate<TILES, MOST>(scores, dout, columns, stride, a.exact, dv);
        vt_accumulate<TILES, MOST>(gradients, queries, columns, stride, a.exact, dk);
        __syncthreads();
    }
    const float factor[2] = {scale, scale}, one[2] = {1, 1};
    vt_tile_store<MOST>(a.dk, h.first_key + key, h.last_key, h.column, dim, a.wide, factor, dk);
    vt_tile_store<MOST>(a.dv, h.first_key + key, h.last_key, h.column, dim, a.wide, one, dv);
}

static dim3 blocks_of(const attention_arguments *a, int64_t rows)
{
    return dim3((unsigned)(a->shape.batch * a->shape.heads * ((rows + ROWS - 1) / ROWS)));
}

template <typename number> static size_t shared_bytes(const attention_arguments *a, int rows)
{
    return (size_t)(rows * vt_tile_stride<number>((int)a->shape.head_dim)) * sizeof(number);
}

template <typename number, int MOST, int TILES>
static void launch_forward(vt_backend *backend, const attention_arguments &a)
{
    size_t bytes = shared_bytes<number>(&a, ROWS + 2 * 8 * TILES);
    VT_LAUNCH((forward_kernel<number, MOST, TILES>), blocks_of(&a, a.shape.queries), THREADS, bytes, backend, a);
}

template <typename number, int MOST, int TILES>
static void launch_backward(vt_backend *backend, const attention_arguments &a)
{
    size_t bytes = shared_bytes<number>(&a, 2 * ROWS + 2 * 8 * TILES);
    VT_LAUNCH((query_gradient_kernel<number, MOST, TILES>), blocks_of(&a, a.shape.queries), THREADS, bytes, backend, a);
    VT_LAUNCH((key_gradient_kernel<number, MOST, TILES>), blocks_of(&a, a.shape.keys), THREADS, bytes, backend, a);
}

/* Kernels are made for so many result tiles of a head at most; registers are what they cost. */
#define BY_SIZE_IN_HALVES(launch, half, backend, a)                                                                    \
    do {                                                                                                               \
        int64_t dim_ = (a).shape.head_dim;                                                                             \
        if (dim_ <= 32)                                                                                                \
            launch<half, 4, 8>((backend), (a));                                                                        \
        else if (dim_ <= 48)                                                                                           \
            launch<half, 6, 8>((backend), (a));                                                                        \
        else if (dim_ <= 64)                                                                                           \
            launch<half, 8, 8>((backend), (a));                                                                        \
        else if (dim_ <= 96)                                                                                           \
            launch<half, 12, 4>((backend), (a));                                                                       \
        else                                                                                                           \
            launch<half, 16, 4>((backend), (a));                                                                       \
    } while (0)

/* In 16 bits where q, k and v are of the same type of 16 bits. */
#define BY_SIZE(launch, backend, a)                                                                                    \
    do {                                                                                                               \
        vt_type type_ = (a).q.type == (a).k.type && (a).q.type == (a).v.type ? (a).q.type : VT_FLOAT32;                \
        if (type_ == VT_BFLOAT16)                                                                                      \
            BY_SIZE_IN_HALVES(launch, vt_bfloat16, backend, a);                                                        \
        else if (type_ == VT_FLOAT16)                                                                                  \
            BY_SIZE_IN_HALVES(launch, vt_float16, backend, a);                                                         \
        else if ((a).shape.head_dim <= 64)                                                                             \
            launch<float, 8, 4>((backend), (a));                                                                       \
        else                                                                                                           \
            launch<float, 16, 2>((backend), (a));                                                                      \
    } while (0)

static attention_arguments arguments_of(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                        vt_matrix v, vt_matrix out)
{
    attention_arguments a = {};
    a.shape = *shape;
    a.q = q, a.k = k, a.v = v, a.out = out;
    a.exact = vt_common(backend)->exact_float32;
    a.wide = shape->head_dim % 8 == 0 && vt_is_wide(q) && vt_is_wide(k) && vt_is_wide(v) && vt_is_wide(out);
    return a;
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    attention_arguments a = arguments_of(backend, shape, q, k, v, out);
    a.log_sum = log_sum;
    if (shape->head_dim > 128)
        vt_wide_attention_forward(backend, shape, q, k, v, out, log_sum);
    else
        BY_SIZE(launch_forward, backend, a);
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    attention_arguments a = arguments_of(backend, shape, q, k, v, out);
    int64_t rows = shape->batch * shape->heads * shape->queries;
    a.log_sum = (float *)log_sum;
    a.dout = dout, a.dq = dq, a.dk = dk, a.dv = dv;
    a.wide = a.wide && vt_is_wide(dout) && vt_is_wide(dq) && vt_is_wide(dk) && vt_is_wide(dv);
    a.delta = (float *)vt_common(backend)->workspace(backend, (size_t)rows * sizeof(float));
    if (a.delta == NULL) return;
    VT_LAUNCH(delta_kernel, vt_blocks(rows), VT_BLOCK_THREADS, 0, backend, a);
    if (shape->head_dim > 128)
        vt_wide_attention_backward(backend, shape, q, k, v, log_sum, a.delta, dout, dq, dk, dv);
    else
        BY_SIZE(launch_backward, backend, a);
}

/* A thread merges eight columns of one head and query; the row's log_sum is written by a second launch, when all have
 * read it. */
VT_KERNEL void merge_kernel(vt_attention_shape shape, vt_matrix part, const float *part_log_sum, vt_matrix out,
                            const float *log_sum, bool wide)
{
    int64_t groups = (shape.head_dim + VT_GROUP - 1) / VT_GROUP, rows = shape.batch * shape.heads * shape.queries;
    int64_t place, group;
    for (int64_t i = vt_thread(); i < rows * groups; i += vt_thread_count()) {
        vt_split(i, groups, &place, &group);
        int64_t unit = place / shape.queries, row = unit / shape.heads * shape.queries + place % shape.queries;
        int64_t column = unit % shape.heads * shape.head_dim + group * VT_GROUP;
        int count = vt_count(shape.head_dim, group * VT_GROUP);
        float own = log_sum[place], other = part_log_sum[place], largest = fmaxf(own, other);
        float own_share = expf(own - largest), other_share = expf(other - largest);
        float scale = 1 / (own_share + other_share), mine[VT_GROUP], theirs[VT_GROUP];
        vt_load(out, row * out.stride + column, count, wide, mine);
        vt_load(part, row * part.stride + column, count, wide, theirs);
        for (int j = 0; j < VT_GROUP; j++) mine[j] = scale * (own_share * mine[j] + other_share * theirs[j]);
        vt_store(out, row * out.stride + column, count, wide, mine);
    }
}

VT_KERNEL void merge_log_sum_kernel(int64_t count, const float *part_log_sum, float *log_sum)
{
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) {
        float own = log_sum[i], other = part_log_sum[i], largest = fmaxf(own, other);
        log_sum[i] = largest + logf(expf(own - largest) + expf(other - largest));
    }
}

static void attention_merge(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                            const float *part_log_sum, vt_matrix out, float *log_sum)
{
    int64_t rows = shape->batch * shape->heads * shape->queries;
    bool wide = shape->head_dim % 8 == 0 && vt_is_wide(part) && vt_is_wide(out);
    VT_LAUNCH(merge_kernel, vt_blocks(rows * vt_groups(shape->head_dim)), VT_BLOCK_THREADS, 0, backend, *shape, part,
              part_log_sum, out, log_sum, wide);
    VT_LAUNCH(merge_log_sum_kernel, vt_blocks(rows), VT_BLOCK_THREADS, 0, backend, rows, part_log_sum, log_sum);
}

void VT_CUDA_NAME(attention_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
    backend->attention_merge = attention_merge;
    backend->attention_backward = attention_backward;
}
