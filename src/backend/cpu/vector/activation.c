/* Bias and activation of a convolution's sums, and their gradients. Rows are taken in blocks, whose sums of the bias's
 * gradient are added up in order: runs in float32, their sums in float64. */
#include "backend/cpu/vector/elements.h"

enum { BLOCK = 1024, RUN = 32 };

INLINE vector activated(vt_activation kind, vector x)
{
    if (kind != VT_ACTIVATION_TANH) return choose(x <= splat(0), x * splat(kind == VT_ACTIVATION_LEAKY ? 0.01f : 0), x);
    return tanh_vector(x);
}

/* Where the activation gave y. */
INLINE vector slope(vt_activation kind, vector y)
{
    if (kind == VT_ACTIVATION_TANH) return splat(1) - y * y;
    return choose(y > splat(0), splat(1), splat(kind == VT_ACTIVATION_LEAKY ? 0.01f : 0));
}

static void bias_activation_forward(vt_backend *backend, vt_activation kind, const float *bias, vt_matrix y)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < y.rows; r++) {
        for (int64_t c = 0; c < y.columns; c += LANES) {
            const int64_t count = y.columns - c, at = r * y.stride + c;
            const vector added = load_up_to(bias + c, count);
            store_elements_up_to(&y, at, activated(kind, load_elements_up_to(&y, at, count) + added), count);
        }
    }
}

typedef struct {
    vt_activation kind;
    vt_matrix y, dy, more, dx;
} backward_work;

/* Rows first … end - 1; sums [columns, rounded up to whole vectors] = their sums. */
static void backward_block(const backward_work *w, int64_t first, int64_t end, double *sums)
{
    for (int64_t c = 0; c < w->dx.columns; c += LANES) {
        const int64_t count = w->dx.columns - c;
        double total[LANES] = {0};
        for (int64_t run = first; run < end; run += RUN) {
            vector sum = {0};
            for (int64_t r = run; r < smaller(run + RUN, end); r++) {
                vector d = load_elements_up_to(&w->dy, r * w->dy.stride + c, count);
                if (w->more.data != NULL) d += load_elements_up_to(&w->more, r * w->more.stride + c, count);
                d *= slope(w->kind, load_elements_up_to(&w->y, r * w->y.stride + c, count));
                store_elements_up_to(&w->dx, r * w->dx.stride + c, d, count);
                sum += d;
            }
            for (int i = 0; i < LANES; i++) total[i] += (double)sum[i];
        }
        memcpy(sums + c, total, sizeof total);
    }
}

static void bias_activation_backward(vt_backend *backend, vt_activation kind, vt_matrix y, vt_matrix dy, vt_matrix more,
                                     vt_matrix dx, float *dbias)
{
    const backward_work w = {kind, y, dy, more, dx};
    const int64_t blocks = pieces(dx.rows, BLOCK), width = pieces(dx.columns, LANES) * LANES;
    double *sums = vt_cpu_shared(backend, (size_t)(blocks * width) * sizeof *sums);
    if (sums == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block++)
        backward_block(&w, block * BLOCK, smaller(dx.rows, (block + 1) * BLOCK), sums + block * width);
    for (int64_t c = 0; c < dx.columns; c++) {
        double sum = 0;
        for (int64_t block = 0; block < blocks; block++) sum += sums[block * width + c];
        dbias[c] += (float)sum;
    }
}

void VT_KERNEL(vt_vector_activation_fill)(vt_backend *backend)
{
    backend->bias_activation_forward = bias_activation_forward;
    backend->bias_activation_backward = bias_activation_backward;
}
