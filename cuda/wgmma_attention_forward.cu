/* The forward pass: a warpgroup has 64 queries, in registers, and loops over tiles of KEYS keys and values.
 *
 * In each turn a warpgroup's products are queued one behind the other: queries × keys of this tile, then weights ×
 * values of the tile before. The scores come first because the next exponentials wait for them. While products run, the
 * other warpgroups compute exponentials. No product is in flight at the end of a turn: ptxas can follow that. */
#include "wgmma_attention_parts.h"

/* The largest score of each of the thread's two rows, the same on the four lanes that share them. */
template <int KEYS> VT_INLINE void find_largest(const float (&scores)[KEYS / 2], float (&found)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float a = fmaxf(scores[2 * half], scores[2 * half + 1]), b = fmaxf(scores[2 * half + 4], scores[2 * half + 5]);
#pragma unroll
        for (int i = 8; i < KEYS / 2; i += 8) {
            a = fmaxf(fmaxf(a, scores[i + 2 * half]), scores[i + 2 * half + 1]);
            b = fmaxf(fmaxf(b, scores[i + 2 * half + 4]), scores[i + 2 * half + 5]);
        }
        found[half] = fmaxf(a, b);
        found[half] = fmaxf(found[half], __shfl_xor_sync(0xffffffffu, found[half], 1));
        found[half] = fmaxf(found[half], __shfl_xor_sync(0xffffffffu, found[half], 2));
    }
}

/* Scores become weights relative to `largest`, of which those that dropout doesn't keep are 0. `largest` may lag
 * behind the true one, as long as weights stay below 2^8: only then are a row's sums scaled again, which after the
 * first tiles hardly happens, so the warp may branch. */
template <int KEYS, bool DROPS, int COUNT>
VT_INLINE void soften(float factor, const float (&found)[2], const uint32_t (&drawn)[KEYS / 16],
                      const float (&scores)[KEYS / 2], float (&largest)[2], float (&sum)[2], float (&out)[COUNT],
                      uint32_t (&weights)[KEYS / 4])
{
    const bool grows = (found[0] - largest[0]) * factor > 8.0f || (found[1] - largest[1]) * factor > 8.0f;
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float next = fmaxf(largest[half], found[half]);
            const float rescale = vt_exp2((largest[half] - next) * factor);
            largest[half] = next;
            sum[half] *= rescale;
#pragma unroll
            for (int i = 0; i < COUNT; i += 4) {
                out[i + 2 * half] *= rescale;
                out[i + 2 * half + 1] *= rescale;
            }
        }
    }
    const float base[2] = {-largest[0] * factor, -largest[1] * factor};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i += 2) {
        const int half = i / 2 % 2;
        const float a = vt_exp2(fmaf(scores[i], factor, base[half]));
        const float b = vt_exp2(fmaf(scores[i + 1], factor, base[half]));
        sum[half] += a;
        sum[half] += b;
        weights[i / 2] = vt_pack(VT_BFLOAT16, a, b);
        if (DROPS) weights[i / 2] = vt_keep_pair_of_queries(drawn, i, weights[i / 2]);
    }
}

/* The sums of weights are still apart on the four lanes that share a row. */
template <int D>
VT_INLINE void store_out(const wgmma_arguments &a, const block_place &p, int query, const float (&largest)[2],
                         float (&sum)[2], const float (&out)[D / 2])
{
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
        share[half] = a.kept_scale / sum[half];
        if (threadIdx.x % 4 == 0 && query + 8 * half < a.queries)
            a.log_sum[p.unit * a.queries + query + 8 * half] = largest[half] * a.scale + logf(sum[half]);
    }
    store_fragments<D>(a.out, (int64_t)p.sample * a.queries, query, a.queries, p.head * D, share, out);
}

/* keys, values: boxes of KEYS rows of a head. DROPS: with dropout. */
template <int D, int GROUPS, int KEYS, int STAGES, bool DROPS>
VT_KERNEL void __launch_bounds__(128 * GROUPS + 128, 1)
    wgmma_forward_kernel(const __grid_constant__ vt_box_map keys, const __grid_constant__ vt_box_map values,
                         const wgmma_arguments a)
{
    typedef block_shape<D, GROUPS, KEYS, STAGES> shape;
    VT_ALIGNED_SHARED(shared);
    const vt_shared stages = vt_shared_address(shared), full = stages + shape::BARRIERS, empty = full + 8 * STAGES;
    const block_place p = find_place<D, 64 * GROUPS>(a, a.queries);
    /* by a shuffle, so that ptxas knows that a warp's lanes agree */
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), tiles = (a.keys + KEYS - 1) / KEYS;
    const tile_source from = {&keys, &values, nullptr, nullptr, tiles};
    if (!begin_block<shape>(from, p, a.queries, warp, stages, full, empty)) return;
    const int query = p.first + warp * 16 + (int)threadIdx.x % 32 / 4; /* and query + 8 */
    ring_place<STAGES> at = {0, 0};
    const vt_drawn all_drawn = vt_find_drawn(a.drawn, p.unit, a.queries, a.keys);
    uint32_t queries[D / 4], weights[KEYS / 4], drawn[KEYS / 16];
    float scores[KEYS / 2], out[D / 2], largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
#pragma unroll
    for (int i = 0; i < D / 2; i++) out[i] = 0;
    load_fragments<D>(a.q, (int64_t)p.sample * a.queries, query, a.queries, p.head * D, queries);
    const float factor = a.scale * LOG2_E;
    const uint64_t all_keys = vt_by_columns(stages),
                   all_values = vt_by_rows(stages + shape::TILE_BYTES, shape::PANEL_BYTES);
    uint64_t next_keys = all_keys, values_before = all_values;
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) weights[i] = 0; /* of the tile before the first */
    vt_pin(queries);
    vt_pin(weights);
    vt_pin(out);
    vt_barrier_wait(full, 0);
    for (int tile = 0; tile < tiles; tile++) {
        float found[2];
        const int before = stage_before(at);
        vt_wgmma_fence();
        multiply_rows<D, shape::PANEL_BYTES>(scores, queries, next_keys);
        add_product<KEYS>(out, weights, values_before);
        if (DROPS) vt_fetch_drawn_of_queries(all_drawn, query, tile * KEYS, drawn);
        vt_wgmma_wait<1>(); /* scores */
        vt_pin(scores);
        if (tile == tiles - 1) hide_missing<KEYS>(a.keys - tile * KEYS, scores);
        find_largest<KEYS>(scores, found);
        values_before = vt_ahead(all_values, at.stage * shape::STAGE_BYTES);
        advance(at);
        /* Here, because ptxas would move the search for the largest behind the wait, but not over a branch. */
        if (tile + 1 < tiles) vt_barrier_wait(full + 8 * at.stage, at.parity);
        next_keys = vt_ahead(all_keys, at.stage * shape::STAGE_BYTES);
        vt_wgmma_wait<0>(); /* weights × values of the tile before */
        vt_pin(weights);
        vt_pin(out);
        if (tile > 0) release(empty + 8 * before);
        soften<KEYS, DROPS>(factor, found, drawn, scores, largest, sum, out, weights);
        vt_pin(weights);
        vt_pin(out);
    }
    vt_wgmma_fence();
    add_product<KEYS>(out, weights, values_before);
    vt_wgmma_wait<0>();
    vt_pin(out);
    store_out<D>(a, p, query, largest, sum, out);
}

template <int D, int GROUPS, int KEYS, int STAGES>
static bool launch(vt_backend *backend, const wgmma_arguments &a, int64_t batch)
{
    typedef block_shape<D, GROUPS, KEYS, STAGES> shape;
    const auto kernel = a.drawn != NULL ? wgmma_forward_kernel<D, GROUPS, KEYS, STAGES, true>
                                        : wgmma_forward_kernel<D, GROUPS, KEYS, STAGES, false>;
    vt_box_map keys, values;
    if (!vt_map_boxes(&keys, a.k, batch, a.keys, KEYS, D) || !vt_map_boxes(&values, a.v, batch, a.keys, KEYS, D))
        return false;
    VT_LAUNCH(kernel, (unsigned)blocks_of(batch, a.heads, a.queries, 64 * GROUPS), shape::THREADS, shape::SHARED_BYTES,
              backend, keys, values, a);
    return true;
}

/* Tiles as large as registers (no spills) and shared memory permit; at 48 columns the fastest of several on an H100. */
bool VT_CUDA_NAME(wgmma_attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                           vt_matrix k, vt_matrix v, vt_matrix out, float *log_sum)
{
    const wgmma_arguments a = arguments_of(shape, q, k, v, out, log_sum);
    switch (shape->head_dim) {
    case 32:
        return launch<32, 3, 128, 4>(backend, a, shape->batch);
    case 48:
        return launch<48, 3, 128, 4>(backend, a, shape->batch);
    case 64:
        return launch<64, 3, 112, 4>(backend, a, shape->batch);
    case 96:
        return launch<96, 2, 128, 3>(backend, a, shape->batch);
    case 128:
        return launch<128, 2, 128, 3>(backend, a, shape->batch);
    default:
        return false;
    }
}
