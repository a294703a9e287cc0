/* Convolutions by cuDNN's graphs of one operation. cuDNN takes weights as PyTorch lays them out, and cubes with gaps
 * between their points. It is given 16-byte pieces only, which its fast kernels want: operands that have others are
 * copied into the workspace, with zeros for the channels that they lack, and results come out of it. So does a weight's
 * gradient, which is added, and a result that is wider than the operands. */
#include "convolution.h"

#include "fused_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "state.h"

#ifdef VT_HAS_CUDNN

enum { TAPS = 64, PIECE = 16, X = 0, W = 1, Y = 2 };

typedef struct {
    vt_convolution_key key;
    vt_fused_graph graph;
    cudnnBackendDescriptor_t plan; /* NULL: there is none */
    int64_t own_bytes;             /* of the workspace, that the plan wants for itself */
} convolution_plan;

struct vt_convolutions {
    const vt_cudnn *library;
    cudnnHandle_t handle;
    size_t count, capacity;
    convolution_plan **plans;
};

typedef struct {
    vt_matrix given, used; /* the same, or used.data lies in the workspace */
    size_t place;          /* there */
    bool is_staged;
} operand;

typedef struct {
    vt_backend *backend;
    operand operands[3];
    cudnnBackendDescriptor_t plan;
    void *own; /* the plan's workspace */
} call;

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int64_t whole_pieces(vt_type type, int64_t channels)
{
    const int64_t piece = PIECE / (int64_t)vt_type_size(type);
    return (channels + piece - 1) / piece * piece;
}

/* *bytes: of the workspace, taken so far. */
static operand operand_of(vt_matrix given, vt_type type, int64_t rows, int64_t columns, bool always, size_t *bytes)
{
    operand o = {.given = given, .used = given};
    const size_t size = vt_type_size(type);
    o.is_staged = always || given.type != type || given.rows != rows || given.columns != columns ||
                  (size_t)given.stride * size % PIECE != 0 || (uintptr_t)given.data % PIECE != 0;
    if (!o.is_staged) return o;
    o.used = (vt_matrix){.rows = rows, .columns = columns, .stride = columns, .type = type};
    o.place = *bytes;
    *bytes += rounded((size_t)(rows * columns) * size);
    return o;
}

static void place_operands(call *c, char *workspace)
{
    for (int i = X; i <= Y; i++)
        if (c->operands[i].is_staged) c->operands[i].used.data = (float *)(workspace + c->operands[i].place);
}

/* What is given, in the staged operand. */
static vt_matrix given_part(const operand *o)
{
    vt_matrix part = o->used;
    part.rows = o->given.rows;
    part.columns = o->given.columns;
    return part;
}

static void stage(vt_backend *backend, const operand *o)
{
    if (!o->is_staged) return;
    if (o->used.rows != o->given.rows || o->used.columns != o->given.columns)
        backend->zero(backend, o->used.data, (size_t)(o->used.rows * o->used.columns) * vt_type_size(o->used.type));
    backend->convert(backend, o->given, given_part(o));
}

static void unstage(vt_backend *backend, const operand *o, bool adds)
{
    static const vt_mask none = {.elements.rate = 0};
    if (!o->is_staged) return;
    if (adds)
        backend->residual_add(backend, o->given, given_part(o), &none, o->given);
    else
        backend->convert(backend, given_part(o), o->given);
}

static struct vt_convolutions *convolutions_of(const vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->convolutions;
}

static bool execute(void *context)
{
    static const int64_t ids[] = {1 + X, 1 + W, 1 + Y};
    const call *c = context;
    const struct vt_convolutions *convolutions = convolutions_of(c->backend);
    void *const pointers[] = {c->operands[X].used.data, c->operands[W].used.data, c->operands[Y].used.data};
    cudnnBackendDescriptor_t pack = vt_fused_pack_open(convolutions->library, 3, ids, pointers, c->own);
    const bool done = pack != NULL && convolutions->library->cudnnBackendExecute(convolutions->handle, c->plan, pack) ==
                                          CUDNN_STATUS_SUCCESS;
    if (pack != NULL) convolutions->library->cudnnBackendDestroyDescriptor(pack);
    return done;
}

/* ---- plans ---- */

enum { KEY_NUMBERS = sizeof(vt_convolution_key) / sizeof(int64_t) };

/* The fastest of the candidates, which are timed in memory of their own; the first if there is no memory for that. */
static int fastest(call *c, int count, const vt_fused_plan *found, size_t staged_bytes)
{
    vt_cuda_trial trials[VT_FUSED_MOST_PLANS];
    call calls[VT_FUSED_MOST_PLANS];
    int64_t most = 0;
    int best = 0;
    void *memory = NULL;
    for (int i = 0; i < count; i++)
        if (found[i].workspace_bytes > most) most = found[i].workspace_bytes;
    if (cudaMalloc(&memory, staged_bytes + (size_t)most + 1) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    place_operands(c, memory);
    for (int i = 0; i < count; i++) {
        calls[i] = *c;
        calls[i].plan = found[i].plan;
        calls[i].own = (char *)memory + staged_bytes;
        trials[i] = (vt_cuda_trial){execute, &calls[i], 0};
    }
    vt_cuda_time_all(c->backend, count, trials);
    for (int i = 1; i < count; i++)
        if (trials[i].milliseconds < trials[best].milliseconds) best = i;
    cudaFree(memory);
    return best;
}

static void choose_plan(call *c, convolution_plan *plan, size_t staged_bytes)
{
    const vt_cuda_state *state = c->backend->state;
    const int64_t *key = (const int64_t *)&plan->key;
    const vt_fused_needs needs = {.same_bits = state->fixed_choices,
                                  .exact = state->common.exact_float32 && plan->key.type == VT_FLOAT32};
    vt_fused_plan found[VT_FUSED_MOST_PLANS];
    const int most = state->fixed_choices ? 1 : VT_FUSED_MOST_PLANS;
    uint64_t number;
    int count = 0, best = 0;
    if (vt_choices_find(state->choices, "convolution", key, KEY_NUMBERS, &number, 1))
        count = vt_fused_graph_find_plans(&plan->graph, needs, (int64_t)number, 1, found);
    const bool is_kept = count > 0;
    if (!is_kept) count = vt_fused_graph_find_plans(&plan->graph, needs, VT_FUSED_ANY_PROPOSAL, most, found);
    if (count > 1) best = fastest(c, count, found, staged_bytes);
    if (count == 0) return;
    plan->plan = found[best].plan;
    plan->own_bytes = found[best].workspace_bytes;
    number = (uint64_t)found[best].proposal;
    if (!is_kept) vt_choices_add(state->choices, "convolution", key, KEY_NUMBERS, &number, 1);
}

/* NULL: a new plan can't be made in a recording. */
static convolution_plan *find_plan(call *c, const vt_convolution_key *key, size_t staged_bytes)
{
    vt_cuda_state *state = c->backend->state;
    struct vt_convolutions *own = state->convolutions;
    for (size_t i = 0; i < own->count; i++)
        if (memcmp(&own->plans[i]->key, key, sizeof *key) == 0) return own->plans[i];
    if (state->recording) { /* choosing waits for the GPU */
        state->recording_lacks = true;
        return NULL;
    }
    if (own->count == own->capacity) {
        own->capacity = 2 * own->capacity + 64;
        own->plans = vt_reallocate(own->plans, own->capacity, sizeof *own->plans, "cuDNN's convolutions");
    }
    convolution_plan *plan = vt_allocate(1, sizeof *plan, "a plan of cuDNN's");
    own->plans[own->count++] = plan;
    plan->key = *key;
    vt_convolution_describe(own->library, own->handle, NULL, key, &plan->graph);
    choose_plan(c, plan, staged_bytes);
    return plan;
}

/* ---- the operations ---- */

static void fail(vt_backend *backend, const convolution_plan *plan, const char *what)
{
    char text[200] = "", sentence[700];
    const vt_convolution_key *k = &plan->key;
    convolutions_of(backend)->library->cudnnGetLastErrorString(text, sizeof text);
    snprintf(sentence, sizeof sentence,
             "cuDNN %s for %lld cubes of %lld³ points, %lld channels, and %lld³, %lld channels: %s; --device=cpu runs "
             "without it",
             what, (long long)k->batch, 2 * (long long)k->side, (long long)k->in, (long long)k->side, (long long)k->out,
             plan->graph.failure[0] != '\0' ? plan->graph.failure : text);
    ((vt_cuda_common *)backend->state)->fail(backend, sentence);
}

static void convolve(vt_backend *backend, vt_convolution_kind kind, const vt_convolution *shape, vt_matrix x,
                     vt_matrix w, vt_matrix y)
{
    const vt_type type = kind == VT_CONVOLUTION_DATA ? y.type : x.type;
    const int64_t in = whole_pieces(type, shape->in), out = whole_pieces(type, shape->out);
    const int result = kind == VT_CONVOLUTION_FORWARD ? Y : kind == VT_CONVOLUTION_DATA ? X : W;
    size_t bytes = 0;
    call c = {.backend = backend};
    c.operands[X] = operand_of(x, type, x.rows, in, false, &bytes);
    c.operands[W] = operand_of(w, type, out, in * TAPS, result == W, &bytes);
    c.operands[Y] = operand_of(y, type, y.rows, out, false, &bytes);
    const vt_convolution_key key = {
        kind, type, shape->batch, shape->side, in, out, c.operands[X].used.stride, c.operands[Y].used.stride};
    const convolution_plan *plan = find_plan(&c, &key, bytes);
    if (plan == NULL) return;
    if (plan->plan == NULL) {
        fail(backend, plan, "has no convolution");
        return;
    }
    char *workspace = ((vt_cuda_common *)backend->state)->workspace(backend, bytes + (size_t)plan->own_bytes + 1);
    if (workspace == NULL) return;
    place_operands(&c, workspace);
    c.plan = plan->plan;
    c.own = workspace + bytes;
    for (int i = X; i <= Y; i++)
        if (i != result) stage(backend, &c.operands[i]);
    if (execute(&c))
        unstage(backend, &c.operands[result], result == W);
    else
        fail(backend, plan, "did not run its convolution");
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    convolve(backend, VT_CONVOLUTION_FORWARD, shape, x, weight, y);
}

static void convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight,
                                       vt_matrix dx)
{
    convolve(backend, VT_CONVOLUTION_DATA, shape, dx, weight, dy);
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    convolve(backend, VT_CONVOLUTION_WEIGHT, shape, x, vt_matrix_make(dweight, shape->out, shape->in * TAPS), dy);
}

struct vt_convolutions *vt_convolutions_open(vt_backend *backend)
{
    struct vt_convolutions *convolutions = vt_allocate(1, sizeof *convolutions, "cuDNN's convolutions");
    vt_fused_attention_library(backend, &convolutions->library, &convolutions->handle);
    return convolutions;
}

void vt_convolutions_close(struct vt_convolutions **result)
{
    struct vt_convolutions *convolutions = *result;
    if (convolutions == NULL) return;
    for (size_t i = 0; i < convolutions->count; i++) {
        vt_fused_graph_close(&convolutions->plans[i]->graph);
        free(convolutions->plans[i]);
    }
    free(convolutions->plans);
    free(convolutions);
    *result = NULL;
}

void vt_convolutions_fill(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
}

#else

struct vt_convolutions *vt_convolutions_open(vt_backend *backend)
{
    (void)backend;
    return NULL;
}

void vt_convolutions_close(struct vt_convolutions **convolutions)
{
    *convolutions = NULL;
}

void vt_convolutions_fill(vt_backend *backend)
{
    (void)backend;
}

#endif
