/* What attention_forward.cu and attention_backward.cu share; they are two files because each takes long to compile. */
#ifndef VT_CUDA_ATTENTION_PARTS_H
#define VT_CUDA_ATTENTION_PARTS_H

#include "attention_tiles.h"
#include "drawn.h"

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

typedef struct {
    vt_attention_shape shape;
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum, *delta; /* [batch, heads, queries] */
    float scale;            /* of scores */
    float kept_scale;       /* what dropout multiplies by */
    bool wide, exact;
} attention_arguments;

/* The head and the sample of the batch that a block works on. */
typedef struct {
    int64_t unit, sample, head, column, first_query, last_query, first_key, last_key; /* rows of q and of k, v */
    vt_drawn drawn;
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
    h.drawn = vt_find_drawn(a.shape.drawn, unit, a.shape.queries, a.shape.keys);
    return h;
}

/* The first row of a block of queries. The last queries, which see the most keys under a causal mask, come first. */
__device__ static inline int64_t first_query_of(int64_t blocks)
{
    return (blocks - 1 - blockIdx.x % blocks) * ROWS;
}

/* Where the keys end that some query of a block sees. */
__device__ static inline int64_t end_of_keys(const attention_arguments &a, int64_t first)
{
    return vt_attention_seen(&a.shape, min(first + ROWS, a.shape.queries) - 1);
}

/* How many of the keys from `key` on this thread's two queries, query and query + 8, see; at most a tile's. A thread's
 * columns 8 n + i of a row begin at its own column, which is taken off. */
template <int TILES>
__device__ static inline void find_seen(const attention_arguments &a, int64_t query, int64_t key, int seen[2])
{
    for (int half = 0; half < 2; half++) {
        const int64_t own = query + 8 * half;
        const int64_t all = own < a.shape.queries ? vt_attention_seen(&a.shape, own) - key : 0;
        seen[half] = (int)max(min(all, (int64_t)(8 * TILES)), (int64_t)0) - (int)threadIdx.x % 4 * 2;
    }
}

static dim3 blocks_of(const attention_arguments *a, int64_t rows)
{
    return dim3((unsigned)(a->shape.batch * a->shape.heads * ((rows + ROWS - 1) / ROWS)));
}

template <typename number> static size_t shared_bytes(const attention_arguments *a, int rows)
{
    return (size_t)(rows * vt_tile_stride<number>((int)a->shape.head_dim)) * sizeof(number);
}

/* Kernels are instantiated for a maximum number of result tiles of a head, because each tile costs registers. */
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

/* In 16 bits if q, k and v have the same 16-bit type. */
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
    a.scale = vt_attention_scale(shape);
    a.kept_scale = 1.0f / (1.0f - shape->dropout.rate);
    a.exact = vt_common(backend)->exact_float32;
    a.wide = shape->head_dim % 8 == 0 && vt_is_wide(q) && vt_is_wide(k) && vt_is_wide(v) && vt_is_wide(out);
    return a;
}

#endif
