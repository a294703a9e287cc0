/* Attention that never stores a matrix of queries × keys: Dao 2023, "FlashAttention-2". A block of four warps handles
 * 64 queries and loops over the keys. Head sizes up to 128, in steps of 8 that need no padding. */
#include "attention_parts.h"

#include "backend/dropout.h"

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

/* Turns scores into weights relative to each row's running maximum; of keys that a row does not see (find_seen) they
 * are 0. When a maximum grows, `rescale` scales the sums and the accumulated output to the new one. */
template <int TILES>
__device__ static inline void soften(const int seen[2], float exponent, float maximum[2], float sum[2],
                                     float rescale[2], float scores[TILES][4])
{
    for (int half = 0; half < 2; half++) {
        float largest = maximum[half], part = 0;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 2; i++) {
                float *score = &scores[n][2 * half + i];
                if (8 * n + i >= seen[half]) *score = -INFINITY;
                largest = fmaxf(largest, *score);
            }
        }
        largest = quad_max(largest);
        const float base = largest == -INFINITY ? 0 : largest; /* no key is seen yet */
        rescale[half] = exp2f((maximum[half] - base) * exponent);
        maximum[half] = largest;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 2; i++) {
                float *score = &scores[n][2 * half + i];
                *score = exp2f((*score - base) * exponent);
                part += *score;
            }
        }
        sum[half] = sum[half] * rescale[half] + quad_sum(part);
    }
}

/* As many blocks on a multiprocessor as fit. 0: ptxas chooses. */
template <typename number> static constexpr int forward_blocks(int most, bool drops)
{
    return drops ? 0 : sizeof(number) == 2 ? (most <= 4 ? 5 : 0) : most <= 8 ? 5 : 4;
}

/* DROPS: with dropout. */
template <typename number, int MOST, int TILES, bool DROPS>
VT_KERNEL void __launch_bounds__(THREADS, forward_blocks<number>(MOST, DROPS)) forward_kernel(attention_arguments a)
{
    VT_DYNAMIC_SHARED(number, shared);
    int dim = (int)a.shape.head_dim, stride = vt_tile_stride<number>(dim), depth = vt_tile_depth<number>(dim);
    int columns = (dim + 7) / 8, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    number *queries = shared, *keys = queries + ROWS * stride, *values = keys + 8 * TILES * stride;
    int64_t blocks = (a.shape.queries + ROWS - 1) / ROWS, first = first_query_of(blocks), end = end_of_keys(a, first);
    head_place h = find_head(a, blockIdx.x / blocks);
    int64_t query = first + 16 * warp + lane / 4;
    float sums[MOST][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {}, rescale[2];
    const float exponent = 1.44269504f * a.scale;
    vt_tile_load(queries, a.q, h.first_query + first, h.last_query, ROWS, h.column, dim, a.wide);
    for (int64_t key = 0; key < end; key += 8 * TILES) {
        vt_tile_load(keys, a.k, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_tile_load(values, a.v, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_copies_wait();
        __syncthreads();
        float scores[TILES][4] = {};
        int seen[2];
        vt_scores<TILES>(queries + 16 * warp * stride, keys, depth, stride, a.exact, scores);
        find_seen<TILES>(a, query, key, seen);
        soften<TILES>(seen, exponent, maximum, sum, rescale, scores);
#pragma unroll
        for (int n = 0; n < MOST; n++)
            for (int i = 0; i < 4; i++) sums[n][i] *= rescale[i / 2];
        if (DROPS) {
            uint32_t drawn[TILES / 2] = {};
            vt_fetch_drawn_of_queries(h.drawn, (int)query, (int)key, drawn);
#pragma unroll
            for (int n = 0; n < TILES; n++)
                for (int i = 0; i < 4; i++) scores[n][i] *= vt_keep_of_queries(drawn, 4 * n + i, a.kept_scale);
        }
        vt_accumulate<TILES, MOST>(scores, values, columns, stride, a.exact, sums);
        __syncthreads();
    }
    if (end == 0) vt_copies_wait();                                                       /* the loop has not */
    const float factor[2] = {sum[0] != 0 ? 1 / sum[0] : 0, sum[1] != 0 ? 1 / sum[1] : 0}; /* 0: no key is seen */
    vt_tile_store<MOST>(a.out, h.first_query + query, h.last_query, h.column, dim, a.wide, factor, sums);
    if (lane % 4 != 0) return;
    for (int half = 0; half < 2; half++)
        if (query + 8 * half < a.shape.queries)
            a.log_sum[h.unit * a.shape.queries + query + 8 * half] = maximum[half] * a.scale + logf(sum[half]);
}

template <typename number, int MOST, int TILES>
static void launch_forward(vt_backend *backend, const attention_arguments &a)
{
    size_t bytes = shared_bytes<number>(&a, ROWS + 2 * 8 * TILES);
    const dim3 blocks = blocks_of(&a, a.shape.queries);
    const auto kernel = a.shape.dropout.rate > 0 ? forward_kernel<number, MOST, TILES, true>
                                                 : forward_kernel<number, MOST, TILES, false>;
    VT_LAUNCH(kernel, blocks, THREADS, bytes, backend, a);
}

void VT_CUDA_NAME(attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                     vt_matrix v, vt_matrix out, float *log_sum)
{
    attention_arguments a = arguments_of(backend, shape, q, k, v, out);
    a.log_sum = log_sum;
    BY_SIZE(launch_forward, backend, a);
}

/* A block draws for all queries and 16 keys at a time. (Behind the last head's, too: what is read should have been
 * written.) */
VT_KERNEL void draw_kernel(vt_attention_shape shape, int64_t count, uint16_t *drawn)
{
    const int64_t stride = vt_attention_drawn_stride(shape.queries), chunks = vt_attention_drawn_chunks(shape.keys);
    int64_t unit, chunk;
    for (int64_t row = blockIdx.x; row * stride < count; row += gridDim.x) {
        vt_split(row, chunks, &unit, &chunk);
        vt_dropout dropout = shape.dropout;
        dropout.site = VT_SITE_ATTENTION + (uint32_t)(shape.first_head + unit % shape.heads);
        const uint32_t sample = dropout.first_sample + (uint32_t)(unit / shape.heads);
        const uint32_t column = (uint32_t)(shape.first_key + 16 * chunk), ahead = column % 4;
        for (int64_t query = threadIdx.x; query < stride && row * stride + query < count; query += blockDim.x) {
            uint32_t kept = 0;
#pragma unroll
            for (uint32_t quad = 0; quad < 5; quad++) {
                if (quad == 4 && ahead == 0) break;
                const vt_random_block block =
                    vt_dropout_block(&dropout, sample, (uint32_t)(shape.first_query + query), column / 4 + quad);
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    kept |= (uint32_t)(vt_random_uniform(block.word[j]) >= dropout.rate) << (4 * quad + j);
            }
            drawn[row * stride + query] = (uint16_t)(kept >> ahead);
        }
    }
}

void VT_CUDA_NAME(attention_draw)(vt_backend *backend, const vt_attention_shape *shape, uint16_t *drawn)
{
    const int64_t count = vt_attention_drawn_count(shape), stride = vt_attention_drawn_stride(shape->queries);
    VT_LAUNCH(draw_kernel, vt_blocks((count + stride - 1) / stride * VT_BLOCK_THREADS), VT_BLOCK_THREADS, 0, backend,
              *shape, count, drawn);
}

/* A thread merges eight columns of one head and query. A second launch writes the row's log_sum, after every thread has
 * read it. Queries that see none of the part's keys stay as they are. */
VT_KERNEL void merge_kernel(vt_attention_shape shape, vt_matrix part, const float *part_log_sum, vt_matrix out,
                            const float *log_sum, bool wide)
{
    const int64_t rows = shape.batch * shape.heads * shape.queries;
    vt_each_group(rows, shape.head_dim, [&](int64_t place, int64_t first, int count) {
        int64_t unit = place / shape.queries, row = unit / shape.heads * shape.queries + place % shape.queries;
        int64_t column = unit % shape.heads * shape.head_dim + first;
        float own = log_sum[place], other = part_log_sum[place], largest = fmaxf(own, other);
        if (other == -INFINITY) return;
        float own_share = expf(own - largest), other_share = expf(other - largest);
        float scale = 1 / (own_share + other_share), mine[VT_GROUP], theirs[VT_GROUP];
        vt_load(out, row * out.stride + column, count, wide, mine);
        vt_load(part, row * part.stride + column, count, wide, theirs);
        for (int j = 0; j < VT_GROUP; j++) mine[j] = scale * (own_share * mine[j] + other_share * theirs[j]);
        vt_store(out, row * out.stride + column, count, wide, mine);
    });
}

VT_KERNEL void merge_log_sum_kernel(int64_t count, const float *part_log_sum, float *log_sum)
{
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) {
        float own = log_sum[i], other = part_log_sum[i], largest = fmaxf(own, other);
        if (other != -INFINITY) log_sum[i] = largest + logf(expf(own - largest) + expf(other - largest));
    }
}

void VT_CUDA_NAME(attention_merge)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                                   const float *part_log_sum, vt_matrix out, float *log_sum)
{
    int64_t rows = shape->batch * shape->heads * shape->queries;
    bool wide = shape->head_dim % 8 == 0 && vt_is_wide(part, out);
    VT_SPREAD(merge_kernel, rows * vt_groups(shape->head_dim), backend, *shape, part, part_log_sum, out, log_sum, wide);
    VT_SPREAD(merge_log_sum_kernel, rows, backend, rows, part_log_sum, log_sum);
}
