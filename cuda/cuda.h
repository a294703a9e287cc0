/* Internals of the CUDA back end that its files share. The kernels are compiled twice: by nvcc into the back end, and
 * by the host's compiler over host_cuda.h into the tests, where their names begin with vt_host_cuda_. */
#ifndef VT_CUDA_CUDA_H
#define VT_CUDA_CUDA_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The beginning of the back end's state, the part that kernels' launchers see. */
typedef struct {
    /* Scratch memory of at least `bytes`, aligned to 256, valid until the next operation; it grows only in a run's
     * first step. NULL: there is none (the failure is noted), and the operation must return. */
    void *(*workspace)(vt_backend *backend, size_t bytes);
    /* Notes that an operation is not supported. */
    void (*fail)(vt_backend *backend, const char *sentence);
    bool exact_float32; /* float32 products are not rounded to TF32 (NVIDIA_TF32_OVERRIDE=0) */
    int multiprocessors;
} vt_cuda_common;

#if defined(VT_HOST_CUDA)
#define VT_CUDA_NAME(name) vt_host_cuda_##name
#else
#define VT_CUDA_NAME(name) vt_cuda_##name
#endif

/* Declares a kernel for every operation; those of kernels.def exist. */
#define OPERATION(name, work, ...) void VT_CUDA_NAME(name)(vt_backend * backend VT_PARAMETERS(__VA_ARGS__));
#include "backend/operations.def"

/* All kernels' rows of the table. */
static inline void vt_cuda_fill_kernels(vt_backend *backend)
{
    backend->draws_ahead = true;
#define KERNEL(name) backend->name = VT_CUDA_NAME(name);
#include "kernels.def"
}

/* sums [columns] += column sums of x (a bias's gradient); the order of the sum depends on the sizes alone. */
void VT_CUDA_NAME(column_sums)(vt_backend *backend, vt_matrix x, float *sums);
/* hidden += bias (unless NULL), then y = gelu(hidden), in one pass. */
void VT_CUDA_NAME(bias_gelu)(vt_backend *backend, vt_gelu kind, vt_matrix hidden, const float *bias, vt_matrix y);

#ifdef __cplusplus
}
#endif

#endif
