#include <stdlib.h>

#include "cuda/cuda.h"
#include "operations/paths.h"
#include "test.h"

#ifdef VT_HAS_HOST_CUDA

typedef struct {
    vt_cuda_common common; /* first: what the launchers know of */
    vt_backend *plain;     /* memory and matrix products */
    void *workspace;
    size_t workspace_bytes;
    bool failed;
} host_state;

static host_state *state_of(vt_backend *backend)
{
    return backend->state;
}

/* Exactly as large as asked for, so that AddressSanitizer sees what goes beyond, and not zero. */
static void *host_workspace(vt_backend *backend, size_t bytes)
{
    host_state *state = state_of(backend);
    free(state->workspace);
    state->workspace = aligned_alloc(256, (bytes + 255) / 256 * 256);
    VT_ASSERT(state->workspace != NULL);
    memset(state->workspace, 0xff, bytes);
    return state->workspace;
}

static void host_fail(vt_backend *backend, const char *sentence)
{
    state_of(backend)->failed = true;
    vt_error_note(__FILE__, __LINE__, "%s", sentence);
}

static vt_status host_check(vt_backend *backend)
{
    host_state *state = state_of(backend);
    return state->failed ? VT_ERROR : state->plain->check(state->plain);
}

static void host_close(vt_backend *backend)
{
    host_state *state = state_of(backend);
    vt_backend_close(&state->plain);
    free(state->workspace);
    free(state);
}

static double host_available(vt_backend *backend)
{
    return state_of(backend)->plain->available_memory(state_of(backend)->plain);
}

static vt_status host_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    return state_of(backend)->plain->allocate(state_of(backend)->plain, category, bytes, memory);
}

static void host_release(vt_backend *backend, void *memory)
{
    state_of(backend)->plain->release(state_of(backend)->plain, memory);
}

static void host_zero(vt_backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    memset(memory, 0, bytes);
}

static void host_copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    (void)backend;
    memcpy(to, from, bytes);
}

static void host_weights_changed(vt_backend *backend)
{
    (void)backend;
}

static void host_linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    state_of(backend)->plain->linear_forward(state_of(backend)->plain, x, weight, bias, y);
}

static void host_linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    state_of(backend)->plain->linear_backward_input(state_of(backend)->plain, dy, weight, dx);
}

static void host_linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    state_of(backend)->plain->linear_backward_weight(state_of(backend)->plain, x, dy, dweight, NULL);
    if (dbias != NULL) vt_host_cuda_column_sums(backend, dy, dbias);
}

static void host_linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight,
                                     const float *bias, vt_matrix hidden, vt_matrix active)
{
    host_linear_forward(backend, x, weight, NULL, hidden);
    vt_host_cuda_bias_gelu(backend, kind, hidden, bias, active);
}

bool has_host_cuda(void)
{
    return true;
}

vt_status open_host_cuda(vt_backend **result)
{
    vt_status status = VT_OK;
    vt_backend *backend = calloc(1, sizeof *backend);
    host_state *state = calloc(1, sizeof *state);
    VT_ASSERT(backend != NULL && state != NULL);
    *backend = (vt_backend){.name = "CUDA kernels on the host",
                            .state = state,
                            .shares_host_memory = false,
                            .close = host_close,
                            .check = host_check,
                            .available_memory = host_available,
                            .allocate = host_allocate,
                            .release = host_release,
                            .zero = host_zero,
                            .copy_from_host = host_copy,
                            .copy_to_host = host_copy,
                            .weights_changed = host_weights_changed,
                            .linear_forward = host_linear_forward,
                            .linear_backward_input = host_linear_backward_input,
                            .linear_backward_weight = host_linear_backward_weight,
                            .linear_gelu_forward = host_linear_gelu_forward};
    state->common =
        (vt_cuda_common){.workspace = host_workspace, .fail = host_fail, .exact_float32 = true, .multiprocessors = 4};
    vt_host_cuda_convert_fill(backend);
    vt_host_cuda_layer_norm_fill(backend);
    vt_host_cuda_gelu_fill(backend);
    vt_host_cuda_residual_fill(backend);
    vt_host_cuda_patches_fill(backend);
    vt_host_cuda_loss_fill(backend);
    vt_host_cuda_optimizer_fill(backend);
    vt_host_cuda_attention_fill(backend);
    VT_TRY(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &state->plain));
done:
    if (status != VT_OK) vt_backend_close(&backend);
    *result = backend;
    return status;
}

#else

bool has_host_cuda(void)
{
    return false;
}

vt_status open_host_cuda(vt_backend **backend)
{
    *backend = NULL;
    return vt_error_note(__FILE__, __LINE__, "no C++ compiler was found");
}

#endif
