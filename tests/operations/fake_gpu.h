/* What a CUDA back end has without a GPU behind it, for the host code of cuda/ that works on it: workspace and
 * memory are the host's. */
#ifndef VT_TESTS_OPERATIONS_FAKE_GPU_H
#define VT_TESTS_OPERATIONS_FAKE_GPU_H

#include "base/memory.h"
#include "cuda/state.h"
#include "test.h"

static bool gpu_is_full; /* no more memory is available */
static int blocks_taken; /* by fake_malloc, and not freed */

/* Exactly the size requested, and full of NaN. */
static inline void *take_workspace(vt_backend *backend, size_t bytes)
{
    vt_cuda_state *state = backend->state;
    free(state->workspace);
    VT_ASSERT(posix_memalign(&state->workspace, 256, bytes) == 0);
    memset(state->workspace, 0xff, bytes);
    return state->workspace;
}

static inline void note_failure(vt_backend *backend, const char *sentence)
{
    ((vt_cuda_state *)backend->state)->failed = true;
    vt_error_note(__FILE__, __LINE__, "%s", sentence);
}

static inline cudaError_t fake_malloc(void **memory, size_t bytes)
{
    *memory = gpu_is_full ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    blocks_taken += *memory != NULL;
    return *memory != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t fake_free(void *memory)
{
    free(memory);
    blocks_taken -= memory != NULL;
    return cudaSuccess;
}

static inline cudaError_t no_error(void)
{
    return cudaSuccess;
}

/* Of a back end whose `state` is a vt_cuda_state. */
static inline void open_fake_gpu(vt_backend *backend)
{
    gpu_is_full = false;
    blocks_taken = 0;
    *(vt_cuda_state *)backend->state =
        (vt_cuda_state){.common = {.workspace = take_workspace, .fail = note_failure, .multiprocessors = 4}};
    backend->choices = vt_choices_open("a test", NULL);
}

static inline void close_fake_gpu(vt_backend *backend)
{
    EXPECT(blocks_taken == 0, "%d blocks of memory are left", blocks_taken);
    vt_choices_close(&backend->choices);
    free(((vt_cuda_state *)backend->state)->workspace);
}

#endif
