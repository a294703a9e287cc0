#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "base/memory.h"

void vt_plain_embedding_forward(vt_backend *backend, const vt_word_rows *words, const int32_t *numbers, vt_matrix table,
                                vt_matrix x)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const int64_t row = vt_word_here(words, numbers[vt_word_place(words, r)]);
        for (int64_t c = 0; c < x.columns; c++)
            x.data[r * x.stride + c] = row >= 0 ? table.data[row * table.stride + c] : 0;
    }
}

void vt_plain_embedding_backward(vt_backend *backend, const vt_word_rows *words, const int32_t *numbers, vt_matrix dx,
                                 float *dtable)
{
    /* the places of each word, in their order: those of word w are order[begin[w]] … order[begin[w + 1] - 1] */
    int64_t *begin = vt_allocate((size_t)(words->count + 2), sizeof *begin, "an embedding's gradient");
    int64_t *order = vt_allocate((size_t)dx.rows, sizeof *order, "an embedding's gradient");
    for (int64_t r = 0; r < dx.rows; r++) begin[vt_word_here(words, numbers[vt_word_place(words, r)]) + 2]++;
    begin[1] = 0; /* words that are not here */
    for (int64_t w = 0; w < words->count; w++) begin[w + 2] += begin[w + 1];
    for (int64_t r = 0; r < dx.rows; r++) {
        const int64_t w = vt_word_here(words, numbers[vt_word_place(words, r)]);
        if (w >= 0) order[begin[w + 1]++] = r;
    }
    begin[0] = 0;
#pragma omp parallel for schedule(static)
    for (int64_t w = 0; w < words->count; w++) {
        for (int64_t c = 0; c < dx.columns && begin[w] < begin[w + 1]; c++) {
            double sum = 0;
            for (int64_t i = begin[w]; i < begin[w + 1]; i++) sum += (double)dx.data[order[i] * dx.stride + c];
            dtable[w * dx.columns + c] += (float)sum;
        }
    }
    free(order);
    free(begin);
}

void vt_plain_sinusoid_add(vt_backend *backend, const vt_word_rows *words, vt_matrix x)
{
#pragma omp parallel for schedule(static)
    for (int64_t token = 0; token < words->tokens; token++) {
        for (int64_t c = 0; c < x.columns; c++) {
            const float exponent = (float)(c - c % 2) * (float)(-log(10000.0) / (double)x.columns);
            const float angle = (float)(words->first + token) * (float)exp((double)exponent);
            const float value = (float)(c % 2 == 0 ? sin((double)angle) : cos((double)angle));
            for (int64_t r = token; r < x.rows; r += words->tokens) x.data[r * x.stride + c] += value;
        }
    }
}

/* ---- cross entropy ---- */

void vt_plain_cross_entropy_parts(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                  vt_matrix scores, float *parts)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < scores.rows; r++) {
        const float *row = scores.data + r * scores.stride;
        const int64_t target = vt_word_here(words, targets[vt_word_place(words, r)]);
        double largest = -INFINITY, sum = 0;
        for (int64_t c = 0; c < scores.columns; c++) largest = fmax(largest, (double)row[c]);
        for (int64_t c = 0; c < scores.columns; c++) sum += exp((double)row[c] - largest);
        parts[3 * r] = (float)largest;
        parts[3 * r + 1] = (float)sum;
        parts[3 * r + 2] = target >= 0 ? row[target] : -INFINITY;
    }
}

void vt_plain_cross_entropy_sums(vt_backend *backend, const vt_word_rows *words, int64_t ranks, const int32_t *targets,
                                 const float *parts, double *sums, float *log_sum)
{
    for (int64_t r = 0; r < words->rows; r++) {
        double *own = sums + 2 * ((words->first_row + r) / words->tokens);
        double largest = -INFINITY, sum = 0, target = -INFINITY;
        for (int64_t rank = 0; rank < ranks; rank++) {
            const float *part = parts + 3 * (rank * words->rows + r);
            largest = fmax(largest, (double)part[0]);
            target = fmax(target, (double)part[2]);
        }
        for (int64_t rank = 0; rank < ranks; rank++) {
            const float *part = parts + 3 * (rank * words->rows + r);
            sum += (double)part[1] * exp((double)part[0] - largest);
        }
        const double both = largest + log(sum);
        log_sum[r] = (float)both;
        if (targets[vt_word_place(words, r)] >= 0) own[0] += both - target;
        own[1] += 1;
    }
}

void vt_plain_cross_entropy_backward(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                     vt_matrix scores, const float *log_sum, float scale, const double *loss_scale,
                                     vt_matrix dscores)
{
    const double factor = (double)scale * (loss_scale != NULL ? *loss_scale : 1);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < scores.rows; r++) {
        const int32_t number = targets[vt_word_place(words, r)];
        const int64_t target = vt_word_here(words, number);
        for (int64_t c = 0; c < scores.columns; c++) {
            const double weight = exp((double)scores.data[r * scores.stride + c] - (double)log_sum[r]);
            const double gradient = factor * (weight - (c == target));
            dscores.data[r * dscores.stride + c] = number >= 0 ? (float)gradient : 0;
        }
    }
}
