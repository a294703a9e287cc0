#include "backend/cpu/cpu.h"

/* The tanh form of GELU: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))). */
static const double root_two_over_pi = 0.79788456080286535588, cubic = 0.044715;

static double gelu(vt_gelu kind, double x)
{
    if (kind == VT_GELU_ERF) return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    return 0.5 * x * (1 + tanh(root_two_over_pi * (x + cubic * x * x * x)));
}

static double gelu_derivative(vt_gelu kind, double x)
{
    if (kind == VT_GELU_ERF)
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
    double inner = tanh(root_two_over_pi * (x + cubic * x * x * x));
    return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * root_two_over_pi * (1 + 3 * cubic * x * x);
}

void vt_plain_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.columns; c++)
            y.data[r * y.stride + c] = (float)gelu(kind, (double)x.data[r * x.stride + c]);
}

void vt_plain_gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        for (int64_t c = 0; c < x.columns; c++) {
            double value = (double)x.data[r * x.stride + c];
            dx.data[r * dx.stride + c] = (float)((double)dy.data[r * dy.stride + c] * gelu_derivative(kind, value));
            if (y.data != NULL) y.data[r * y.stride + c] = (float)gelu(kind, value);
        }
    }
}

void vt_plain_linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                  const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    backend->linear_forward(backend, x, weight, bias, rounded, hidden);
    backend->gelu_forward(backend, kind, hidden, active);
}
