/* Attention by cuDNN, for shapes where it is faster than our own kernels. Both are timed once, and the choice is kept
 * (backend/choices.h). With `deterministic` nothing is timed: cuDNN runs where its bits are the same every time. It
 * takes 16-bit types only, and dropout always uses our own kernels, because cuDNN's random numbers differ from the
 * CPU's. */
#include "fused_attention.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "state.h"

#ifdef VT_HAS_CUDNN

enum { FIRST_RIGHT_VERSION = 91501 }; /* earlier versions are wrong where the tokens are no multiple of 128 */

typedef struct {
    vt_fused_shape shape;
    bool serves; /* it exists and is faster */
    vt_fused_graph graph;
} fused_plan;

struct vt_fused_attention {
    const vt_cudnn *library;
    cudnnHandle_t handle;
    vt_backend own; /* the table of operations before this file replaced its rows */
    vt_attention_choice preference;
    size_t plan_count;
    fused_plan *plans[64];
    char failure[300]; /* why the last plan could not be made or run; "": all could */
};

/* The operands of one call. */
typedef struct {
    vt_backend *backend;
    const vt_attention_shape *shape;
    fused_plan *plan;
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum;
} call;

static struct vt_fused_attention *attention_of(vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->fused_attention;
}

static size_t rounded(int64_t bytes)
{
    return ((size_t)bytes + 255) / 256 * 256;
}

/* A plan's tensors, by their ids. */
typedef struct {
    int64_t count, ids[VT_FUSED_ID_COUNT];
    void *pointers[VT_FUSED_ID_COUNT];
} tensors;

static void add_tensor(tensors *of, int64_t id, void *memory)
{
    of->ids[of->count] = id;
    of->pointers[of->count++] = memory;
}

static bool execute(const call *c, const tensors *of, void *workspace)
{
    struct vt_fused_attention *attention = attention_of(c->backend);
    const vt_cudnn *library = attention->library;
    cudnnBackendDescriptor_t pack = vt_fused_pack_open(library, of->count, of->ids, of->pointers, workspace);
    bool done = pack != NULL &&
                library->cudnnBackendExecute(attention->handle, c->plan->graph.plan, pack) == CUDNN_STATUS_SUCCESS;
    if (!done) {
        snprintf(attention->failure, sizeof attention->failure, "running a plan: ");
        library->cudnnGetLastErrorString(attention->failure + strlen(attention->failure),
                                         sizeof attention->failure - strlen(attention->failure));
    }
    if (pack != NULL) library->cudnnBackendDestroyDescriptor(pack);
    return done;
}

/* Where the parts of the workspace end, in bytes. */
typedef struct {
    size_t own, delta, all; /* cuDNN's own; backward's, else empty */
} fused_room;

static fused_room room_of(const call *c)
{
    const vt_attention_shape *s = c->shape;
    const int64_t pass = c->plan->shape.pass;
    const int64_t rows = pass == VT_FUSED_FORWARD ? 0 : s->batch * s->heads * s->queries;
    const int64_t sums = pass == VT_FUSED_BACKWARD ? rows * s->head_dim : 0;
    const size_t own = rounded(c->plan->graph.workspace_bytes), delta = own + rounded(rows * 4);
    return (fused_room){own, delta, delta + rounded(sums * 4)};
}

/* Can the workspace be allocated? Trying cuDNN in vain must not end a run that fits without it. */
static bool has_room(const call *c)
{
    const vt_cuda_state *state = c->backend->state;
    size_t bytes = room_of(c).all, free_bytes = 0, total;
    if (bytes < state->workspace_bytes) return true;
    enum { SPARE = 64 << 20 }; /* memory comes in pieces of some MB */
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && bytes + SPARE < free_bytes + state->workspace_bytes;
}

/* May the workspace be as large, by a rule that does not ask what is free? */
static bool is_moderate(const call *c)
{
    size_t free_bytes, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && room_of(c).all <= total / 16;
}

static bool run_fused(void *context)
{
    const call *c = context;
    vt_cuda_common *common = c->backend->state;
    const fused_room room = room_of(c);
    const fused_plan *plan = c->plan;
    float scale = vt_attention_scale(c->shape), one = 1, unseen = -FLT_MAX;
    char *workspace = common->workspace(c->backend, room.all + 1);
    if (workspace == NULL) return false;
    tensors of = {0};
    add_tensor(&of, VT_FUSED_Q, c->q.data);
    add_tensor(&of, VT_FUSED_K, c->k.data);
    add_tensor(&of, VT_FUSED_V, c->v.data);
    add_tensor(&of, VT_FUSED_OUT, c->out.data);
    add_tensor(&of, VT_FUSED_LOG_SUM, c->log_sum);
    add_tensor(&of, VT_FUSED_SCALE, &scale);
    if (plan->shape.causal) add_tensor(&of, VT_FUSED_UNSEEN, &unseen);
    if (plan->shape.pass != VT_FUSED_FORWARD) {
        add_tensor(&of, VT_FUSED_DOUT, c->dout.data);
        add_tensor(&of, VT_FUSED_DQ, c->dq.data);
        add_tensor(&of, VT_FUSED_DK, c->dk.data);
        add_tensor(&of, VT_FUSED_DV, c->dv.data);
        add_tensor(&of, VT_FUSED_DELTA, workspace + room.own);
        add_tensor(&of, VT_FUSED_ONE, &one);
        if (plan->shape.pass == VT_FUSED_BACKWARD) add_tensor(&of, VT_FUSED_DQ_SUM, workspace + room.delta);
    }
    return execute(c, &of, workspace);
}

static bool run_own(void *context)
{
    const call *c = context;
    const vt_backend *own = &attention_of(c->backend)->own;
    if (c->plan->shape.pass != VT_FUSED_FORWARD)
        own->attention_backward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum, c->dout, c->dq, c->dk,
                                c->dv);
    else
        own->attention_forward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum);
    return cudaPeekAtLastError() == cudaSuccess;
}

static bool is_fit(vt_matrix m, vt_type type)
{
    return m.data == NULL || (m.type == type && m.stride % 8 == 0 && (uintptr_t)m.data % 16 == 0);
}

/* Is there a key that some query does not see? */
static bool is_masked(const vt_attention_shape *s)
{
    return vt_attention_seen(s, 0) < s->keys;
}

/* Could cuDNN do it at all? Its mask is that of queries and keys that begin at the same place. */
static bool is_possible(const call *c)
{
    const vt_attention_shape *s = c->shape;
    const vt_matrix *const all[] = {&c->q, &c->k, &c->v, &c->out, &c->dout, &c->dq, &c->dk, &c->dv};
    bool fit = s->dropout.rate <= 0 && (!is_masked(s) || s->first_query == s->first_key);
    fit = fit && s->head_dim % 8 == 0 && s->head_dim <= 128 && vt_type_is_half(c->q.type);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) fit = fit && is_fit(*all[i], c->q.type);
    return fit && (uintptr_t)c->log_sum % 16 == 0;
}

/* The key of choices: the shape, number by number. */
enum { KEY_NUMBERS = sizeof(vt_fused_shape) / sizeof(int64_t) };

static const int64_t *key_of(const vt_fused_shape *shape)
{
    return (const int64_t *)shape;
}

static bool kept_choice(const call *c, const vt_fused_shape *shape, uint64_t *serves)
{
    const vt_choices *choices = ((vt_cuda_state *)c->backend->state)->choices;
    return vt_choices_find(choices, "attention", key_of(shape), KEY_NUMBERS, serves, 1);
}

/* Has cuDNN a backward whose bits are the same every time? NVIDIA's front end (cudnn-frontend,
 * scaled_dot_product_flash_attention.h, set_deterministic_algorithm) describes the graph of VT_FUSED_REPEATABLE for
 * GPUs of compute capability 9, and chooses engines by their numbers for newer ones. */
static bool can_repeat_bits(void)
{
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

/* Whether the plan is worth building. */
static bool may_serve(const call *c, const vt_fused_shape *shape)
{
    const vt_cuda_state *state = c->backend->state;
    uint64_t serves;
    if (state->fused_attention->preference != VT_ATTENTION_BY_TIME)
        return state->fused_attention->preference == VT_ATTENTION_CUDNN;
    if (kept_choice(c, shape, &serves)) return serves == 1;
    return !state->fixed_choices || can_repeat_bits();
}

/* Whether cuDNN's plan, which exists, is the one to use. */
static bool choose(call *c)
{
    const vt_cuda_state *state = c->backend->state;
    uint64_t serves;
    if (state->fused_attention->preference == VT_ATTENTION_CUDNN) return true;
    if (kept_choice(c, &c->plan->shape, &serves)) return serves == 1;
    const bool moderate = !state->fixed_choices || is_moderate(c);
    if (moderate && !has_room(c)) {
        snprintf(state->fused_attention->failure, sizeof state->fused_attention->failure, "no memory to try it");
        if (state->fixed_choices)
            vt_log_warning(
                "deterministic: the GPU has no memory left for the workspace of cuDNN's attention; vitrain's "
                "own runs, which rounds in other places than a run with cuDNN's");
        return false;
    }
    vt_cuda_trial trials[] = {{run_own, c, 0}, {run_fused, c, 0}};
    if (!state->fixed_choices) vt_cuda_time_all(c->backend, 2, trials);
    serves = state->fixed_choices ? moderate : trials[1].milliseconds < trials[0].milliseconds;
    vt_choices_add(state->choices, "attention", key_of(&c->plan->shape), KEY_NUMBERS, &serves, 1);
    return serves == 1;
}

static bool compile_plan(call *c)
{
    struct vt_fused_attention *attention = attention_of(c->backend);
    vt_fused_graph *graph = &c->plan->graph;
    if (vt_fused_graph_open(attention->library, attention->handle, NULL, &c->plan->shape, graph)) return true;
    snprintf(attention->failure, sizeof attention->failure, "%s",
             graph->failure[0] != '\0' ? graph->failure : "no proposals");
    return false;
}

static fused_plan *find_plan(struct vt_fused_attention *attention, call *c, vt_fused_pass pass)
{
    const vt_attention_shape *s = c->shape;
    const vt_fused_shape shape = {s->batch,     s->heads,    s->head_dim,   s->queries,     s->keys,      c->q.stride,
                                  c->k.stride,  c->v.stride, c->out.stride, c->dout.stride, c->dq.stride, c->dk.stride,
                                  c->dv.stride, pass,        c->q.type,     is_masked(s)};
    for (size_t i = 0; i < attention->plan_count; i++)
        if (memcmp(&attention->plans[i]->shape, &shape, sizeof shape) == 0) return attention->plans[i];
    vt_cuda_state *state = c->backend->state;
    if (state->recording) state->recording_lacks = true; /* building and choosing wait for the GPU */
    if (state->recording) return NULL;
    if (attention->plan_count == sizeof attention->plans / sizeof *attention->plans) return NULL;
    fused_plan *plan = vt_allocate(1, sizeof *plan, "a plan of cuDNN's");
    attention->plans[attention->plan_count++] = plan;
    plan->shape = shape;
    c->plan = plan;
    plan->serves = may_serve(c, &shape) && compile_plan(c) && choose(c);
    if (!plan->serves) vt_fused_graph_close(&plan->graph);
    return plan;
}

static void attend(call *c, vt_fused_pass pass)
{
    struct vt_fused_attention *attention = attention_of(c->backend);
    fused_plan none = {.shape.pass = pass};
    c->plan = is_possible(c) ? find_plan(attention, c, pass) : NULL;
    if (c->plan == NULL) c->plan = &none;
    if (!c->plan->serves)
        run_own(c);
    else if (!run_fused(c)) {
        char sentence[400];
        snprintf(sentence, sizeof sentence, "cuDNN's attention, which had worked before, failed: %s",
                 attention->failure);
        ((vt_cuda_common *)c->backend->state)->fail(c->backend, sentence);
    }
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    call c = {.backend = backend, .shape = shape, .q = q, .k = k, .v = v, .out = out, .log_sum = log_sum};
    attend(&c, VT_FUSED_FORWARD);
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    call c = {backend, shape, NULL, q, k, v, out, dout, dq, dk, dv, (float *)log_sum};
    attend(&c, ((vt_cuda_state *)backend->state)->fixed_choices ? VT_FUSED_REPEATABLE : VT_FUSED_BACKWARD);
}

/* Once in a process. */
static void tell_of_own_attention(const char *why)
{
    static bool told;
    if (!told) vt_log_info("cuDNN's attention is not used, only vitrain's own: %s", why);
    told = true;
}

/* False, with the reason noted: our own kernels are used. */
static bool open_library(struct vt_fused_attention *attention, vt_backend *backend)
{
    char text[300];
    if (vt_library_cudnn(&attention->library) != VT_OK) {
        tell_of_own_attention(vt_error_text());
        vt_error_clear();
        return false;
    }
    const vt_cudnn *library = attention->library;
    const size_t version = library->cudnnGetVersion();
    if (version < FIRST_RIGHT_VERSION) {
        snprintf(text, sizeof text, "version %zu is older than %d, the first that computes correctly", version,
                 FIRST_RIGHT_VERSION);
        tell_of_own_attention(text);
        return false;
    }
    if (library->cudnnCreate(&attention->handle) == CUDNN_STATUS_SUCCESS &&
        library->cudnnSetStream(attention->handle, (cudaStream_t)backend->stream) == CUDNN_STATUS_SUCCESS)
        return true;
    snprintf(text, sizeof text, "it does not start: ");
    library->cudnnGetLastErrorString(text + strlen(text), sizeof text - strlen(text));
    tell_of_own_attention(text);
    return false;
}

struct vt_fused_attention *vt_fused_attention_open(vt_backend *backend)
{
    struct vt_fused_attention *attention = vt_allocate(1, sizeof *attention, "cuDNN's attention");
    if (!open_library(attention, backend)) vt_fused_attention_close(&attention);
    return attention;
}

void vt_fused_attention_close(struct vt_fused_attention **result)
{
    struct vt_fused_attention *attention = *result;
    if (attention == NULL) return;
    for (size_t i = 0; i < attention->plan_count; i++) {
        vt_fused_graph_close(&attention->plans[i]->graph);
        free(attention->plans[i]);
    }
    if (attention->handle != NULL) attention->library->cudnnDestroy(attention->handle);
    free(attention);
    *result = NULL;
}

size_t vt_fused_attention_version(const struct vt_fused_attention *attention)
{
    return attention != NULL ? attention->library->cudnnGetVersion() : 0;
}

void vt_fused_attention_library(vt_backend *backend, const vt_cudnn **library, cudnnHandle_t *handle)
{
    const struct vt_fused_attention *attention = attention_of(backend);
    *library = attention->library;
    *handle = attention->handle;
}

void vt_fused_attention_prefer(vt_backend *backend, vt_attention_choice choice)
{
    if (attention_of(backend) != NULL) attention_of(backend)->preference = choice;
}

int vt_fused_attention_served(vt_backend *backend)
{
    const struct vt_fused_attention *attention = attention_of(backend);
    int served = 0;
    for (size_t i = 0; attention != NULL && i < attention->plan_count; i++) served += attention->plans[i]->serves;
    return served;
}

const char *vt_fused_attention_failure(vt_backend *backend)
{
    const struct vt_fused_attention *attention = attention_of(backend);
    return attention != NULL ? attention->failure : "cuDNN was not found";
}

void vt_fused_attention_fill(vt_backend *backend)
{
    attention_of(backend)->own = *backend;
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
}

#else

struct vt_fused_attention *vt_fused_attention_open(vt_backend *backend)
{
    (void)backend;
    return NULL;
}

void vt_fused_attention_close(struct vt_fused_attention **attention)
{
    *attention = NULL;
}

void vt_fused_attention_fill(vt_backend *backend)
{
    (void)backend;
}

size_t vt_fused_attention_version(const struct vt_fused_attention *attention)
{
    (void)attention;
    return 0;
}

#endif
