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

/* How many of a block's warpgroups have rows at all. */
template <int GROUPS> VT_INLINE int working_groups(int rows, int first)
{
    const int needed = (rows - first + 63) / 64;
    return needed < GROUPS ? needed : GROUPS;
}

/* A block starts with as many registers a thread as 65536 allow, and can only pass round among its warpgroups what it
 * started with: a warpgroup that asks for more waits forever. */
template <int GROUPS> struct block_registers {
    enum { START = 65536 / (128 * (GROUPS + 1)) / 8 * 8, PRODUCER = 24, CONSUMER = GROUPS == 2 ? 240 : 160 };
    static_assert(GROUPS == 2 || GROUPS == 3, "other numbers of warpgroups have not been tried");
    static_assert(GROUPS * CONSUMER + PRODUCER <= (GROUPS + 1) * START, "more registers than the block has");
};

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

/* The barriers of the ring: `full` is complete when a stage's copies are there, `empty` when every warp of the working
 * warpgroups has released the stage. All threads of the block call. */
template <int STAGES> VT_INLINE void open_ring(vt_shared full, vt_shared empty, int working)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            vt_barrier_init(full + 8 * i, 1);
            vt_barrier_init(empty + 8 * i, 4 * working);
        }
        vt_barrier_init_fence();
    }
    __syncthreads();
}

/* One arrival for each warp, when all its lanes are done with a stage. */
VT_INLINE void release(vt_shared barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) vt_barrier_arrive(barrier);
}

/* A block of queries, in forward and for dq. */
template <int D, int GROUPS, int KEYS, int STAGES> struct query_shape {
    enum {
        PANEL_BYTES = KEYS * 32,
        TILE_BYTES = D / 16 * PANEL_BYTES,
        STAGE_BYTES = 2 * TILE_BYTES,    /* keys, then values */
        BARRIERS = STAGES * STAGE_BYTES, /* full [STAGES], empty [STAGES] */
        SHARED_BYTES = BARRIERS + 2 * STAGES * 8,
        THREADS = 128 * GROUPS + 128
    };
    static_assert(STAGES >= 3, "a warpgroup waits for the next tile while it holds two");
    static_assert((int)SHARED_BYTES <= 227 * 1024, "more shared memory than a block has");
};

/* The producer: copies tile after tile into stages that have been released. A stage has a tile of ROWS rows of each map
 * and, if TERM_BYTES is not 0, log_sum2 and delta of these rows. */
template <int STAGES, int ROWS, int TILE_BYTES, int STAGE_BYTES, int TERM_BYTES>
VT_INLINE void fetch_tiles(const vt_box_map *first, const vt_box_map *second, const float *log_sum2, const float *delta,
                           const block_place &p, int tiles, vt_shared stages, vt_shared full, vt_shared empty)
{
    ring_place<STAGES> at = {0, 0};
    for (int tile = 0; tile < tiles; tile++) {
        const vt_shared stage = stages + at.stage * STAGE_BYTES, ready = full + 8 * at.stage;
        if (tile >= STAGES) vt_barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
        vt_barrier_arrive_expecting(ready, 2 * TILE_BYTES + 2 * TERM_BYTES);
        vt_copy_box(stage, first, tile * ROWS, p.panel, p.sample, ready);
        vt_copy_box(stage + TILE_BYTES, second, tile * ROWS, p.panel, p.sample, ready);
        if (TERM_BYTES > 0) {
            vt_copy_bytes(stage + 2 * TILE_BYTES, log_sum2 + tile * ROWS, TERM_BYTES, ready);
            vt_copy_bytes(stage + 2 * TILE_BYTES + TERM_BYTES, delta + tile * ROWS, TERM_BYTES, ready);
        }
        advance(at);
    }
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

/* sums [64, columns of a tile] += a [64, ROWS] × the tile, as a group of products. */
template <int ROWS, int COUNT>
VT_INLINE void add_product(float (&sums)[COUNT], const uint32_t (&a)[ROWS / 4], uint64_t tile)
{
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) vt_wgmma<VT_COLUMNS_CONTIGUOUS, true>(sums, a + 4 * k, vt_ahead(tile, k * 512));
    vt_wgmma_commit();
}

/* Scores of keys that are not there become -INFINITY; keys_left: how many there are from the tile's first one on. */
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
