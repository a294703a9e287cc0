/* What wgmma_attention_forward.cu and wgmma_attention_backward.cu share. A block works on one head of one sample. It
 * has GROUPS warpgroups with 64 rows each (queries, or keys), and one warpgroup more, of which one thread, the
 * producer, fetches the tiles that the others share, STAGES ahead. (A whole warpgroup, because only whole ones can give
 * registers back, and ptxas counts a block's threads in warpgroups anyway.) */
#ifndef VT_CUDA_WGMMA_ATTENTION_PARTS_H
#define VT_CUDA_WGMMA_ATTENTION_PARTS_H

#include "wgmma.h"

#include "drawn.h"
#include "elements.h"
#include "wgmma_attention.h"

typedef struct {
    int queries, keys, heads;
    int padded; /* queries up to a multiple of the tiles in which backward reads log_sum2 and delta */
    float scale;
    const uint16_t *drawn; /* of dropout; NULL: there is none */
    float kept_scale;      /* what dropout multiplies by, or 1 */
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum; /* [batch, heads, queries] */
    /* [batch, heads, padded]: log_sum in units of exp2, and the sum of out * dout. Padding has infinity and 0, which
     * makes the weights of queries that are not there 0. */
    float *log_sum2, *delta;
} wgmma_arguments;

constexpr float LOG2_E = 1.44269504f;

typedef struct {
    int sample, head, panel; /* the head's first panel of a matrix's columns */
    int64_t unit;            /* sample * heads + head */
    int first;               /* row of the sample that the block begins with */
} block_place;

static inline int64_t blocks_of(int64_t batch, int64_t heads, int64_t rows, int block_rows)
{
    return batch * heads * ((rows + block_rows - 1) / block_rows);
}

/* For blocks of ROWS of each sample's and head's `rows`. */
template <int D, int ROWS> VT_INLINE block_place find_place(const wgmma_arguments &a, int rows)
{
    const int blocks = (rows + ROWS - 1) / ROWS;
    block_place p;
    p.unit = blockIdx.x / (unsigned)blocks;
    p.first = (int)(blockIdx.x % (unsigned)blocks) * ROWS;
    p.sample = (int)(p.unit / a.heads);
    p.head = (int)(p.unit % a.heads);
    p.panel = p.head * (D / 16);
    return p;
}

/* Which stage of the ring is next, and the parity of its phase. */
template <int STAGES> struct ring_place {
    int stage, parity;
};

template <int STAGES> VT_INLINE void advance(ring_place<STAGES> &at)
{
    if (++at.stage < STAGES) return;
    at.stage = 0;
    at.parity ^= 1;
}

template <int STAGES> VT_INLINE int stage_before(const ring_place<STAGES> &at)
{
    return (at.stage == 0 ? STAGES : at.stage) - 1;
}

/* One arrival for each warp, when all its lanes are done with a stage. */
VT_INLINE void release(vt_shared barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) vt_barrier_arrive(barrier);
}

/* A block with GROUPS warpgroups beside the producer's, and its ring: a stage has two tiles of ROWS rows, which are
 * keys and values, or queries and dout; with TERMS, the rows' log_sum2 and delta stand behind them. A block starts
 * with as many registers a thread as 65536 allow, and can only pass round among its warpgroups what it started with: a
 * warpgroup that asks for more waits forever. */
template <int D, int GROUPS_, int ROWS_, int STAGES_, bool TERMS = false> struct block_shape {
    enum {
        GROUPS = GROUPS_,
        ROWS = ROWS_,
        STAGES = STAGES_,
        TERM_BYTES = TERMS ? ROWS_ * 4 : 0,
        PANEL_BYTES = ROWS_ * 32,
        TILE_BYTES = D / 16 * PANEL_BYTES,
        STAGE_BYTES = (2 * TILE_BYTES + 2 * TERM_BYTES + 1023) / 1024 * 1024,
        BARRIERS = STAGES_ * STAGE_BYTES, /* full [STAGES], empty [STAGES] */
        SHARED_BYTES = BARRIERS + 2 * STAGES_ * 8,
        THREADS = 128 * GROUPS_ + 128,
        START = 65536 / THREADS / 8 * 8, /* registers of a thread; then of the producer's, and of the others */
        PRODUCER = 24,
        CONSUMER = GROUPS_ == 2 ? 240 : 160
    };
    static_assert(STAGES_ >= 3, "for a query, a warpgroup waits for the next tile while it holds two");
    static_assert((int)SHARED_BYTES <= 227 * 1024, "more shared memory than a block has");
    static_assert(GROUPS_ == 2 || GROUPS_ == 3, "other numbers of warpgroups have not been tried");
    static_assert(GROUPS_ * CONSUMER + PRODUCER <= (GROUPS_ + 1) * START, "more registers than the block has");
};

/* What a block fetches: `tiles` boxes of each map and, if the shape has terms, of each of these arrays. */
typedef struct {
    const vt_box_map *first, *second;
    const float *log_sum2, *delta;
    int tiles;
} tile_source;

/* The producer: copies tile after tile into stages that have been released. */
template <typename shape>
VT_INLINE void fetch_tiles(const tile_source &from, const block_place &p, vt_shared stages, vt_shared full,
                           vt_shared empty)
{
    ring_place<shape::STAGES> at = {0, 0};
    for (int tile = 0; tile < from.tiles; tile++) {
        const vt_shared stage = stages + at.stage * shape::STAGE_BYTES, ready = full + 8 * at.stage;
        const vt_shared terms = stage + 2 * shape::TILE_BYTES;
        const int row = tile * shape::ROWS;
        if (tile >= shape::STAGES) vt_barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
        vt_barrier_arrive_expecting(ready, 2 * shape::TILE_BYTES + 2 * shape::TERM_BYTES);
        vt_copy_box(stage, from.first, row, p.panel, p.sample, ready);
        vt_copy_box(stage + shape::TILE_BYTES, from.second, row, p.panel, p.sample, ready);
        if (shape::TERM_BYTES > 0) {
            vt_copy_bytes(terms, from.log_sum2 + row, shape::TERM_BYTES, ready);
            vt_copy_bytes(terms + shape::TERM_BYTES, from.delta + row, shape::TERM_BYTES, ready);
        }
        advance(at);
    }
}

/* Opens the ring, and shares out the registers. False: the thread is done, because it has no rows, or was the producer
 * and has fetched all tiles. The ring's barriers: `full` is complete when a stage's copies are there, `empty` when
 * every warp of the warpgroups that have some of a sample's `rows` has released it. All threads of the block call. */
template <typename shape>
VT_INLINE bool begin_block(const tile_source &from, const block_place &p, int rows, int warp, vt_shared stages,
                           vt_shared full, vt_shared empty)
{
    const int needed = (rows - p.first + 63) / 64, working = needed < shape::GROUPS ? needed : (int)shape::GROUPS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape::STAGES; i++) {
            vt_barrier_init(full + 8 * i, 1);
            vt_barrier_init(empty + 8 * i, 4 * working);
        }
        vt_barrier_init_fence();
    }
    __syncthreads();
    if (warp >= 4 * shape::GROUPS) {
        vt_registers_shrink<shape::PRODUCER>();
        if (threadIdx.x == 128 * shape::GROUPS) fetch_tiles<shape>(from, p, stages, full, empty);
        return false;
    }
    vt_registers_grow<shape::CONSUMER>();
    return warp / 4 < working;
}

/* This thread's part of an operand A of 64 rows and D columns in registers: of rows `row` and row + 8 of a sample that
 * begins at first_row (rows from `end` on are 0), four registers for each 16 columns. */
template <int D>
VT_INLINE void load_fragments(const vt_matrix &m, int64_t first_row, int row, int end, int column, uint32_t (&a)[D / 4])
{
#pragma unroll
    for (int i = 0; i < D / 4; i++) {
        const int own = row + i % 2 * 8;
        const uint16_t *from = m.half + (first_row + own) * m.stride + column + i / 4 * 16 + i / 2 % 2 * 8;
        a[i] = own < end ? *(const uint32_t *)(from + threadIdx.x % 4 * 2) : 0;
    }
}

/* Writes rows `row` and row + 8 of this thread's part of 64 rows and D columns, times factor[0] and factor[1], in
 * bfloat16 or float32. */
template <int D>
VT_INLINE void store_fragments(const vt_matrix &m, int64_t first_row, int row, int end, int column,
                               const float (&factor)[2], const float (&sums)[D / 2])
{
#pragma unroll
    for (int i = 0; i < D / 2; i += 2) {
        const int half = i / 2 % 2, own = row + half * 8;
        const int64_t to = (first_row + own) * m.stride + column + i / 4 * 8 + threadIdx.x % 4 * 2;
        const float a = sums[i] * factor[half], b = sums[i + 1] * factor[half];
        if (own >= end) continue;
        if (m.type == VT_FLOAT32)
            *(float2 *)(m.data + to) = float2{a, b};
        else
            *(uint32_t *)(m.half + to) = vt_pack(VT_BFLOAT16, a, b);
    }
}

/* result [64, rows of a tile] = a [64, D] × the transpose of the tile, as a group of products. */
template <int D, int PANEL_BYTES, int COUNT>
VT_INLINE void multiply_rows(float (&result)[COUNT], const uint32_t (&a)[D / 4], uint64_t tile)
{
    vt_wgmma<VT_DEPTH_CONTIGUOUS, false>(result, a, tile);
#pragma unroll
    for (int k = 1; k < D / 16; k++)
        vt_wgmma<VT_DEPTH_CONTIGUOUS, true>(result, a + 4 * k, vt_ahead(tile, k * PANEL_BYTES));
    vt_wgmma_commit();
}

/* sums [64, columns of a tile] += a [64, ROWS] × the tile, as a group of products of 16 rows, which are 512 bytes. */
template <int ROWS, int COUNT>
VT_INLINE void add_product(float (&sums)[COUNT], const uint32_t (&a)[ROWS / 4], uint64_t tile)
{
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) vt_wgmma<VT_COLUMNS_CONTIGUOUS, true>(sums, a + 4 * k, vt_ahead(tile, k * 512));
    vt_wgmma_commit();
}

/* Scores of keys that are not there become -INFINITY (zeros in the tile are not enough: infinity × 0 is NaN);
 * keys_left: how many there are from the tile's first one on. */
template <int KEYS> VT_INLINE void hide_missing(int keys_left, float (&scores)[KEYS / 2])
{
    const int own = keys_left - (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + i % 2 >= own) scores[i] = -INFINITY;
}

static inline wgmma_arguments arguments_of(const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                                           vt_matrix out, float *log_sum)
{
    wgmma_arguments a = {};
    a.queries = (int)shape->queries, a.keys = (int)shape->keys, a.heads = (int)shape->heads;
    a.scale = vt_attention_scale(shape);
    a.drawn = shape->dropout.rate > 0 ? shape->drawn : NULL;
    a.kept_scale = 1.0f / (1.0f - shape->dropout.rate);
    a.q = q, a.k = k, a.v = v, a.out = out, a.log_sum = log_sum;
    return a;
}

#endif
