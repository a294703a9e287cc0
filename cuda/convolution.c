/* Convolutions by cuDNN's graphs of one operation. cuDNN takes weights as PyTorch lays them out, and cubes with gaps
 * between their points. It is given 16-byte pieces only, which its fast kernels want: operands that have others are
 * copied into the workspace, with zeros for the channels that they lack, and results come out of it. So does a weight's
 * gradient, which is added, and a result that is wider than the operands. */
#include <stdio.h>

#include "graph_plans.h"
#include "state.h"

#ifdef VT_HAS_CUDNN

enum { TAPS = 64, PIECE = 16, RANK = 5, X = 0, W = 1, Y = 2 };

static vt_fused_tensor cubes(vt_fused_graph *g, const vt_convolution_key *key, int64_t id, int64_t side,
                             int64_t channels, int64_t stride)
{
    const int64_t dims[RANK] = {key->batch, channels, side, side, side};
    const int64_t strides[RANK] = {side * side * side * stride, 1, side * side * stride, side * stride, stride};
    return vt_fused_tensor_make(g, VT_FUSED_IN_MEMORY, id, vt_fused_type(key->type), RANK, dims, strides);
}

void vt_convolution_describe(const void *of, vt_fused_graph *graph)
{
    const vt_convolution_key *key = of;
    const int64_t dims[RANK] = {key->out, key->in, 4, 4, 4}, strides[RANK] = {64 * key->in, 64, 16, 4, 1};
    const vt_fused_tensor x = cubes(graph, key, 1, 2 * key->side, key->in, key->x_stride);
    const vt_fused_tensor weight =
        vt_fused_tensor_make(graph, VT_FUSED_IN_MEMORY, 2, vt_fused_type(key->type), RANK, dims, strides);
    const vt_fused_tensor y = cubes(graph, key, 3, key->side, key->out, key->y_stride);
    vt_fused_convolve(graph, (vt_convolution_kind)key->kind, x, weight, y);
}

/* ---- operands in 16-byte pieces ---- */

typedef struct {
    vt_matrix given, used; /* the same, or used.data lies in the workspace */
    size_t place;          /* there */
} operand;

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
    if (!always && given.type == type && given.rows == rows && given.columns == columns &&
        (size_t)given.stride * size % PIECE == 0 && (uintptr_t)given.data % PIECE == 0)
        return o;
    o.used = (vt_matrix){.rows = rows, .columns = columns, .stride = columns, .type = type};
    o.place = *bytes;
    *bytes += vt_fused_rounded((size_t)(rows * columns) * size);
    return o;
}

/* What is given, in the staged operand. */
static vt_matrix given_part(const operand *o)
{
    vt_matrix part = o->used;
    part.rows = o->given.rows;
    part.columns = o->given.columns;
    return part;
}

/* Once there is a workspace. */
static bool is_staged(const operand *o)
{
    return o->used.data != o->given.data;
}

static void stage(vt_backend *backend, const operand *o)
{
    if (!is_staged(o)) return;
    if (o->used.rows != o->given.rows || o->used.columns != o->given.columns)
        backend->zero(backend, o->used.data, (size_t)(o->used.rows * o->used.columns) * vt_type_size(o->used.type));
    backend->convert(backend, o->given, given_part(o));
}

static void unstage(vt_backend *backend, const operand *o, bool adds)
{
    static const vt_mask none = {.elements.rate = 0};
    if (!is_staged(o)) return;
    if (adds)
        backend->residual_add(backend, o->given, given_part(o), &none, o->given);
    else
        backend->convert(backend, given_part(o), o->given);
}

/* ---- the operations ---- */

static const vt_graph_operation operation = {.choice = "convolution",
                                             .key_numbers = sizeof(vt_convolution_key) / sizeof(int64_t),
                                             .most = VT_FUSED_MOST_PLANS,
                                             .describe = vt_convolution_describe,
                                             .run = vt_graph_run};

static void fail(vt_backend *backend, const vt_graph_plan *plan, const char *what)
{
    char text[200] = "", sentence[700];
    const vt_convolution_key *k = (const vt_convolution_key *)plan->key;
    plan->graph.library->cudnnGetLastErrorString(text, sizeof text);
    snprintf(sentence, sizeof sentence,
             "cuDNN %s for %ld cubes of %ld³ points, %ld channels, and %ld³, %ld channels: %s; --device=cpu runs "
             "without it",
             what, k->batch, 2 * k->side, k->in, k->side, k->out,
             plan->graph.failure[0] != '\0' ? plan->graph.failure : text);
    ((vt_cuda_common *)backend->state)->fail(backend, sentence);
}

static void convolve(vt_backend *backend, vt_convolution_kind kind, const vt_convolution *shape, vt_matrix x,
                     vt_matrix w, vt_matrix y)
{
    const vt_type type = kind == VT_CONVOLUTION_DATA ? y.type : x.type;
    const int64_t in = whole_pieces(type, shape->in), out = whole_pieces(type, shape->out);
    const int result = kind == VT_CONVOLUTION_FORWARD ? Y : kind == VT_CONVOLUTION_DATA ? X : W;
    const bool exact = ((vt_cuda_common *)backend->state)->exact_float32 && type == VT_FLOAT32;
    vt_graph_call c = {.backend = backend, .count = 3};
    operand operands[3];
    operands[X] = operand_of(x, type, x.rows, in, false, &c.bytes);
    operands[W] = operand_of(w, type, out, in * TAPS, result == W, &c.bytes);
    operands[Y] = operand_of(y, type, y.rows, out, false, &c.bytes);
    for (int i = X; i <= Y; i++) c.operands[i] = (vt_graph_operand){operands[i].used.data, operands[i].place};
    const vt_convolution_key key = {
        kind, type, shape->batch, shape->side, in, out, operands[X].used.stride, operands[Y].used.stride};
    const vt_graph_plan *plan = vt_graph_plan_find(&operation, &key, exact, &c);
    if (plan == NULL) return;
    if (plan->graph.plan == NULL) {
        fail(backend, plan, "has no convolution");
        return;
    }
    if (!vt_graph_prepare(&c, plan)) return;
    for (int i = X; i <= Y; i++) {
        operands[i].used.data = vt_graph_memory(&c, i);
        if (i != result) stage(backend, &operands[i]);
    }
    if (vt_graph_run(&c))
        unstage(backend, &operands[result], result == W);
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

void vt_convolutions_fill(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
}

#endif
