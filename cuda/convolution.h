/* cuDNN's convolutions, each a graph of one operation (convolution_graph.c). */
#ifndef VT_CUDA_CONVOLUTION_H
#define VT_CUDA_CONVOLUTION_H

#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

typedef enum { VT_CONVOLUTION_FORWARD, VT_CONVOLUTION_DATA, VT_CONVOLUTION_WEIGHT } vt_convolution_kind;

/* What a plan depends on: cubes x [batch, (2 side)³, in] and y [batch, side³, out], whose points lie x_stride and
 * y_stride elements apart, and a weight [out, in, 4, 4, 4] without gaps, all of one type and in 16-byte pieces. */
typedef struct {
    int64_t kind; /* vt_convolution_kind */
    int64_t type; /* vt_type */
    int64_t batch, side, in, out, x_stride, y_stride;
} vt_convolution_key;

/* Begins the graph of a vt_convolution_key (`handle` and `device_text` as in vt_fused_graph_begin). Its tensors are 1,
 * x; 2, the weight; 3, y; or their gradients. Sums are float32. */
void vt_convolution_describe(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const void *key,
                             vt_fused_graph *graph);

#endif
#endif
