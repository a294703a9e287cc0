#include "backend/cpu/vector/vector.h"

/* GELU and its derivative of one vector. */
typedef struct {
    vector value;
    vector slope;
} gelu_result;

/* Φ(x) = ½ erfc(-x/√2). With z = |x|/√2: erfc(z) = e^(-z²) erfcx(z), erfcx(z) = t P(t), t = 1 / (1 + 0.3 z); P is our
 * own minimax fit of degree 8 over 0 <= z <= 10, relative error 2e-8 (bench/fit_erfcx.py). The density shares the
 * e^(-x²/2). */
INLINE gelu_result gelu_erf(vector x)
{
    vector size = largest(x, -x);
    vector t = 1.0f / (1.0f + splat(0.3f * 0.70710678f) * size);
    vector p = splat(-0.12952413f);
    p = p * t + splat(0.48556870f);
    p = p * t + splat(-0.51228843f);
    p = p * t + splat(0.54773058f);
    p = p * t + splat(-0.09465702f);
    p = p * t + splat(0.21492825f);
    p = p * t + splat(0.14833876f);
    p = p * t + splat(0.17071526f);
    p = p * t + splat(0.16918801f);
    vector bell = exp_vector(splat(-0.5f) * x * x);
    vector tail = 0.5f * bell * t * p;
    vector cumulative = choose(x > 0.0f, 1.0f - tail, tail);
    return (gelu_result){x * cumulative, cumulative + x * bell * splat(0.39894228f)};
}

/* ½ (1 + tanh u) = 1 / (1 + e^(-2u)), u = √(2/π) (x + 0.044715 x³). Its complement is written as e^(-2u) times itself,
 * since 1 - gate cancels. */
INLINE gelu_result gelu_tanh(vector x)
{
    vector square = x * x;
    vector twice = splat(2 * 0.79788456f) * x * (1.0f + splat(0.044715f) * square);
    vector bounded = largest(-largest(-twice, splat(-80.0f)), splat(-80.0f));
    vector decay = exp_vector(-bounded), gate = 1.0f / (1.0f + decay);
    vector slope = splat(2 * 0.79788456f) * (1.0f + splat(3 * 0.044715f) * square);
    return (gelu_result){x * gate, gate + x * (decay * gate * gate) * slope};
}

INLINE gelu_result gelu(vt_gelu kind, vector x)
{
    return kind == VT_GELU_ERF ? gelu_erf(x) : gelu_tanh(x);
}

INLINE void forward_row(vt_gelu kind, const float *x, float *y, int64_t columns)
{
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) store(y + c, gelu(kind, load(x + c)).value);
    if (c < columns) store_part(y + c, gelu(kind, load_part(x + c, columns - c)).value, columns - c);
}

static void gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        if (kind == VT_GELU_ERF)
            forward_row(VT_GELU_ERF, x.data + r * x.stride, y.data + r * y.stride, x.columns);
        else
            forward_row(VT_GELU_TANH, x.data + r * x.stride, y.data + r * y.stride, x.columns);
    }
}

/* hidden += bias, active = gelu(hidden), of one row. */
INLINE void bias_forward_row(vt_gelu kind, const float *bias, float *hidden, float *active, int64_t columns)
{
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        vector x = load(hidden + c) + load(bias + c);
        store(hidden + c, x);
        store(active + c, gelu(kind, x).value);
    }
    if (c == columns) return;
    vector x = load_part(hidden + c, columns - c) + load_part(bias + c, columns - c);
    store_part(hidden + c, x, columns - c);
    store_part(active + c, gelu(kind, x).value, columns - c);
}

static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    backend->linear_forward(backend, x, weight, NULL, hidden);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < hidden.rows; r++) {
        float *row = hidden.data + r * hidden.stride, *to = active.data + r * active.stride;
        if (kind == VT_GELU_ERF)
            bias_forward_row(VT_GELU_ERF, bias, row, to, hidden.columns);
        else
            bias_forward_row(VT_GELU_TANH, bias, row, to, hidden.columns);
    }
}

INLINE void backward_row(vt_gelu kind, const float *x, const float *dy, float *dx, float *y, int64_t columns)
{
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        gelu_result result = gelu(kind, load(x + c));
        store(dx + c, load(dy + c) * result.slope);
        if (y != NULL) store(y + c, result.value);
    }
    if (c == columns) return;
    gelu_result result = gelu(kind, load_part(x + c, columns - c));
    store_part(dx + c, load_part(dy + c, columns - c) * result.slope, columns - c);
    if (y != NULL) store_part(y + c, result.value, columns - c);
}

static void gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *from = x.data + r * x.stride, *gradient = dy.data + r * dy.stride;
        float *to = dx.data + r * dx.stride, *again = y.data != NULL ? y.data + r * y.stride : NULL;
        if (kind == VT_GELU_ERF)
            backward_row(VT_GELU_ERF, from, gradient, to, again, x.columns);
        else
            backward_row(VT_GELU_TANH, from, gradient, to, again, x.columns);
    }
}

void VT_KERNEL(vt_vector_gelu_fill)(vt_backend *backend)
{
    backend->gelu_forward = gelu_forward;
    backend->gelu_backward = gelu_backward;
    backend->linear_gelu_forward = linear_gelu_forward;
}
