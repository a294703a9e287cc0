#include "backend/cpu/vector/vector.h"

enum { RUN = 16 }; /* rows */

/* Half as many numbers as a vector has, in float32 and in float64. */
typedef float narrow __attribute__((vector_size(LANES * 2)));
typedef double wide __attribute__((vector_size(LANES * 4)));

/* Missing points are 0 in both. */
INLINE void widen(const float *prediction, const float *target, wide *p, wide *t)
{
    typedef int32_t flags __attribute__((vector_size(sizeof(narrow))));
    narrow a, b;
    memcpy(&a, prediction, sizeof a);
    memcpy(&b, target, sizeof b);
    const flags there = (a != VT_NO_POINT) & (b != VT_NO_POINT);
    *p = __builtin_convertvector((narrow)((flags)a & there), wide);
    *t = __builtin_convertvector((narrow)((flags)b & there), wide);
}

/* The squares of a row, in float64, whose lanes are added in order. */
static void add_row(const float *prediction, const float *target, int64_t columns, double squares[2])
{
    enum { HALF = LANES / 2 };
    wide difference_squares[2] = {{0}}, target_squares[2] = {{0}};
    double differences[LANES], targets[LANES];
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
#pragma GCC unroll 2
        for (int64_t i = 0; i < 2; i++) {
            wide forecast, wanted;
            widen(prediction + c + i * HALF, target + c + i * HALF, &forecast, &wanted);
            const wide difference = forecast - wanted;
            difference_squares[i] += difference * difference;
            target_squares[i] += wanted * wanted;
        }
    }
    memcpy(differences, difference_squares, sizeof differences);
    memcpy(targets, target_squares, sizeof targets);
    for (int64_t i = 0; c + i < columns; i++) {
        if (prediction[c + i] == VT_NO_POINT || target[c + i] == VT_NO_POINT) continue;
        double wanted = (double)target[c + i], difference = (double)prediction[c + i] - wanted;
        differences[i] += difference * difference;
        targets[i] += wanted * wanted;
    }
    for (int64_t i = 0; i < LANES; i++) {
        squares[0] += differences[i];
        squares[1] += targets[i];
    }
}

/* A sample's rows are divided into ranges of RUN rows, whose sums are added in order: a single sample keeps all threads
 * busy, and the bits do not depend on the number of threads. */
static void squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    int64_t tokens = prediction.rows / batch, runs = (tokens + RUN - 1) / RUN;
    double *partial = vt_cpu_shared(backend, (size_t)(batch * runs * 2) * sizeof(double));
    if (partial == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t work = 0; work < batch * runs; work++) {
        int64_t first = work / runs * tokens + work % runs * RUN, end = first + RUN, last = (work / runs + 1) * tokens;
        double sums[2] = {0, 0};
        for (int64_t r = first; r < (end < last ? end : last); r++)
            add_row(prediction.data + r * prediction.stride, target.data + r * target.stride, target.columns, sums);
        partial[2 * work] = sums[0];
        partial[2 * work + 1] = sums[1];
    }
    for (int64_t sample = 0; sample < batch; sample++) {
        double *to = squares + 2 * sample;
        to[0] = to[1] = 0;
        for (int64_t run = sample * runs; run < (sample + 1) * runs; run++) {
            to[0] += partial[2 * run];
            to[1] += partial[2 * run + 1];
        }
    }
}

void VT_KERNEL(vt_vector_loss_fill)(vt_backend *backend)
{
    backend->squared_norms = squared_norms;
}
