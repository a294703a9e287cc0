#include "backend/cpu/amx/pairs.h"

/* Products of tiles in registers only, on every thread, for about as long as the vectors' rounds take. A product of
 * float32 numbers takes six products of terms. */
double VT_TILES(multiply_adds)(vt_type type, int64_t rounds)
{
    enum { SUMS = 4, FLOPS = 2 * SIDE * SIDE * DEPTH, PRODUCTS = 6, SHORTER = 12 };
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    {
        pair numbers[4][TILE_PAIRS], sums[TILE_PAIRS];
        for (int i = 0; i < 4 * TILE_PAIRS; i++) numbers[i / TILE_PAIRS][i % TILE_PAIRS] = 0x3f803f80u + (pair)i % 64;
        tiles_configure();
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        tile_load(4, numbers[0], 64);
        tile_load(5, numbers[1], 64);
        tile_load(6, numbers[2], 64);
        tile_load(7, numbers[3], 64);
        for (int64_t round = 0; round < rounds / SHORTER; round++) {
            tile_multiply(0, 4, 6);
            tile_multiply(1, 4, 7);
            tile_multiply(2, 5, 6);
            tile_multiply(3, 5, 7);
        }
        tile_store(0, sums, 64);
        tile_store(1, sums, 64);
        tile_store(2, sums, 64);
        tile_store(3, sums, 64);
        tiles_release();
        threads++;
    }
    double flops = (double)SUMS * FLOPS * (double)(rounds / SHORTER) * threads;
    return type == VT_BFLOAT16 ? flops : flops / PRODUCTS;
}
