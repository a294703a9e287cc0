/* Attention straight from its definition, one query row at a time: only one row of the queries × keys matrix exists at
 * once. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/dropout.h"
#include "base/memory.h"

typedef struct {
    const vt_attention_shape *shape;
    const float *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    int64_t batch, head;
    vt_dropout dropout; /* the head's first column */
} head_view;

static head_view view_head(const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v, int64_t unit)
{
    int64_t batch = unit / shape->heads, head = unit % shape->heads, first = head * shape->head_dim;
    head_view view = {shape,
                      q.data + batch * shape->queries * q.stride + first,
                      k.data + batch * shape->keys * k.stride + first,
                      v.data + batch * shape->keys * v.stride + first,
                      q.stride,
                      k.stride,
                      v.stride,
                      batch,
                      head,
                      shape->dropout};
    view.dropout.site = VT_SITE_ATTENTION + (uint32_t)(shape->first_head + head);
    return view;
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static double scale_of(const vt_attention_shape *shape)
{
    return shape->unscaled ? 1 : 1 / sqrt((double)shape->head_dim);
}

/* scores[j] = scaled q_i·k_j of the keys that the query sees; returns their largest. */
static double score_row(const head_view *view, int64_t query, double *scores)
{
    double scale = scale_of(view->shape), largest = -INFINITY;
    for (int64_t j = 0; j < vt_attention_seen(view->shape, query); j++) {
        scores[j] = scale * dot(view->q + query * view->q_stride, view->k + j * view->k_stride, view->shape->head_dim);
        if (scores[j] > largest) largest = scores[j];
    }
    return largest;
}

static double keep_factor(const head_view *view, int64_t query, int64_t key)
{
    if (view->dropout.rate <= 0) return 1;
    uint32_t sample = view->dropout.first_sample + (uint32_t)view->batch;
    return (double)vt_dropout_factor(&view->dropout, sample, (uint32_t)(view->shape->first_query + query),
                                     (uint32_t)(view->shape->first_key + key));
}

void vt_plain_attention_draw(vt_backend *backend, const vt_attention_shape *shape, uint16_t *drawn)
{
    const int64_t stride = vt_attention_drawn_stride(shape->queries), chunks = vt_attention_drawn_chunks(shape->keys);
    const vt_matrix none = {0};
    memset(drawn, 0, (size_t)vt_attention_drawn_count(shape) * sizeof *drawn);
    for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
        const head_view view = view_head(shape, none, none, none, unit);
        uint16_t *own = drawn + unit * chunks * stride;
        for (int64_t i = 0; i < shape->queries; i++)
            for (int64_t j = 0; j < shape->keys; j++)
                if (keep_factor(&view, i, j) > 0) own[j / 16 * stride + i] |= (uint16_t)(1u << j % 16);
    }
}

static void forward_row(const head_view *view, int64_t query, double *weights, float *out, float *log_sum)
{
    const int64_t seen = vt_attention_seen(view->shape, query);
    double largest = score_row(view, query, weights), sum = 0;
    for (int64_t j = 0; j < seen; j++) {
        weights[j] = exp(weights[j] - largest);
        sum += weights[j];
    }
    for (int64_t j = 0; j < seen; j++) weights[j] *= keep_factor(view, query, j) / sum;
    for (int64_t d = 0; d < view->shape->head_dim; d++) {
        double value = 0;
        for (int64_t j = 0; j < seen; j++) value += weights[j] * (double)view->v[j * view->v_stride + d];
        out[d] = (float)value;
    }
    *log_sum = (float)(largest + log(sum));
}

void vt_plain_attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                vt_matrix v, vt_matrix out, float *log_sum)
{
#pragma omp parallel
    {
        double *weights = vt_allocate((size_t)shape->keys, sizeof *weights, "attention's weights");
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
            head_view view = view_head(shape, q, k, v, unit);
            for (int64_t i = 0; i < shape->queries; i++) {
                float *row = out.data + (view.batch * shape->queries + i) * out.stride + view.head * shape->head_dim;
                forward_row(&view, i, weights, row, log_sum + unit * shape->queries + i);
            }
        }
        free(weights);
    }
}

static void merge_row(int64_t dim, const float *part, double part_log_sum, float *out, float *log_sum)
{
    double own = (double)*log_sum, largest = fmax(own, part_log_sum);
    if (isinf(part_log_sum)) return; /* the query sees none of the part's keys */
    double both = largest + log(exp(own - largest) + exp(part_log_sum - largest));
    double own_share = exp(own - both), part_share = exp(part_log_sum - both);
    for (int64_t d = 0; d < dim; d++) out[d] = (float)(own_share * (double)out[d] + part_share * (double)part[d]);
    *log_sum = (float)both;
}

void vt_plain_attention_merge(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                              const float *part_log_sum, vt_matrix out, float *log_sum)
{
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
        for (int64_t i = 0; i < shape->queries; i++) {
            int64_t row = unit / shape->heads * shape->queries + i, first = unit % shape->heads * shape->head_dim;
            int64_t sum = unit * shape->queries + i;
            merge_row(shape->head_dim, part.data + row * part.stride + first, (double)part_log_sum[sum],
                      out.data + row * out.stride + first, log_sum + sum);
        }
    }
}

/* One query's contribution to all gradients of one head. dk, dv are float64 [keys, head_dim]. */
static void backward_row(const head_view *view, int64_t query, const float *out, const float *dout, double log_sum,
                         double *weights, float *dq, double *dk, double *dv)
{
    const int64_t dim = view->shape->head_dim, seen = vt_attention_seen(view->shape, query);
    double scale = scale_of(view->shape), delta = dot(out, dout, dim);
    score_row(view, query, weights);
    for (int64_t d = 0; d < dim; d++) dq[d] = 0;
    for (int64_t j = 0; j < seen; j++) {
        double weight = exp(weights[j] - log_sum), keep = keep_factor(view, query, j);
        double score_gradient = weight * (keep * dot(dout, view->v + j * view->v_stride, dim) - delta) * scale;
        for (int64_t d = 0; d < dim; d++) {
            dv[j * dim + d] += keep * weight * (double)dout[d];
            dk[j * dim + d] += score_gradient * (double)view->q[query * view->q_stride + d];
        }
        weights[j] = score_gradient;
    }
    for (int64_t d = 0; d < dim; d++) {
        double value = 0;
        for (int64_t j = 0; j < seen; j++) value += weights[j] * (double)view->k[j * view->k_stride + d];
        dq[d] = (float)value;
    }
}

void vt_plain_attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                 vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                 vt_matrix dk, vt_matrix dv)
{
    int64_t dim = shape->head_dim, block = shape->keys * dim;
#pragma omp parallel
    {
        double *weights = vt_allocate((size_t)(shape->keys + 2 * block), sizeof *weights, "attention's weights");
        double *dk_sum = weights + shape->keys, *dv_sum = dk_sum + block;
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
            head_view view = view_head(shape, q, k, v, unit);
            int64_t first = view.head * dim;
            for (int64_t i = 0; i < 2 * block; i++) dk_sum[i] = 0;
            for (int64_t i = 0; i < shape->queries; i++) {
                int64_t row = view.batch * shape->queries + i;
                backward_row(&view, i, out.data + row * out.stride + first, dout.data + row * dout.stride + first,
                             (double)log_sum[unit * shape->queries + i], weights, dq.data + row * dq.stride + first,
                             dk_sum, dv_sum);
            }
            for (int64_t j = 0; j < shape->keys; j++) {
                int64_t row = view.batch * shape->keys + j;
                for (int64_t d = 0; d < dim; d++) {
                    dk.data[row * dk.stride + first + d] = (float)dk_sum[j * dim + d];
                    dv.data[row * dv.stride + first + d] = (float)dv_sum[j * dim + d];
                }
            }
        }
        free(weights);
    }
}
