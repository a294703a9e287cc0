#include "fused_attention.h"

#ifdef VT_HAS_CUDNN

typedef vt_fused_tensor tensor;

/* [batch, heads, rows, columns], inside the kernel. */
static tensor inside(vt_fused_graph *g, const vt_attention_key *s, int64_t rows, int64_t columns, cudnnDataType_t type)
{
    const int64_t dims[4] = {s->batch, s->heads, rows, columns};
    const int64_t strides[4] = {s->heads * rows * columns, rows * columns, columns, 1};
    return vt_fused_tensor_make(g, VT_FUSED_INSIDE, 0, type, 4, dims, strides);
}

/* Heads side by side in the rows of a matrix; transposed: [batch, heads, head_dim, rows]. */
static tensor heads_of(vt_fused_graph *g, const vt_attention_key *s, int64_t id, int64_t rows, int64_t stride,
                       bool transposed)
{
    const int64_t dims[4] = {s->batch, s->heads, transposed ? s->head_dim : rows, transposed ? rows : s->head_dim};
    const int64_t strides[4] = {rows * stride, s->head_dim, transposed ? 1 : stride, transposed ? stride : 1};
    return vt_fused_tensor_make(g, VT_FUSED_IN_MEMORY, id, vt_fused_type(s->type), 4, dims, strides);
}

/* [batch, heads, queries, columns], float32. */
static tensor query_rows(vt_fused_graph *g, const vt_attention_key *s, int64_t id, int64_t columns)
{
    const int64_t dims[4] = {s->batch, s->heads, s->queries, columns};
    const int64_t strides[4] = {s->heads * s->queries * columns, s->queries * columns, columns, 1};
    return vt_fused_tensor_make(g, VT_FUSED_IN_MEMORY, id, CUDNN_DATA_FLOAT, 4, dims, strides);
}

static tensor value_of(vt_fused_graph *g, int64_t id)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return vt_fused_tensor_make(g, VT_FUSED_VALUE, id, CUDNN_DATA_FLOAT, 4, one, one);
}

/* x with rows and columns exchanged. */
static tensor transpose(vt_fused_graph *g, const vt_attention_key *s, tensor x)
{
    const int64_t rows = x.dims[3], columns = x.dims[2];
    const int64_t dims[4] = {x.dims[0], x.dims[1], rows, columns};
    const int64_t strides[4] = {x.dims[1] * rows * columns, rows * columns, 1, rows};
    return vt_fused_reshape(g, x,
                            vt_fused_tensor_make(g, VT_FUSED_INSIDE, 0, vt_fused_type(s->type), 4, dims, strides));
}

/* scale * q kᵀ; of keys that are not seen the lowest number. */
static tensor scores_of(vt_fused_graph *g, const vt_attention_key *s, tensor q, tensor k_transposed, tensor scale)
{
    enum { QUERIES = 2, KEYS }; /* dimensions */
    tensor products = vt_fused_multiply(g, q, k_transposed, inside(g, s, s->queries, s->keys, CUDNN_DATA_FLOAT));
    tensor scores = vt_fused_pointwise(g, CUDNN_POINTWISE_MUL, products, &scale,
                                       inside(g, s, s->queries, s->keys, CUDNN_DATA_FLOAT));
    if (!s->causal) return scores;
    tensor query = vt_fused_index(g, scores, QUERIES, inside(g, s, s->queries, s->keys, CUDNN_DATA_INT32));
    tensor key = vt_fused_index(g, scores, KEYS, inside(g, s, s->queries, s->keys, CUDNN_DATA_INT32));
    tensor seen = vt_fused_at_least(g, query, key, inside(g, s, s->queries, s->keys, CUDNN_DATA_BOOLEAN));
    return vt_fused_choose(g, seen, scores, value_of(g, VT_FUSED_UNSEEN),
                           inside(g, s, s->queries, s->keys, CUDNN_DATA_FLOAT));
}

static void describe_forward(vt_fused_graph *g, const vt_attention_key *s)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    tensor q = heads_of(g, s, VT_FUSED_Q, s->queries, s->q_stride, false);
    tensor k_transposed = heads_of(g, s, VT_FUSED_K, s->keys, s->k_stride, true);
    tensor v = heads_of(g, s, VT_FUSED_V, s->keys, s->v_stride, false);
    tensor out = heads_of(g, s, VT_FUSED_OUT, s->queries, s->out_stride, false);
    tensor log_sum = query_rows(g, s, VT_FUSED_LOG_SUM, 1);
    tensor scores = scores_of(g, s, q, k_transposed, value_of(g, VT_FUSED_SCALE));
    tensor maximum = vt_fused_reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, inside(g, s, s->queries, 1, f32));
    tensor below = vt_fused_pointwise(g, CUDNN_POINTWISE_SUB, scores, &maximum, inside(g, s, s->queries, s->keys, f32));
    tensor powers = vt_fused_pointwise(g, CUDNN_POINTWISE_EXP, below, NULL, inside(g, s, s->queries, s->keys, f32));
    tensor sum = vt_fused_reduce(g, CUDNN_REDUCE_TENSOR_ADD, powers, inside(g, s, s->queries, 1, f32));
    tensor logarithm = vt_fused_pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, inside(g, s, s->queries, 1, f32));
    vt_fused_pointwise(g, CUDNN_POINTWISE_ADD, maximum, &logarithm, log_sum);
    tensor weights = vt_fused_pointwise(g, CUDNN_POINTWISE_DIV, powers, &sum,
                                        inside(g, s, s->queries, s->keys, vt_fused_type(s->type)));
    vt_fused_multiply(g, weights, v, out);
}

static void describe_backward(vt_fused_graph *g, const vt_attention_key *s)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    tensor q = heads_of(g, s, VT_FUSED_Q, s->queries, s->q_stride, false);
    tensor k_transposed = heads_of(g, s, VT_FUSED_K, s->keys, s->k_stride, true);
    tensor v_transposed = heads_of(g, s, VT_FUSED_V, s->keys, s->v_stride, true);
    tensor out = heads_of(g, s, VT_FUSED_OUT, s->queries, s->out_stride, false);
    tensor dout = heads_of(g, s, VT_FUSED_DOUT, s->queries, s->dout_stride, false);
    tensor dq = heads_of(g, s, VT_FUSED_DQ, s->queries, s->dq_stride, false);
    tensor dk = heads_of(g, s, VT_FUSED_DK, s->keys, s->dk_stride, false);
    tensor dv = heads_of(g, s, VT_FUSED_DV, s->keys, s->dv_stride, false);
    tensor log_sum = query_rows(g, s, VT_FUSED_LOG_SUM, 1), delta = query_rows(g, s, VT_FUSED_DELTA, 1);
    tensor scale = value_of(g, VT_FUSED_SCALE), one = value_of(g, VT_FUSED_ONE);

    tensor both = vt_fused_pointwise(g, CUDNN_POINTWISE_MUL, dout, &out, inside(g, s, s->queries, s->head_dim, f32));
    tensor row_sum = vt_fused_reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, inside(g, s, s->queries, 1, f32));
    vt_fused_pointwise(g, CUDNN_POINTWISE_MUL, row_sum, &one, delta);

    tensor scores = scores_of(g, s, q, k_transposed, scale);
    tensor below = vt_fused_pointwise(g, CUDNN_POINTWISE_SUB, scores, &log_sum, inside(g, s, s->queries, s->keys, f32));
    tensor weights = vt_fused_pointwise(g, CUDNN_POINTWISE_EXP, below, NULL, inside(g, s, s->queries, s->keys, f32));
    vt_fused_multiply(g, transpose(g, s, weights), dout, dv);

    tensor dweights = vt_fused_multiply(g, dout, v_transposed, inside(g, s, s->queries, s->keys, f32));
    tensor centred =
        vt_fused_pointwise(g, CUDNN_POINTWISE_SUB, dweights, &delta, inside(g, s, s->queries, s->keys, f32));
    tensor dscores =
        vt_fused_pointwise(g, CUDNN_POINTWISE_MUL, centred, &weights, inside(g, s, s->queries, s->keys, f32));
    tensor scaled = vt_fused_pointwise(g, CUDNN_POINTWISE_MUL, dscores, &scale,
                                       inside(g, s, s->queries, s->keys, vt_fused_type(s->type)));
    vt_fused_multiply(g, transpose(g, s, scaled), q, dk);

    const int64_t k_dims[4] = {s->batch, s->heads, s->keys, s->head_dim};
    const int64_t k_strides[4] = {s->keys * s->k_stride, s->head_dim, s->k_stride, 1};
    tensor k = vt_fused_tensor_make(g, VT_FUSED_INSIDE, 0, vt_fused_type(s->type), 4, k_dims, k_strides);
    k = vt_fused_reshape(g, k_transposed, k);
    if (s->pass == VT_ATTENTION_REPEATABLE) {
        vt_fused_multiply(g, scaled, k, dq);
    } else {
        tensor sum = vt_fused_multiply(g, scaled, k, query_rows(g, s, VT_FUSED_DQ_SUM, s->head_dim));
        vt_fused_pointwise(g, CUDNN_POINTWISE_IDENTITY, sum, NULL, dq);
    }
}

bool vt_attention_graph_open(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                             const vt_attention_key *shape, vt_fused_graph *graph)
{
    vt_fused_plan found[VT_FUSED_MOST_PLANS];
    vt_fused_graph_begin(library, handle, device_text, graph);
    if (shape->pass == VT_ATTENTION_FORWARD)
        describe_forward(graph, shape);
    else
        describe_backward(graph, shape);
    return vt_fused_graph_find_plans(graph, (vt_fused_needs){.any_will_do = true}, VT_FUSED_ANY_PROPOSAL, 1, found) > 0;
}

#endif
