#include "fused_attention.h"

#ifdef VT_HAS_CUDNN

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef cudnnBackendDescriptor_t descriptor;

typedef struct {
    descriptor tensor;
    int64_t dims[4];
} tensor;

/* Whether a call succeeded. The first failure fails the graph; its description is kept. */
static bool succeeds(vt_fused_graph *g, cudnnStatus_t status, const char *what, int number)
{
    char text[200] = "";
    if (status == CUDNN_STATUS_SUCCESS) return true;
    g->failed = true;
    g->library->cudnnGetLastErrorString(text, sizeof text);
    snprintf(g->failure, sizeof g->failure, "%s %d (operation %d): status %d, %s", what, number, g->operation_count,
             (int)status, text);
    return false;
}

static descriptor make(vt_fused_graph *g, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    if (g->count == VT_FUSED_MOST_DESCRIPTORS) g->failed = true;
    if (g->failed ||
        !succeeds(g, g->library->cudnnBackendCreateDescriptor(type, &made), "making a descriptor", (int)type))
        return NULL;
    g->descriptors[g->count++] = made;
    return made;
}

static void set(vt_fused_graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *value)
{
    if (!g->failed)
        succeeds(g, g->library->cudnnBackendSetAttribute(d, name, type, count, value), "setting attribute", (int)name);
}

static void set_descriptor(vt_fused_graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&value);
}

static void finish(vt_fused_graph *g, descriptor d)
{
    if (!g->failed) succeeds(g, g->library->cudnnBackendFinalize(d), "finishing descriptor", g->count);
}

static tensor make_tensor(vt_fused_graph *g, int64_t id, cudnnDataType_t type, const int64_t dims[4],
                          const int64_t strides[4], bool is_inside, bool is_value)
{
    tensor t = {.tensor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    int64_t alignment = is_value ? 4 : 16;
    memcpy(t.dims, dims, sizeof t.dims);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inside);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    finish(g, t.tensor);
    return t;
}

static cudnnDataType_t half_type(const vt_fused_shape *s)
{
    return s->type == VT_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/* [batch, heads, rows, columns], inside the kernel. */
static tensor inside(vt_fused_graph *g, const vt_fused_shape *s, int64_t rows, int64_t columns, cudnnDataType_t type)
{
    const int64_t dims[4] = {s->batch, s->heads, rows, columns};
    const int64_t strides[4] = {s->heads * rows * columns, rows * columns, columns, 1};
    return make_tensor(g, g->next_id++, type, dims, strides, true, false);
}

/* Heads side by side in the rows of a matrix; transposed: [batch, heads, head_dim, rows]. */
static tensor heads_of(vt_fused_graph *g, const vt_fused_shape *s, int64_t id, int64_t rows, int64_t stride,
                       bool transposed)
{
    const int64_t dims[4] = {s->batch, s->heads, transposed ? s->head_dim : rows, transposed ? rows : s->head_dim};
    const int64_t strides[4] = {rows * stride, s->head_dim, transposed ? 1 : stride, transposed ? stride : 1};
    return make_tensor(g, id, half_type(s), dims, strides, false, false);
}

/* [batch, heads, queries, columns], float32. */
static tensor query_rows(vt_fused_graph *g, const vt_fused_shape *s, int64_t id, int64_t columns)
{
    const int64_t dims[4] = {s->batch, s->heads, s->queries, columns};
    const int64_t strides[4] = {s->heads * s->queries * columns, s->queries * columns, columns, 1};
    return make_tensor(g, id, CUDNN_DATA_FLOAT, dims, strides, false, false);
}

static tensor value_of(vt_fused_graph *g, int64_t id)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return make_tensor(g, id, CUDNN_DATA_FLOAT, one, one, false, true);
}

static void add_operation(vt_fused_graph *g, descriptor operation)
{
    finish(g, operation);
    if (!g->failed) g->operations[g->operation_count++] = operation;
}

/* y = mode(x, b); b NULL: only x. */
static tensor pointwise(vt_fused_graph *g, cudnnPointwiseMode_t mode, tensor x, const tensor *b, tensor y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, what);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.tensor);
    if (b != NULL) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.tensor);
    add_operation(g, operation);
    return y;
}

static tensor multiply(vt_fused_graph *g, tensor a, tensor b, tensor c)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor what = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, what);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.tensor);
    add_operation(g, operation);
    return c;
}

static tensor reduce(vt_fused_graph *g, cudnnReduceTensorOp_t how, tensor x, tensor y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor what = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, what);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.tensor);
    add_operation(g, operation);
    return y;
}

/* x with rows and columns exchanged. */
static tensor transpose(vt_fused_graph *g, const vt_fused_shape *s, tensor x)
{
    const int64_t rows = x.dims[3], columns = x.dims[2];
    const int64_t dims[4] = {x.dims[0], x.dims[1], rows, columns};
    const int64_t strides[4] = {x.dims[1] * rows * columns, rows * columns, 1, rows};
    tensor y = make_tensor(g, g->next_id++, half_type(s), dims, strides, true, false);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.tensor);
    add_operation(g, operation);
    return y;
}

/* scale * q kᵀ */
static tensor scores_of(vt_fused_graph *g, const vt_fused_shape *s, tensor q, tensor k_transposed, tensor scale)
{
    tensor products = multiply(g, q, k_transposed, inside(g, s, s->queries, s->keys, CUDNN_DATA_FLOAT));
    return pointwise(g, CUDNN_POINTWISE_MUL, products, &scale, inside(g, s, s->queries, s->keys, CUDNN_DATA_FLOAT));
}

static void describe_forward(vt_fused_graph *g, const vt_fused_shape *s)
{
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    tensor q = heads_of(g, s, VT_FUSED_Q, s->queries, s->q_stride, false);
    tensor k_transposed = heads_of(g, s, VT_FUSED_K, s->keys, s->k_stride, true);
    tensor v = heads_of(g, s, VT_FUSED_V, s->keys, s->v_stride, false);
    tensor out = heads_of(g, s, VT_FUSED_OUT, s->queries, s->out_stride, false);
    tensor log_sum = query_rows(g, s, VT_FUSED_LOG_SUM, 1);
    tensor scores = scores_of(g, s, q, k_transposed, value_of(g, VT_FUSED_SCALE));
    tensor maximum = reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, inside(g, s, s->queries, 1, wide));
    tensor below = pointwise(g, CUDNN_POINTWISE_SUB, scores, &maximum, inside(g, s, s->queries, s->keys, wide));
    tensor powers = pointwise(g, CUDNN_POINTWISE_EXP, below, NULL, inside(g, s, s->queries, s->keys, wide));
    tensor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, powers, inside(g, s, s->queries, 1, wide));
    tensor logarithm = pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, inside(g, s, s->queries, 1, wide));
    pointwise(g, CUDNN_POINTWISE_ADD, maximum, &logarithm, log_sum);
    tensor weights = pointwise(g, CUDNN_POINTWISE_DIV, powers, &sum, inside(g, s, s->queries, s->keys, half_type(s)));
    multiply(g, weights, v, out);
}

static void describe_backward(vt_fused_graph *g, const vt_fused_shape *s)
{
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    tensor q = heads_of(g, s, VT_FUSED_Q, s->queries, s->q_stride, false);
    tensor k_transposed = heads_of(g, s, VT_FUSED_K, s->keys, s->k_stride, true);
    tensor v_transposed = heads_of(g, s, VT_FUSED_V, s->keys, s->v_stride, true);
    tensor out = heads_of(g, s, VT_FUSED_OUT, s->queries, s->out_stride, false);
    tensor dout = heads_of(g, s, VT_FUSED_DOUT, s->queries, s->dout_stride, false);
    tensor dq = heads_of(g, s, VT_FUSED_DQ, s->queries, s->dq_stride, false);
    tensor dk = heads_of(g, s, VT_FUSED_DK, s->keys, s->dk_stride, false);
    tensor dv = heads_of(g, s, VT_FUSED_DV, s->keys, s->dv_stride, false);
    tensor log_sum = query_rows(g, s, VT_FUSED_LOG_SUM, 1), delta = query_rows(g, s, VT_FUSED_DELTA, 1);
    tensor dq_sum = query_rows(g, s, VT_FUSED_DQ_SUM, s->head_dim);
    tensor scale = value_of(g, VT_FUSED_SCALE), one = value_of(g, VT_FUSED_ONE);

    tensor both = pointwise(g, CUDNN_POINTWISE_MUL, dout, &out, inside(g, s, s->queries, s->head_dim, wide));
    tensor row_sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, inside(g, s, s->queries, 1, wide));
    pointwise(g, CUDNN_POINTWISE_MUL, row_sum, &one, delta);

    tensor scores = scores_of(g, s, q, k_transposed, scale);
    tensor below = pointwise(g, CUDNN_POINTWISE_SUB, scores, &log_sum, inside(g, s, s->queries, s->keys, wide));
    tensor weights = pointwise(g, CUDNN_POINTWISE_EXP, below, NULL, inside(g, s, s->queries, s->keys, wide));
    multiply(g, transpose(g, s, weights), dout, dv);

    tensor dweights = multiply(g, dout, v_transposed, inside(g, s, s->queries, s->keys, wide));
    tensor centred = pointwise(g, CUDNN_POINTWISE_SUB, dweights, &delta, inside(g, s, s->queries, s->keys, wide));
    tensor dscores = pointwise(g, CUDNN_POINTWISE_MUL, centred, &weights, inside(g, s, s->queries, s->keys, wide));
    tensor scaled = pointwise(g, CUDNN_POINTWISE_MUL, dscores, &scale, inside(g, s, s->queries, s->keys, half_type(s)));
    multiply(g, transpose(g, s, scaled), q, dk);

    const int64_t k_dims[4] = {s->batch, s->heads, s->keys, s->head_dim};
    const int64_t k_strides[4] = {s->keys * s->k_stride, s->head_dim, s->k_stride, 1};
    tensor k = make_tensor(g, g->next_id++, half_type(s), k_dims, k_strides, true, false);
    descriptor turn = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, turn, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, k_transposed.tensor);
    set_descriptor(g, turn, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, k.tensor);
    add_operation(g, turn);
    multiply(g, scaled, k, dq_sum);
    pointwise(g, CUDNN_POINTWISE_IDENTITY, dq_sum, NULL, dq);
}

/* The target of the plan: a described device, or the handle's. */
static void set_target(vt_fused_graph *g, descriptor plan, descriptor device, cudnnHandle_t handle)
{
    if (device != NULL)
        set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    else
        set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&handle);
}

/* Makes this the graph's plan, if it can be finalized. */
static void take_plan(vt_fused_graph *g, descriptor plan)
{
    int64_t one;
    finish(g, plan);
    if (!g->failed && succeeds(g,
                               g->library->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                                    CUDNN_TYPE_INT64, 1, &one, &g->workspace_bytes),
                               "asking for the workspace of plan", g->count))
        g->plan = plan;
}

/* NULL: the handle's. */
static descriptor make_device(vt_fused_graph *g, const char *text)
{
    if (text == NULL) return NULL;
    descriptor device = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(text), text);
    finish(g, device);
    return device;
}

/* The first proposal that becomes a plan. */
static void find_plan(vt_fused_graph *g, descriptor operations, descriptor device, cudnnHandle_t handle,
                      cudnnBackendHeurMode_t mode)
{
    enum { MOST = 8 };
    descriptor heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), proposals[MOST];
    int64_t count = 0;
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device != NULL) set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(g, heuristic);
    for (int i = 0; i < MOST; i++) proposals[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed ||
        !succeeds(g,
                  g->library->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count, (void *)proposals),
                  "proposals of mode", (int)mode)) {
        g->failed = false; /* the other mode may work */
        return;
    }
    g->proposals += (int)count;
    for (int64_t i = 0; i < count && i < MOST && g->plan == NULL; i++) {
        descriptor plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposals[i]);
        set_target(g, plan, device, handle);
        take_plan(g, plan);
        g->failed = false; /* the next one may work */
    }
}

bool vt_fused_graph_open(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                         const vt_fused_shape *shape, vt_fused_graph *graph)
{
    *graph = (vt_fused_graph){.library = library, .next_id = 1000};
    if (shape->backward)
        describe_backward(graph, shape);
    else
        describe_forward(graph, shape);
    descriptor device = make_device(graph, device_text);
    descriptor operations = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (device_text == NULL)
        set(graph, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&handle);
    set(graph, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
        (const void *)graph->operations);
    finish(graph, operations);
    if (!graph->failed) find_plan(graph, operations, device, handle, CUDNN_HEUR_MODE_A);
    if (!graph->failed && graph->plan == NULL) find_plan(graph, operations, device, handle, CUDNN_HEUR_MODE_FALLBACK);
    return graph->plan != NULL;
}

char *vt_fused_graph_text(const vt_fused_graph *graph, size_t *bytes)
{
    const vt_cudnn *library = graph->library;
    int64_t size = 0;
    if (graph->plan == NULL ||
        library->cudnnBackendGetAttribute(graph->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          0, &size, NULL) != CUDNN_STATUS_SUCCESS ||
        size <= 0)
        return NULL;
    char *text = vt_allocate((size_t)size, 1, "a plan of cuDNN's as text");
    if (library->cudnnBackendGetAttribute(graph->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          size, &size, text) == CUDNN_STATUS_SUCCESS) {
        *bytes = (size_t)size;
        return text;
    }
    free(text);
    return NULL;
}

bool vt_fused_graph_restore(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const char *text,
                            size_t bytes, vt_fused_graph *graph)
{
    *graph = (vt_fused_graph){.library = library};
    descriptor device = make_device(graph, device_text);
    descriptor plan = make(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_target(graph, plan, device, handle);
    set(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)bytes, text);
    take_plan(graph, plan);
    return graph->plan != NULL;
}

void vt_fused_graph_close(vt_fused_graph *graph)
{
    while (graph->count > 0) graph->library->cudnnBackendDestroyDescriptor(graph->descriptors[--graph->count]);
    graph->plan = NULL;
}

#endif
