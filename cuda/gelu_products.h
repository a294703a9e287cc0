/* The products beside a GELU, each with it in one kernel that cuDNN fuses: what the product makes then need not be read
 * again. */
#ifndef VT_CUDA_GELU_PRODUCTS_H
#define VT_CUDA_GELU_PRODUCTS_H

#include "graph_plans.h"

#ifdef VT_HAS_CUDNN

/* What a plan depends on. Forward: hidden = x weightᵀ + bias, active = gelu(hidden), with x [rows, in] and hidden,
 * active [rows, out]. Backward: dhidden = (dy weight) * gelu'(hidden), with dy [rows, in] and hidden, dhidden [rows,
 * out]. All are of one 16-bit type and in 16-byte pieces; sums are float32. */
typedef struct {
    int64_t is_backward;
    int64_t gelu; /* vt_gelu */
    int64_t type; /* vt_type */
    int64_t rows, in, out;
    int64_t x_stride, weight_stride, hidden_stride, result_stride; /* x: or dy; result: active or dhidden */
} vt_gelu_product_key;

/* Begins the graph of a vt_gelu_product_key (`handle` and `device_text` as in vt_fused_graph_begin). Its tensors: 1, x
 * or dy; 2, the weight; 3, hidden; 4, active or dhidden; 5, forward's bias in 16 bits. */
void vt_gelu_product_describe(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const void *key,
                              vt_fused_graph *graph);

#endif
#endif
