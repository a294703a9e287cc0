#include "graph_plans.h"

#include "state.h"

#ifdef VT_HAS_CUDNN

enum { RANK = 3, MOST_PLANS = 2 }; /* each plan takes cuDNN up to a second to compile */

static vt_fused_tensor matrix(vt_fused_graph *g, vt_fused_place place, int64_t id, cudnnDataType_t type, int64_t rows,
                              int64_t columns, int64_t row_stride, int64_t column_stride)
{
    const int64_t whole = row_stride > column_stride ? rows * row_stride : columns * column_stride;
    const int64_t dims[RANK] = {1, rows, columns}, strides[RANK] = {whole, row_stride, column_stride};
    return vt_fused_tensor_make(g, place, id, type, RANK, dims, strides);
}

void vt_gelu_product_describe(const void *of, vt_fused_graph *g)
{
    const vt_gelu_product_key *key = of;
    const bool is_erf = key->gelu == VT_GELU_ERF;
    const cudnnDataType_t type = vt_fused_type(key->type);
    const vt_fused_tensor x = matrix(g, VT_FUSED_IN_MEMORY, 1, type, key->rows, key->in, key->x_stride, 1);
    /* in memory it is [out, in] forward (fc1's), and [in, out] backward (fc2's) */
    const vt_fused_tensor weight =
        matrix(g, VT_FUSED_IN_MEMORY, 2, type, key->in, key->out, key->is_backward ? key->weight_stride : 1,
               key->is_backward ? 1 : key->weight_stride);
    const vt_fused_tensor hidden = matrix(g, VT_FUSED_IN_MEMORY, 3, type, key->rows, key->out, key->hidden_stride, 1);
    const vt_fused_tensor result = matrix(g, VT_FUSED_IN_MEMORY, 4, type, key->rows, key->out, key->result_stride, 1);
    const vt_fused_tensor product = vt_fused_multiply(
        g, x, weight, matrix(g, VT_FUSED_INSIDE, 0, CUDNN_DATA_FLOAT, key->rows, key->out, key->out, 1));
    if (key->is_backward) {
        vt_fused_derivative(g, is_erf ? CUDNN_POINTWISE_GELU_BWD : CUDNN_POINTWISE_GELU_APPROX_TANH_BWD, hidden,
                            product, result);
        return;
    }
    const vt_fused_tensor bias = matrix(g, VT_FUSED_IN_MEMORY, 5, type, 1, key->out, key->out, 1);
    vt_fused_pointwise(g, CUDNN_POINTWISE_ADD, product, &bias, hidden);
    vt_fused_pointwise(g, is_erf ? CUDNN_POINTWISE_GELU_FWD : CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, hidden, NULL,
                       result);
}

/* ---- the operations ---- */

typedef struct {
    vt_gelu kind;
    vt_matrix x, weight, hidden, result; /* as in vt_gelu_product_key */
    const float *bias;
    const uint16_t *rounded;
    float *dbias;
} arguments;

static bool forward_without(void *call)
{
    const vt_graph_call *c = call;
    const arguments *a = c->context;
    vt_product_then_gelu(c->backend, a->kind, a->x, a->weight, a->bias, a->rounded, a->hidden, a->result);
    return cudaPeekAtLastError() == cudaSuccess;
}

/* What the bias's gradient is added to. */
static float *sums_of(const vt_graph_call *c)
{
    return c->is_trial ? (float *)c->workspace : ((const arguments *)c->context)->dbias;
}

static bool backward_without(void *call)
{
    const vt_graph_call *c = call;
    const arguments *a = c->context;
    const vt_matrix none = {0};
    c->backend->linear_backward_input(c->backend, a->x, a->weight, a->result);
    c->backend->gelu_backward_bias(c->backend, a->kind, a->hidden, a->result, a->result, none, sums_of(c));
    return cudaPeekAtLastError() == cudaSuccess;
}

/* The sums have the bits that they have without cuDNN: they are made of the stored numbers, in the same order. (cuDNN
 * could make them, too, but does not say in which order.) */
static bool backward_fused(void *call)
{
    const vt_graph_call *c = call;
    if (!vt_graph_run(call)) return false;
    VT_CUDA_NAME(column_sums)(c->backend, ((const arguments *)c->context)->result, sums_of(c));
    return cudaPeekAtLastError() == cudaSuccess;
}

enum { KEY_NUMBERS = sizeof(vt_gelu_product_key) / sizeof(int64_t) };
static const vt_graph_operation operations[] = {
    {"product_gelu", KEY_NUMBERS, MOST_PLANS, vt_gelu_product_describe, vt_graph_run, forward_without},
    {"gelu_gradient", KEY_NUMBERS, MOST_PLANS, vt_gelu_product_describe, backward_fused, backward_without}};

static bool is_fit(vt_matrix m, vt_type type)
{
    return m.type == type && m.columns % 8 == 0 && m.stride % 8 == 0 && (uintptr_t)m.data % 16 == 0;
}

static bool fits(const arguments *a, bool is_backward)
{
    const vt_type type = a->x.type;
    return vt_type_is_half(type) && is_fit(a->x, type) && is_fit(a->weight, type) && is_fit(a->hidden, type) &&
           is_fit(a->result, type) && (is_backward || (a->rounded != NULL && (uintptr_t)a->rounded % 16 == 0));
}

static void compute(vt_backend *backend, bool is_backward, const arguments *a)
{
    const vt_graph_operation *operation = &operations[is_backward];
    const vt_matrix operands[] = {a->x, a->weight, a->hidden, a->result};
    const vt_gelu_product_key key = {is_backward,      a->kind,           a->x.type,   a->x.rows,
                                     a->x.columns,     a->hidden.columns, a->x.stride, a->weight.stride,
                                     a->hidden.stride, a->result.stride};
    vt_graph_call c = {.backend = backend, .count = is_backward ? 4 : 5, .context = a};
    for (int i = 0; i < 4; i++) c.operands[i].memory = operands[i].data;
    c.operands[4].memory = (void *)(uintptr_t)a->rounded;
    if (is_backward) c.bytes = vt_fused_rounded((size_t)a->hidden.columns * sizeof(float)); /* a trial's sums */
    const vt_graph_plan *plan = fits(a, is_backward) ? vt_graph_plan_find(operation, &key, false, &c) : NULL;
    if (plan == NULL || plan->graph.plan == NULL)
        operation->rival(&c);
    else if (vt_graph_prepare(&c, plan) && !operation->run(&c))
        ((vt_cuda_common *)backend->state)
            ->fail(backend, "cuDNN's product with GELU, which had worked before, failed; --enable_jit=false runs "
                            "without it");
}

static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    compute(backend, false,
            &(arguments){.kind = kind,
                         .x = x,
                         .weight = weight,
                         .hidden = hidden,
                         .result = active,
                         .bias = bias,
                         .rounded = rounded});
}

static void linear_gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix dy, vt_matrix weight, vt_matrix hidden,
                                 vt_matrix dhidden, float *dbias)
{
    compute(backend, true,
            &(arguments){.kind = kind, .x = dy, .weight = weight, .hidden = hidden, .result = dhidden, .dbias = dbias});
}

void vt_gelu_products_fill(vt_backend *backend)
{
    backend->linear_gelu_forward = linear_gelu_forward;
    backend->linear_gelu_backward = linear_gelu_backward;
}

#endif
