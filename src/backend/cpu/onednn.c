/* Matrix products through oneDNN, which chooses the kernels for the processor at run time. dnnl_sgemm is the same in
 * the C APIs of 2.x and 3.x. This is the only file that includes dnnl.h. */
#include <dnnl.h>
#include <stdio.h>

#include "backend/cpu/cpu.h"

/* c [m, n] = alpha·op(a)·op(b) + beta·c, row-major, leading dimensions in elements. */
static void product(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                    int64_t a_stride, const float *b, int64_t b_stride, float beta, float *c, int64_t c_stride)
{
    dnnl_status_t status =
        dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, a_stride, b, b_stride, beta, c, c_stride);
    VT_ASSERT(status == dnnl_success);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    (void)backend;
    if (bias != NULL) {
#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < y.rows; r++) {
            float *to = y.data + r * y.stride;
#pragma omp simd
            for (int64_t c = 0; c < y.columns; c++) to[c] = bias[c];
        }
    }
    product('N', 'T', y.rows, y.columns, x.columns, x.data, x.stride, weight.data, weight.stride,
            bias != NULL ? 1.0f : 0.0f, y.data, y.stride);
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    (void)backend;
    product('N', 'N', dx.rows, dx.columns, dy.columns, dy.data, dy.stride, weight.data, weight.stride, 0.0f, dx.data,
            dx.stride);
}

/* Each thread adds up a run of columns, 64 rows at a time so that float32 sums stay short. */
static void add_column_sums(vt_matrix dy, float *dbias)
{
    enum { COLUMNS = 64, ROWS = 64 };
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < dy.columns; first += COLUMNS) {
        int64_t count = dy.columns - first < COLUMNS ? dy.columns - first : COLUMNS;
        double total[COLUMNS] = {0};
        for (int64_t block = 0; block < dy.rows; block += ROWS) {
            float sum[COLUMNS] = {0};
            int64_t end = block + ROWS < dy.rows ? block + ROWS : dy.rows;
            for (int64_t r = block; r < end; r++) {
                const float *row = dy.data + r * dy.stride + first;
#pragma omp simd
                for (int64_t c = 0; c < count; c++) sum[c] += row[c];
            }
            for (int64_t c = 0; c < count; c++) total[c] += (double)sum[c];
        }
        for (int64_t c = 0; c < count; c++) dbias[first + c] += (float)total[c];
    }
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    (void)backend;
    product('T', 'N', dy.columns, x.columns, x.rows, dy.data, dy.stride, x.data, x.stride, 1.0f, dweight, x.columns);
    if (dbias != NULL) add_column_sums(dy, dbias);
}

void vt_onednn_fill(vt_backend *backend, char *version, size_t size)
{
    const dnnl_version_t *library = dnnl_version();
    snprintf(version, size, "oneDNN %d.%d.%d", library->major, library->minor, library->patch);
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
}
