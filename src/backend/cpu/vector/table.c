#include "backend/cpu/vector/kernels.h"
#include "backend/half.h"

#if defined(VT_PAIRS)

/* The products of bfloat16 by pairs (product_tile.h), and all else as without them. */
void VT_KERNEL(vt_vector_fill)(vt_backend *backend)
{
#if defined(__x86_64__)
    vt_vector_fill_avx512(backend);
#else
    vt_vector_fill_baseline(backend);
#endif
    vt_cpu_state *state = backend->state;
    state->vectors = *backend;
    VT_KERNEL(vt_vector_limits_fill)(backend);
    VT_KERNEL(vt_vector_product_fill)(backend);
}

#else

static void convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    (void)backend;
    vt_half_convert(from, to);
}

/* Beside tiles, products and attention serve only operands that tiles do not take, and convolutions only lay out what
 * products take. They are not compiled again for AMX: AVX-512's do the same. */
#if defined(__AVX512BF16__)
#define BESIDE_TILES(name) VT_JOIN(name, avx512)
#define DECLARE(name) void vt_vector_##name##_fill_avx512(vt_backend *backend);
VT_FILES_BESIDE_TILES(DECLARE)
#else
#define BESIDE_TILES(name) VT_KERNEL(name)
#endif

void VT_KERNEL(vt_vector_fill)(vt_backend *backend)
{
    backend->convert = convert;
#define FILL_BESIDE_TILES(name) BESIDE_TILES(vt_vector_##name##_fill)(backend);
#define FILL(name) VT_KERNEL(vt_vector_##name##_fill)(backend);
    VT_FILES_BESIDE_TILES(FILL_BESIDE_TILES)
    VT_OTHER_FILES(FILL)
}

#endif
