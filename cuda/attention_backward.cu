/* The backward pass of attention, in two kernels: one computes dq (a block handles 64 queries), the other dk and dv (a
 * block handles 64 keys and loops over the queries). The scores are computed twice, but no atomics are needed, so the
 * result has the same bits every time. */
#include "attention_parts.h"

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

/* One weight and the gradient of its score; scale is that of scores. *score becomes the weight (after dropout, which
 * keeps `kept_scale` of it), *gradient the gradient of the score without its scale. seen: the query sees the key, and
 * both exist. Only numbers depend on it, so that there is no branch for each weight: log_sum and delta are anything
 * where the query does not exist. */
__device__ static inline void backward_one(bool seen, float scale, float log_sum, float delta, float kept_scale,
                                           float *score, float *gradient)
{
    float weight = expf(seen ? *score * scale - log_sum : -INFINITY);
    *gradient = seen ? weight * (kept_scale * *gradient - delta) : 0.0f;
    *score = kept_scale * weight;
}

/* Heads up to 32 columns: four blocks on a multiprocessor, which ptxas otherwise misses by six registers. 0: ptxas
 * chooses. DROPS: with dropout. */
template <typename number, int MOST, int TILES, bool DROPS>
VT_KERNEL void __launch_bounds__(THREADS, MOST <= 4 && !DROPS ? 4 : 0) query_gradient_kernel(attention_arguments a)
{
    VT_DYNAMIC_SHARED(number, shared);
    int dim = (int)a.shape.head_dim, stride = vt_tile_stride<number>(dim), depth = vt_tile_depth<number>(dim);
    int columns = (dim + 7) / 8, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    number *queries = shared, *dout = queries + ROWS * stride, *keys = dout + ROWS * stride;
    number *values = keys + 8 * TILES * stride;
    int64_t blocks = (a.shape.queries + ROWS - 1) / ROWS, first = first_query_of(blocks), end = end_of_keys(a, first);
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
    for (int64_t key = 0; key < end; key += 8 * TILES) {
        vt_tile_load(keys, a.k, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_tile_load(values, a.v, h.first_key + key, h.last_key, 8 * TILES, h.column, dim, a.wide);
        vt_copies_wait();
        __syncthreads();
        float scores[TILES][4] = {}, gradients[TILES][4] = {};
        vt_scores<TILES>(queries + 16 * warp * stride, keys, depth, stride, a.exact, scores);
        vt_scores<TILES>(dout + 16 * warp * stride, values, depth, stride, a.exact, gradients);
        uint32_t drawn[TILES / 2] = {};
        int seen[2];
        if (DROPS) vt_fetch_drawn_of_queries(h.drawn, (int)query, (int)key, drawn);
        find_seen<TILES>(a, query, key, seen);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 4; i++) {
                float kept_scale = DROPS ? vt_keep_of_queries(drawn, 4 * n + i, a.kept_scale) : 1.0f;
                backward_one(8 * n + i % 2 < seen[i / 2], a.scale, log_sum[i / 2], delta[i / 2], kept_scale,
                             &scores[n][i], &gradients[n][i]);
            }
        }
        vt_accumulate<TILES, MOST>(gradients, keys, columns, stride, a.exact, sums);
        __syncthreads();
    }
    if (end == 0) vt_copies_wait(); /* the loop has not */
    const float factor[2] = {a.scale, a.scale};
    vt_tile_store<MOST>(a.dq, h.first_query + query, h.last_query, h.column, dim, a.wide, factor, sums);
}

/* The first query that sees a key; queries that are not there, below 0, count as well. */
__device__ static inline int64_t first_seeing(const attention_arguments &a, int64_t key)
{
    return a.shape.causal ? a.shape.first_key + key - a.shape.first_query : 0;
}

/* How many of the queries from `query` on do not see this thread's two keys, key and key + 8; at most a tile's, which
 * is all for a key that is not there. A thread's columns 8 n + i of a row begin at its own column, which is taken off.
 */
template <int TILES>
__device__ static inline void find_blind(const attention_arguments &a, int64_t query, int64_t key, int blind[2])
{
    for (int half = 0; half < 2; half++) {
        const int64_t own = key + 8 * half, first = own < a.shape.keys ? first_seeing(a, own) - query : 8 * TILES;
        blind[half] = (int)max(min(first, (int64_t)(8 * TILES)), (int64_t)0) - (int)threadIdx.x % 4 * 2;
    }
}

/* The same with rows and columns exchanged: a warp's rows are keys. */
template <typename number, int MOST, int TILES, bool DROPS>
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
    const int64_t begin = max(first_seeing(a, first), (int64_t)0) / (8 * TILES) * (8 * TILES);
    for (int64_t query = begin; query < a.shape.queries; query += 8 * TILES) {
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
        uint32_t drawn[TILES] = {};
        int blind[2], last = (int)min(a.shape.queries - query, (int64_t)(8 * TILES)) - lane % 4 * 2;
        if (DROPS) vt_fetch_drawn_of_keys(h.drawn, (int)query + lane % 4 * 2, (int)first + 16 * warp, drawn);
        find_blind<TILES>(a, query, key, blind);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            for (int i = 0; i < 4; i++) {
                int own = 8 * n + i % 2, column = own + lane % 4 * 2;
                float kept_scale = DROPS ? vt_keep_of_keys(drawn, 4 * n + i, a.kept_scale) : 1.0f;
                backward_one(own >= blind[i / 2] && own < last, a.scale, log_sums[column], deltas[column], kept_scale,
                             &scores[n][i], &gradients[n][i]);
            }
        }
        vt_accumulate<TILES, MOST>(scores, dout, columns, stride, a.exact, dv);
        vt_accumulate<TILES, MOST>(gradients, queries, columns, stride, a.exact, dk);
        __syncthreads();
    }
    if (begin >= a.shape.queries) vt_copies_wait(); /* the loop has not */
    const float factor[2] = {a.scale, a.scale}, one[2] = {1, 1};
    vt_tile_store<MOST>(a.dk, h.first_key + key, h.last_key, h.column, dim, a.wide, factor, dk);
    vt_tile_store<MOST>(a.dv, h.first_key + key, h.last_key, h.column, dim, a.wide, one, dv);
}

template <typename number, int MOST, int TILES>
static void launch_backward(vt_backend *backend, const attention_arguments &a)
{
    const size_t bytes = shared_bytes<number>(&a, 2 * ROWS + 2 * 8 * TILES);
    const bool drops = a.shape.dropout.rate > 0;
    const auto of_queries =
        drops ? query_gradient_kernel<number, MOST, TILES, true> : query_gradient_kernel<number, MOST, TILES, false>;
    const auto of_keys =
        drops ? key_gradient_kernel<number, MOST, TILES, true> : key_gradient_kernel<number, MOST, TILES, false>;
    VT_LAUNCH(of_queries, blocks_of(&a, a.shape.queries), THREADS, bytes, backend, a);
    VT_LAUNCH(of_keys, blocks_of(&a, a.shape.keys), THREADS, bytes, backend, a);
}

void VT_CUDA_NAME(attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                      vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                      vt_matrix dk, vt_matrix dv)
{
    attention_arguments a = arguments_of(backend, shape, q, k, v, out);
    int64_t rows = shape->batch * shape->heads * shape->queries;
    a.log_sum = (float *)log_sum;
    a.dout = dout, a.dq = dq, a.dk = dk, a.dv = dv;
    a.wide = a.wide && vt_is_wide(dout, dq, dk, dv);
    a.delta = (float *)vt_common(backend)->workspace(backend, (size_t)rows * sizeof(float));
    if (a.delta == NULL) return;
    VT_SPREAD(delta_kernel, rows, backend, a);
    BY_SIZE(launch_backward, backend, a);
}
