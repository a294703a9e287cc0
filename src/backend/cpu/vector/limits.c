#include <math.h>

#include "backend/cpu/vector/product_tile.h"

/* Floating-point operations of all threads. `pairs`, a constant: multiplies pairs of bfloat16 numbers (product_tile.h),
 * otherwise float32 numbers. */
INLINE double multiply_adds_of(bool pairs, int64_t rounds)
{
    enum { SUMS = 10 }; /* more than latency × units; fits 16 registers */
    float kept = 0;
    int threads = 0;
#pragma omp parallel reduction(+ : kept, threads)
    {
        vector sum[SUMS], factor = splat(0.999f + (float)rounds * 1e-30f), term = splat(1e-9f);
        for (int i = 0; i < SUMS; i++) sum[i] = splat((float)i);
        for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 10
            for (int i = 0; i < SUMS; i++) sum[i] = pairs ? add_product(sum[i], factor, term) : sum[i] * factor + term;
        }
        for (int i = 0; i < SUMS; i++) kept += sum_lanes(sum[i]);
        threads++;
    }
    return isnan(kept) ? 0 : 2.0 * LANES * SUMS * (pairs ? NUMBERS : 1) * (double)rounds * threads;
}

/* Multiply-adds in registers only, on every thread: of float32 numbers, whatever type is stored; kernels for pairs
 * multiply bfloat16 numbers as pairs. */
double VT_VECTOR(multiply_adds)(vt_type type, int64_t rounds)
{
    return NUMBERS == 2 && type == VT_BFLOAT16 ? multiply_adds_of(true, rounds) : multiply_adds_of(false, rounds);
}
