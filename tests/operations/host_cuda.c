#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cuda/cuda.h"
#include "operations/paths.h"
#include "test.h"

#ifdef VT_HAS_HOST_CUDA

enum { MOST_KEPT = 4096 };

typedef struct {
    vt_cuda_common common; /* must come first: what the launchers see */
    void *workspace;
    size_t kept_count; /* workspaces of a recording */
    void *kept[MOST_KEPT];
    bool failed;
} host_state;

static host_state *state_of(vt_backend *backend)
{
    return backend->state;
}

/* The plain loops: memory, matrix products and convolutions. */
static vt_backend *plain;

/* Functions of the kernels' host version, host_cuda.h: who takes launches, and other work that is queued with them. */
void vt_host_cuda_hand_to(void (*take)(void (*run)(const void *), const void *arguments, size_t bytes));
void vt_host_cuda_do(void (*run)(const void *arguments), const void *arguments, size_t bytes);

/* ---- a recording, which is replayed as CUDA graphs are: with the arguments of the launches ---- */

typedef struct recorded_call {
    void (*run)(const void *arguments);
    struct recorded_call *next;
    _Alignas(16) char arguments[];
} recorded_call;

static struct {
    bool is_on;
    recorded_call *first, **last;
} recording;

static void record(void (*run)(const void *), const void *arguments, size_t bytes)
{
    recorded_call *call = vt_allocate(1, sizeof *call + bytes, "a test");
    call->run = run;
    memcpy(call->arguments, arguments, bytes);
    *recording.last = call;
    recording.last = &call->next;
}

static void forget_recording(void)
{
    for (recorded_call *call = recording.first, *next; call != NULL; call = next) {
        next = call->next;
        free(call);
    }
    recording.first = NULL;
}

/* Exactly the size requested, so that AddressSanitizer sees accesses beyond it, and not zero. A recording keeps its
 * own. */
static void *host_workspace(vt_backend *backend, size_t bytes)
{
    host_state *state = state_of(backend);
    if (recording.is_on) {
        VT_ASSERT(state->kept_count < MOST_KEPT);
        state->kept[state->kept_count++] = state->workspace;
    } else {
        free(state->workspace);
    }
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

/* Operations that a graph can't contain. */
static void refuse_recording(const char *what)
{
    if (!recording.is_on) return;
    fprintf(stderr, "%s in the middle of a recording\n", what);
    abort();
}

static vt_status host_check(vt_backend *backend)
{
    refuse_recording("a check");
    host_state *state = state_of(backend);
    return state->failed ? VT_ERROR : plain->check(plain);
}

static void host_close(vt_backend *backend)
{
    host_state *state = state_of(backend);
    forget_recording();
    free(state->workspace);
    for (size_t i = 0; i < state->kept_count; i++) free(state->kept[i]);
    free(state);
}

static double host_available(vt_backend *backend)
{
    (void)backend;
    return plain->available_memory(plain);
}

static vt_status host_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    (void)backend;
    refuse_recording("an allocation");
    return plain->allocate(plain, category, bytes, memory);
}

static void host_release(vt_backend *backend, void *memory)
{
    (void)backend;
    plain->release(plain, memory);
}

typedef struct {
    void *memory;
    size_t bytes;
} zero_arguments;

static void do_zero(const void *arguments)
{
    const zero_arguments *a = arguments;
    memset(a->memory, 0, a->bytes);
}

static void host_zero(vt_backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    const zero_arguments arguments = {memory, bytes};
    vt_host_cuda_do(do_zero, &arguments, sizeof arguments);
}

static void host_copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    (void)backend;
    refuse_recording("a copy");
    memcpy(to, from, bytes);
}

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
} copy_arguments;

static void do_copy(const void *arguments)
{
    const copy_arguments *a = arguments;
    memcpy(a->to, a->from, a->bytes);
}

static void host_copy_beside(vt_backend *backend, int place, void *to, const void *from, size_t bytes)
{
    (void)backend, (void)place;
    const copy_arguments arguments = {to, from, bytes};
    vt_host_cuda_do(do_copy, &arguments, sizeof arguments);
}

static bool host_record_begin(vt_backend *backend)
{
    (void)backend;
    forget_recording();
    recording.is_on = true;
    recording.last = &recording.first;
    vt_host_cuda_hand_to(record);
    return true;
}

static bool host_record_end(vt_backend *backend)
{
    (void)backend;
    recording.is_on = false;
    vt_host_cuda_hand_to(NULL);
    return true;
}

static bool host_replay(vt_backend *backend)
{
    (void)backend;
    refuse_recording("a replay");
    for (const recorded_call *call = recording.first; call != NULL; call = call->next) call->run(call->arguments);
    return recording.first != NULL;
}

/* ---- matrix products and convolutions, by the plain loops, queued with the kernels ---- */

typedef struct {
    vt_convolution shape;
    vt_matrix a, b, c;
    const float *bias;
    float *sums;
} product;

#define QUEUE(name, ...) vt_host_cuda_do(do_##name, &(product){__VA_ARGS__}, sizeof(product))

static void do_linear_forward(const void *arguments)
{
    const product *p = arguments;
    plain->linear_forward(plain, p->a, p->b, p->bias, NULL, p->c);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                           const uint16_t *rounded, vt_matrix y)
{
    (void)backend, (void)rounded;
    QUEUE(linear_forward, .a = x, .b = weight, .c = y, .bias = bias);
}

static void do_linear_backward_input(const void *arguments)
{
    const product *p = arguments;
    plain->linear_backward_input(plain, p->a, p->b, p->c);
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    (void)backend;
    QUEUE(linear_backward_input, .a = dy, .b = weight, .c = dx);
}

static void do_linear_backward_weight(const void *arguments)
{
    const product *p = arguments;
    plain->linear_backward_weight(plain, p->a, p->b, p->sums, NULL);
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    QUEUE(linear_backward_weight, .a = x, .b = dy, .sums = dweight);
    if (dbias != NULL) vt_host_cuda_column_sums(backend, dy, dbias);
}

static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    linear_forward(backend, x, weight, NULL, NULL, hidden);
    (void)rounded;
    vt_host_cuda_bias_gelu(backend, kind, hidden, bias, active);
}

static void do_convolution_forward(const void *arguments)
{
    const product *p = arguments;
    plain->convolution_forward(plain, &p->shape, p->a, p->b, p->c);
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    (void)backend;
    QUEUE(convolution_forward, .shape = *shape, .a = x, .b = weight, .c = y);
}

static void do_convolution_backward_input(const void *arguments)
{
    const product *p = arguments;
    plain->convolution_backward_input(plain, &p->shape, p->a, p->b, p->c);
}

static void convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight,
                                       vt_matrix dx)
{
    (void)backend;
    QUEUE(convolution_backward_input, .shape = *shape, .a = dy, .b = weight, .c = dx);
}

static void do_convolution_backward_weight(const void *arguments)
{
    const product *p = arguments;
    plain->convolution_backward_weight(plain, &p->shape, p->a, p->b, p->sums);
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    (void)backend;
    QUEUE(convolution_backward_weight, .shape = *shape, .a = x, .b = dy, .sums = dweight);
}

vt_status host_cuda_fill_products(vt_backend *backend)
{
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
    backend->linear_gelu_forward = linear_gelu_forward;
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
    return plain != NULL ? VT_OK : vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain);
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
                            .record_begin = host_record_begin,
                            .record_end = host_record_end,
                            .replay = host_replay};
    vt_backend_fill_immediate(backend);
    backend->copy_beside = host_copy_beside;
    state->common =
        (vt_cuda_common){.workspace = host_workspace, .fail = host_fail, .exact_float32 = true, .multiprocessors = 4};
    vt_cuda_fill_kernels(backend);
    VT_TRY(host_cuda_fill_products(backend));
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
