#include "convolution.h"

#ifdef VT_HAS_CUDNN

enum { RANK = 5 };

static cudnnDataType_t type_of(const vt_convolution_key *key)
{
    if (key->type == VT_FLOAT32) return CUDNN_DATA_FLOAT;
    return key->type == VT_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

static vt_fused_tensor cubes(vt_fused_graph *g, const vt_convolution_key *key, int64_t id, int64_t side,
                             int64_t channels, int64_t stride)
{
    const int64_t dims[RANK] = {key->batch, channels, side, side, side};
    const int64_t strides[RANK] = {side * side * side * stride, 1, side * side * stride, side * stride, stride};
    return vt_fused_tensor_make(g, VT_FUSED_IN_MEMORY, id, type_of(key), RANK, dims, strides);
}

void vt_convolution_describe(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const void *of,
                             vt_fused_graph *graph)
{
    const vt_convolution_key *key = of;
    const int64_t dims[RANK] = {key->out, key->in, 4, 4, 4}, strides[RANK] = {64 * key->in, 64, 16, 4, 1};
    vt_fused_graph_begin(library, handle, device_text, graph);
    const vt_fused_tensor x = cubes(graph, key, 1, 2 * key->side, key->in, key->x_stride);
    const vt_fused_tensor weight =
        vt_fused_tensor_make(graph, VT_FUSED_IN_MEMORY, 2, type_of(key), RANK, dims, strides);
    const vt_fused_tensor y = cubes(graph, key, 3, key->side, key->out, key->y_stride);
    vt_fused_convolve(graph,
                      key->kind == VT_CONVOLUTION_FORWARD ? CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                      : key->kind == VT_CONVOLUTION_DATA
                          ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                          : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      x, weight, y);
}

#endif
