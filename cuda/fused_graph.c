#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

#include <stdio.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

/* Whether a call succeeded. A failure fails the graph, and `failure` describes it. */
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

vt_fused_tensor vt_fused_tensor_make(vt_fused_graph *g, vt_fused_place place, int64_t id, cudnnDataType_t type,
                                     int rank, const int64_t *dims, const int64_t *strides)
{
    vt_fused_tensor t = {.tensor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    const bool is_inside = place == VT_FUSED_INSIDE, is_value = place == VT_FUSED_VALUE;
    const int64_t alignment = is_value ? 4 : 16;
    if (is_inside) id = g->next_id++;
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inside);
    set(g, t.tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    finish(g, t.tensor);
    return t;
}

static void add_operation(vt_fused_graph *g, descriptor operation)
{
    finish(g, operation);
    if (g->operation_count == VT_FUSED_MOST_OPERATIONS) g->failed = true;
    if (!g->failed) g->operations[g->operation_count++] = operation;
}

/* mode, computed in `precision`, of the operands that are named behind it; dimension -1: the mode has none. */
static descriptor pointwise(vt_fused_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t precision, int64_t dimension)
{
    descriptor what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (dimension >= 0) set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &dimension);
    finish(g, what);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    return operation;
}

/* y = operation(x, b, which); b and which NULL: not there. */
static vt_fused_tensor apply(vt_fused_graph *g, descriptor operation, vt_fused_tensor x, const vt_fused_tensor *b,
                             const vt_fused_tensor *which, vt_fused_tensor y)
{
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.tensor);
    if (b != NULL) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->tensor);
    if (which != NULL) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, which->tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.tensor);
    add_operation(g, operation);
    return y;
}

vt_fused_tensor vt_fused_pointwise(vt_fused_graph *g, cudnnPointwiseMode_t mode, vt_fused_tensor x,
                                   const vt_fused_tensor *b, vt_fused_tensor y)
{
    return apply(g, pointwise(g, mode, CUDNN_DATA_FLOAT, -1), x, b, NULL, y);
}

void vt_fused_derivative(vt_fused_graph *g, cudnnPointwiseMode_t mode, vt_fused_tensor x, vt_fused_tensor dy,
                         vt_fused_tensor dx)
{
    descriptor operation = pointwise(g, mode, CUDNN_DATA_FLOAT, -1);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx.tensor);
    add_operation(g, operation);
}

vt_fused_tensor vt_fused_index(vt_fused_graph *g, vt_fused_tensor x, int64_t dimension, vt_fused_tensor y)
{
    return apply(g, pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, dimension), x, NULL, NULL, y);
}

vt_fused_tensor vt_fused_at_least(vt_fused_graph *g, vt_fused_tensor a, vt_fused_tensor b, vt_fused_tensor y)
{
    return apply(g, pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1), a, &b, NULL, y);
}

vt_fused_tensor vt_fused_choose(vt_fused_graph *g, vt_fused_tensor which, vt_fused_tensor x, vt_fused_tensor b,
                                vt_fused_tensor y)
{
    return apply(g, pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1), x, &b, &which, y);
}

vt_fused_tensor vt_fused_multiply(vt_fused_graph *g, vt_fused_tensor a, vt_fused_tensor b, vt_fused_tensor c)
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

vt_fused_tensor vt_fused_reduce(vt_fused_graph *g, cudnnReduceTensorOp_t how, vt_fused_tensor x, vt_fused_tensor y)
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

vt_fused_tensor vt_fused_reshape(vt_fused_graph *g, vt_fused_tensor x, vt_fused_tensor y)
{
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.tensor);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.tensor);
    add_operation(g, operation);
    return y;
}

void vt_fused_convolve(vt_fused_graph *g, vt_convolution_kind kind, vt_fused_tensor x, vt_fused_tensor weight,
                       vt_fused_tensor y)
{
#define NAMES(what, x_name, w_name, y_name)                                                                            \
    {                                                                                                                  \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_##x_name,       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_##w_name, CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_##y_name,    \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_BETA            \
    }
    static const cudnnBackendDescriptorType_t types[] = {
        [VT_CONVOLUTION_FORWARD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        [VT_CONVOLUTION_DATA] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        [VT_CONVOLUTION_WEIGHT] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    static const cudnnBackendAttributeName_t all[][6] = {[VT_CONVOLUTION_FORWARD] = NAMES(FORWARD, X, W, Y),
                                                         [VT_CONVOLUTION_DATA] = NAMES(BWD_DATA, DX, W, DY),
                                                         [VT_CONVOLUTION_WEIGHT] = NAMES(BWD_FILTER, X, DW, DY)};
    const cudnnBackendAttributeName_t *names = all[kind];
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dimensions = 3, ones[3] = {1, 1, 1}, twos[3] = {2, 2, 2};
    const float one = 1, zero = 0;
    descriptor what = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    set(g, what, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    set(g, what, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dimensions, ones);
    set(g, what, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dimensions, twos);
    set(g, what, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dimensions, ones);
    set(g, what, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dimensions, ones);
    finish(g, what);
    descriptor made = make(g, types[kind]);
    const descriptor operands[] = {what, x.tensor, weight.tensor, y.tensor};
    for (int i = 0; i < 4; i++) set_descriptor(g, made, names[i], operands[i]);
    set(g, made, names[4], CUDNN_TYPE_FLOAT, 1, &one);
    set(g, made, names[5], CUDNN_TYPE_FLOAT, 1, &zero);
    add_operation(g, made);
}

void vt_fused_graph_begin(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, vt_fused_graph *graph)
{
    *graph = (vt_fused_graph){.library = library, .handle = handle, .next_id = 1000};
    if (device_text == NULL) return;
    graph->device = make(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(graph, graph->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device_text),
        device_text);
    finish(graph, graph->device);
}

/* All operations, in one descriptor. */
static descriptor finish_operations(vt_fused_graph *g)
{
    descriptor all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (g->device == NULL)
        set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&g->handle);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
        (const void *)g->operations);
    finish(g, all);
    return all;
}

/* The proposals of one heuristic; returns their number. */
static int propose(vt_fused_graph *g, cudnnBackendHeurMode_t mode, descriptor proposals[VT_FUSED_MOST_PLANS])
{
    if (g->all == NULL) g->all = finish_operations(g);
    if (g->failed) return 0;
    descriptor heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count = 0;
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->all);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (g->device != NULL) set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->device);
    finish(g, heuristic);
    for (int i = 0; i < VT_FUSED_MOST_PLANS; i++) proposals[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const bool answers =
        !g->failed && succeeds(g,
                               g->library->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, VT_FUSED_MOST_PLANS,
                                                                    &count, (void *)proposals),
                               "proposals of mode", (int)mode);
    g->failed = false; /* the other mode may work */
    if (!answers) return 0;
    return count < VT_FUSED_MOST_PLANS ? (int)count : (int)VT_FUSED_MOST_PLANS;
}

/* Whether a proposal's engine computes as it should. */
static bool meets(vt_fused_graph *g, descriptor proposal, vt_fused_needs needs)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (needs.any_will_do) return true;
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (engine == NULL ||
        g->library->cudnnBackendGetAttribute(proposal, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                             &count, (void *)&engine) != CUDNN_STATUS_SUCCESS ||
        g->library->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            (needs.exact && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
            (needs.same_bits && notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
            return false;
    return true;
}

/* Makes a proposal the graph's plan, for the device described, or else for the handle's. False: it can't be one. */
static bool take_proposal(vt_fused_graph *g, descriptor proposal)
{
    int64_t count;
    descriptor plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (g->device != NULL)
        set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, g->device);
    else
        set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&g->handle);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposal);
    finish(g, plan);
    const bool works =
        !g->failed && succeeds(g,
                               g->library->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                                    CUDNN_TYPE_INT64, 1, &count, &g->workspace_bytes),
                               "asking for the workspace of plan", g->count);
    g->plan = works ? plan : NULL;
    g->failed = false; /* the next proposal may work */
    return works;
}

static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
enum { MODES = sizeof modes / sizeof *modes };

int vt_fused_graph_find_plans(vt_fused_graph *g, vt_fused_needs needs, int64_t proposal, int most,
                              vt_fused_plan found[VT_FUSED_MOST_PLANS])
{
    descriptor proposals[VT_FUSED_MOST_PLANS];
    int made = 0;
    for (int mode = 0; mode < MODES && made == 0; mode++) {
        const int count = propose(g, modes[mode], proposals);
        for (int i = 0; i < count && made < most; i++) {
            const int64_t number = mode * VT_FUSED_MOST_PLANS + i;
            if ((proposal != VT_FUSED_ANY_PROPOSAL && proposal != number) || !meets(g, proposals[i], needs) ||
                !take_proposal(g, proposals[i]))
                continue;
            found[made++] = (vt_fused_plan){g->plan, g->workspace_bytes, number};
        }
    }
    return made;
}

bool vt_fused_plan_run(const vt_cudnn *library, cudnnHandle_t handle, descriptor plan, int count, void *const *memory,
                       void *workspace)
{
    int64_t ids[count], used = 0;
    void *pointers[count];
    descriptor pack = NULL;
    for (int i = 0; i < count; i++) {
        if (memory[i] == NULL) continue;
        ids[used] = 1 + i;
        pointers[used++] = memory[i];
    }
    const bool done =
        library->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack) == CUDNN_STATUS_SUCCESS &&
        library->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, used, ids) ==
            CUDNN_STATUS_SUCCESS &&
        library->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, used,
                                          (const void *)pointers) == CUDNN_STATUS_SUCCESS &&
        library->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                          (const void *)&workspace) == CUDNN_STATUS_SUCCESS &&
        library->cudnnBackendFinalize(pack) == CUDNN_STATUS_SUCCESS &&
        library->cudnnBackendExecute(handle, plan, pack) == CUDNN_STATUS_SUCCESS;
    if (pack != NULL) library->cudnnBackendDestroyDescriptor(pack);
    return done;
}

void vt_fused_graph_close(vt_fused_graph *graph)
{
    while (graph->count > 0) graph->library->cudnnBackendDestroyDescriptor(graph->descriptors[--graph->count]);
    graph->plan = NULL;
}

#endif
