#include "backend/cpu/vector/vector.h"

/* Multiply-adds in registers only, on every thread: in float32, whatever type numbers are stored in. */
static double multiply_adds(vt_type type, int64_t rounds)
{
    (void)type;
    enum { SUMS = 10 }; /* more than latency × units; fits 16 registers */
    float kept = 0;
    int threads = 0;
#pragma omp parallel reduction(+ : kept, threads)
    {
        vector sum[SUMS], factor = splat(0.999f + (float)rounds * 1e-30f), term = splat(1e-9f);
        for (int i = 0; i < SUMS; i++) sum[i] = splat((float)i);
        for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 10
            for (int i = 0; i < SUMS; i++) sum[i] = sum[i] * factor + term;
        }
        for (int i = 0; i < SUMS; i++) kept += sum_lanes(sum[i]);
        threads++;
    }
    return kept < 0 ? 0 : 2.0 * LANES * SUMS * (double)rounds * threads;
}

void VT_KERNEL(vt_vector_limits_fill)(vt_backend *backend)
{
    ((vt_cpu_state *)backend->state)->multiply_adds = multiply_adds;
}
