/* The backward pass, in two kernels without atomics. The first has dq of a warpgroup's 64 queries and loops over the
 * keys; before that it computes what both need of each query. The second has dk and dv of a warpgroup's 64 keys and
 * loops over the queries. Weights are computed in both, from log_sum. Operands that are weights, or gradients of
 * scores, are in registers: the result of one product is laid out as operand A of the next. */
#include "wgmma_attention_parts.h"

/* ---- dq ---- */

/* log_sum2 and delta of the thread's two queries, also for the other kernel: its padding is written by the block with
 * the last queries. */
template <int D, int GROUPS>
VT_INLINE void find_terms(const wgmma_arguments &a, const block_place &p, int query, const uint32_t (&dout)[D / 4],
                          float (&log_sum2)[2], float (&delta)[2])
{
    const int64_t sample_row = (int64_t)p.sample * a.queries, first = p.unit * a.padded;
    uint32_t out[D / 4];
    load_fragments<D>(a.out, sample_row, query, a.queries, p.head * D, out);
    delta[0] = delta[1] = 0;
#pragma unroll
    for (int i = 0; i < D / 4; i++) {
        delta[i % 2] = fmaf(vt_from_bits(out[i] << 16), vt_from_bits(dout[i] << 16), delta[i % 2]);
        delta[i % 2] = fmaf(vt_from_bits(out[i] & 0xffff0000u), vt_from_bits(dout[i] & 0xffff0000u), delta[i % 2]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int own = query + 8 * half;
        delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 1);
        delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 2);
        log_sum2[half] = own < a.queries ? a.log_sum[p.unit * a.queries + own] * LOG2_E : INFINITY;
        if (threadIdx.x % 4 != 0 || own >= a.queries) continue;
        a.log_sum2[first + own] = log_sum2[half];
        a.delta[first + own] = delta[half];
    }
    if (p.first + 64 * GROUPS < a.queries) return;
    for (int own = a.queries + (int)threadIdx.x; own < a.padded; own += 128) {
        if (threadIdx.x >= 128) break; /* the first warpgroup, which always works */
        a.log_sum2[first + own] = INFINITY;
        a.delta[first + own] = 0;
    }
}

/* Gradients of scores, without their scale; `gradients` are those of weights behind dropout. */
template <int KEYS, bool DROPS>
VT_INLINE void find_dscores(float kept_scale, const uint32_t (&drawn)[KEYS / 16], const float (&weights)[KEYS / 2],
                            const float (&gradients)[KEYS / 2], const float (&delta)[2], uint32_t (&dscores)[KEYS / 4])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i += 2) {
        const float first = DROPS ? vt_keep_of_queries(drawn, i, kept_scale) : 1.0f;
        const float second = DROPS ? vt_keep_of_queries(drawn, i + 1, kept_scale) : 1.0f, own = delta[i / 2 % 2];
        dscores[i / 2] = vt_pack(VT_BFLOAT16, weights[i] * fmaf(gradients[i], first, -own),
                                 weights[i + 1] * fmaf(gradients[i + 1], second, -own));
    }
}

/* keys, values: boxes of KEYS rows of a head. DROPS: with dropout. */
template <int D, int GROUPS, int KEYS, int STAGES, bool DROPS>
VT_KERNEL void __launch_bounds__(128 * GROUPS + 128, 1)
    wgmma_query_gradient_kernel(const __grid_constant__ vt_box_map keys, const __grid_constant__ vt_box_map values,
                                const wgmma_arguments a)
{
    typedef block_shape<D, GROUPS, KEYS, STAGES> shape;
    VT_ALIGNED_SHARED(shared);
    const vt_shared stages = vt_shared_address(shared), full = stages + shape::BARRIERS, empty = full + 8 * STAGES;
    const block_place p = find_place<D, 64 * GROUPS>(a, a.queries);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), tiles = (a.keys + KEYS - 1) / KEYS;
    const tile_source from = {&keys, &values, nullptr, nullptr, tiles};
    if (!begin_block<shape>(from, p, a.queries, warp, stages, full, empty)) return;
    const int query = p.first + warp * 16 + (int)threadIdx.x % 32 / 4; /* and query + 8 */
    const int64_t sample_row = (int64_t)p.sample * a.queries;
    ring_place<STAGES> at = {0, 0};
    const vt_drawn all_drawn = vt_find_drawn(a.drawn, p.unit, a.queries, a.keys);
    uint32_t queries[D / 4], dout[D / 4], dscores[KEYS / 4], drawn[KEYS / 16];
    float scores[KEYS / 2], gradients[KEYS / 2], dq[D / 2], log_sum2[2], delta[2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) dq[i] = 0;
    load_fragments<D>(a.q, sample_row, query, a.queries, p.head * D, queries);
    load_fragments<D>(a.dout, sample_row, query, a.queries, p.head * D, dout);
    find_terms<D, GROUPS>(a, p, query, dout, log_sum2, delta);
    const float factor = a.scale * LOG2_E;
    const uint64_t as_columns = vt_by_columns(stages), as_rows = vt_by_rows(stages, shape::PANEL_BYTES);
    uint64_t next_keys = as_columns, keys_before = as_rows;
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) dscores[i] = 0; /* of the tile before the first */
    vt_pin(queries);
    vt_pin(dout);
    vt_pin(dscores);
    vt_pin(dq);
    vt_barrier_wait(full, 0);
    for (int tile = 0; tile < tiles; tile++) {
        const int before = stage_before(at);
        vt_wgmma_fence();
        multiply_rows<D, shape::PANEL_BYTES>(scores, queries, next_keys);
        multiply_rows<D, shape::PANEL_BYTES>(gradients, dout, vt_ahead(next_keys, shape::TILE_BYTES));
        add_product<KEYS>(dq, dscores, keys_before);
        if (DROPS) vt_fetch_drawn_of_queries(all_drawn, query, tile * KEYS, drawn);
        vt_wgmma_wait<2>(); /* scores */
        vt_pin(scores);
        if (tile == tiles - 1) hide_missing<KEYS>(a.keys - tile * KEYS, scores);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) scores[i] = vt_exp2(fmaf(scores[i], factor, -log_sum2[i / 2 % 2]));
        vt_pin(scores);
        keys_before = vt_ahead(as_rows, at.stage * shape::STAGE_BYTES);
        advance(at);
        /* Here, because ptxas would move all exponentials behind the wait, but not over a branch. */
        if (tile + 1 < tiles) vt_barrier_wait(full + 8 * at.stage, at.parity);
        next_keys = vt_ahead(as_columns, at.stage * shape::STAGE_BYTES);
        vt_wgmma_wait<0>(); /* gradients of weights, and dq of the tile before */
        vt_pin(gradients);
        vt_pin(dscores);
        vt_pin(dq);
        if (tile > 0) release(empty + 8 * before);
        find_dscores<KEYS, DROPS>(a.kept_scale, drawn, scores, gradients, delta, dscores); /* scores: now weights */
        vt_pin(dscores);
    }
    vt_wgmma_fence();
    add_product<KEYS>(dq, dscores, keys_before);
    vt_wgmma_wait<0>();
    vt_pin(dq);
    const float of_queries[2] = {a.scale, a.scale};
    store_fragments<D>(a.dq, sample_row, query, a.queries, p.head * D, of_queries, dq);
}

/* ---- dk and dv ---- */

/* Scores become weights; log_sum2, in shared memory, is that of the tile's queries, which are the columns here. Of the
 * packed weights those that dropout doesn't keep are 0. */
template <int QUERIES, bool DROPS>
VT_INLINE void find_weights_of_keys(float factor, const float *log_sum2, const uint32_t (&drawn)[QUERIES / 8],
                                    float (&scores)[QUERIES / 2], uint32_t (&weights)[QUERIES / 4])
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 2) {
        const float2 own = *(const float2 *)(log_sum2 + i / 4 * 8 + threadIdx.x % 4 * 2);
        scores[i] = vt_exp2(fmaf(scores[i], factor, -own.x));
        scores[i + 1] = vt_exp2(fmaf(scores[i + 1], factor, -own.y));
        weights[i / 2] = vt_pack(VT_BFLOAT16, scores[i], scores[i + 1]);
        if (DROPS) weights[i / 2] = vt_keep_pair_of_keys(drawn, i, weights[i / 2]);
    }
}

/* As find_dscores, of the transposed tile. */
template <int QUERIES, bool DROPS>
VT_INLINE void find_dscores_of_keys(float kept_scale, const uint32_t (&drawn)[QUERIES / 8], const float *delta,
                                    const float (&weights)[QUERIES / 2], const float (&gradients)[QUERIES / 2],
                                    uint32_t (&dscores)[QUERIES / 4])
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 2) {
        const float2 own = *(const float2 *)(delta + i / 4 * 8 + threadIdx.x % 4 * 2);
        const float first = DROPS ? vt_keep_of_keys(drawn, i, kept_scale) : 1.0f;
        const float second = DROPS ? vt_keep_of_keys(drawn, i + 1, kept_scale) : 1.0f;
        dscores[i / 2] = vt_pack(VT_BFLOAT16, weights[i] * fmaf(gradients[i], first, -own.x),
                                 weights[i + 1] * fmaf(gradients[i + 1], second, -own.y));
    }
}

/* queries, dout: boxes of QUERIES rows of a head. Everything is transposed: rows are keys, columns queries. The order
 * of products leaves no more than two blocks of scores and one of their packed numbers alive. */
template <int D, int GROUPS, int QUERIES, int STAGES, bool DROPS>
VT_KERNEL void __launch_bounds__(128 * GROUPS + 128, 1)
    wgmma_key_gradient_kernel(const __grid_constant__ vt_box_map queries, const __grid_constant__ vt_box_map dout,
                              const wgmma_arguments a)
{
    typedef block_shape<D, GROUPS, QUERIES, STAGES, true> shape;
    VT_ALIGNED_SHARED(shared);
    const vt_shared stages = vt_shared_address(shared), full = stages + shape::BARRIERS, empty = full + 8 * STAGES;
    const block_place p = find_place<D, 64 * GROUPS>(a, a.keys);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), tiles = (a.queries + QUERIES - 1) / QUERIES;
    const int64_t terms_of_unit = p.unit * a.padded;
    const tile_source from = {&queries, &dout, a.log_sum2 + terms_of_unit, a.delta + terms_of_unit, tiles};
    if (!begin_block<shape>(from, p, a.keys, warp, stages, full, empty)) return;
    const int key = p.first + warp * 16 + (int)threadIdx.x % 32 / 4; /* and key + 8 */
    const int64_t sample_row = (int64_t)p.sample * a.keys;
    ring_place<STAGES> at = {0, 0};
    float scores[QUERIES / 2], gradients[QUERIES / 2], dk[D / 2], dv[D / 2];
    const vt_drawn all_drawn = vt_find_drawn(a.drawn, p.unit, a.queries, a.keys);
    uint32_t keys[D / 4], values[D / 4], weights[QUERIES / 4], dscores[QUERIES / 4], drawn[QUERIES / 8];
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;
    load_fragments<D>(a.k, sample_row, key, a.keys, p.head * D, keys);
    load_fragments<D>(a.v, sample_row, key, a.keys, p.head * D, values);
    const float factor = a.scale * LOG2_E;
    const uint64_t as_columns = vt_by_columns(stages), as_rows = vt_by_rows(stages, shape::PANEL_BYTES);
    vt_pin(keys);
    vt_pin(values);
    vt_pin(dk);
    vt_pin(dv);
    for (int tile = 0; tile < tiles; tile++) {
        const int offset = at.stage * shape::STAGE_BYTES;
        const float *terms = (const float *)(shared + offset + 2 * shape::TILE_BYTES);
        vt_barrier_wait(full + 8 * at.stage, at.parity);
        vt_wgmma_fence();
        multiply_rows<D, shape::PANEL_BYTES>(scores, keys, vt_ahead(as_columns, offset));
        vt_wgmma_wait<1>(); /* dv and dk of the tile before: their operands' registers are needed */
        vt_pin(dk);
        vt_pin(dv);
        if (tile > 0) release(empty + 8 * stage_before(at));
        vt_wgmma_fence(); /* for ptxas: what the products overwrite is not in use */
        multiply_rows<D, shape::PANEL_BYTES>(gradients, values, vt_ahead(as_columns, offset + shape::TILE_BYTES));
        /* Here, because ptxas would wait for the bits before it starts all products of the scores. */
        if (DROPS) vt_fetch_drawn_of_keys(all_drawn, tile * QUERIES + threadIdx.x % 4 * 2, p.first + 16 * warp, drawn);
        vt_wgmma_wait<1>(); /* scores */
        vt_pin(scores);
        find_weights_of_keys<QUERIES, DROPS>(factor, terms, drawn, scores, weights);
        vt_pin(weights);
        vt_wgmma_fence();
        add_product<QUERIES>(dv, weights, vt_ahead(as_rows, offset + shape::TILE_BYTES));
        vt_wgmma_wait<1>(); /* gradients of weights */
        vt_pin(gradients);
        find_dscores_of_keys<QUERIES, DROPS>(a.kept_scale, drawn, terms + QUERIES, scores, gradients, dscores);
        vt_pin(dscores);
        vt_wgmma_fence();
        add_product<QUERIES>(dk, dscores, vt_ahead(as_rows, offset));
        advance(at);
    }
    vt_wgmma_wait<0>();
    vt_pin(dk);
    vt_pin(dv);
    const float of_keys[2] = {a.scale, a.scale}, of_values[2] = {a.kept_scale, a.kept_scale};
    store_fragments<D>(a.dk, sample_row, key, a.keys, p.head * D, of_keys, dk);
    store_fragments<D>(a.dv, sample_row, key, a.keys, p.head * D, of_values, dv);
}

/* ---- both ---- */

/* The number of warpgroups and the rows of a tile: of keys for dq, of queries for dk and dv. */
template <int D, int QUERY_GROUPS, int KEYS, int KEY_GROUPS, int QUERIES, int STAGES>
static bool launch(vt_backend *backend, wgmma_arguments a, int64_t batch)
{
    typedef block_shape<D, QUERY_GROUPS, KEYS, STAGES> of_queries;
    typedef block_shape<D, KEY_GROUPS, QUERIES, STAGES, true> of_keys;
    vt_box_map keys, values, queries, dout;
    if (!vt_map_boxes(&keys, a.k, batch, a.keys, KEYS, D) || !vt_map_boxes(&values, a.v, batch, a.keys, KEYS, D) ||
        !vt_map_boxes(&queries, a.q, batch, a.queries, QUERIES, D) ||
        !vt_map_boxes(&dout, a.dout, batch, a.queries, QUERIES, D))
        return false;
    a.padded = (a.queries + QUERIES - 1) / QUERIES * QUERIES;
    const int64_t terms = batch * a.heads * a.padded;
    a.log_sum2 = (float *)vt_common(backend)->workspace(backend, (size_t)terms * 2 * sizeof(float));
    if (a.log_sum2 == NULL) return false;
    a.delta = a.log_sum2 + terms; /* at a multiple of 16 bytes, as copies need it: QUERIES is a multiple of 16 */
    const auto of_dq = a.drawn != NULL ? wgmma_query_gradient_kernel<D, QUERY_GROUPS, KEYS, STAGES, true>
                                       : wgmma_query_gradient_kernel<D, QUERY_GROUPS, KEYS, STAGES, false>;
    const auto of_dk = a.drawn != NULL ? wgmma_key_gradient_kernel<D, KEY_GROUPS, QUERIES, STAGES, true>
                                       : wgmma_key_gradient_kernel<D, KEY_GROUPS, QUERIES, STAGES, false>;
    VT_LAUNCH(of_dq, (unsigned)blocks_of(batch, a.heads, a.queries, 64 * QUERY_GROUPS), of_queries::THREADS,
              of_queries::SHARED_BYTES, backend, keys, values, a);
    VT_LAUNCH(of_dk, (unsigned)blocks_of(batch, a.heads, a.keys, 64 * KEY_GROUPS), of_keys::THREADS,
              of_keys::SHARED_BYTES, backend, queries, dout, a);
    return true;
}

/* Tiles as large as registers (no spills) and shared memory permit; at 48 columns the fastest of several on an H100. */
bool VT_CUDA_NAME(wgmma_attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                            vt_matrix k, vt_matrix v, vt_matrix out, const float *log_sum,
                                            vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv)
{
    wgmma_arguments a = arguments_of(shape, q, k, v, out, (float *)log_sum);
    a.dout = dout, a.dq = dq, a.dk = dk, a.dv = dv;
    switch (shape->head_dim) {
    case 32:
        return launch<32, 3, 64, 3, 64, 4>(backend, a, shape->batch);
    case 48:
        return launch<48, 2, 96, 2, 80, 4>(backend, a, shape->batch);
    case 64:
        return launch<64, 2, 96, 2, 64, 4>(backend, a, shape->batch);
    case 96:
        return launch<96, 2, 80, 2, 48, 3>(backend, a, shape->batch);
    default:
        return false;
    }
}
