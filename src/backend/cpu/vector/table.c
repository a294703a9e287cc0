#include "backend/cpu/vector/kernels.h"
#include "backend/half.h"

#if defined(VT_PAIRS)

/* The products of bfloat16 by pairs (product_tile.h), and all else as without them. */
void VT_VECTOR(fill)(vt_backend *backend)
{
#if defined(__x86_64__)
    vt_vector_fill_avx512(backend);
#else
    vt_vector_fill_baseline(backend);
#endif
    vt_cpu_state *state = backend->state;
    state->vectors = *backend;
    state->multiply_adds = VT_VECTOR(multiply_adds);
#define FILL(name) backend->name = VT_VECTOR(name);
    VT_PRODUCTS(FILL)
}

#else

void VT_VECTOR(convert)(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    vt_half_convert(from, to);
}

/* Beside tiles, products and attention serve only operands that tiles do not take, and convolutions only lay out what
 * products take. They are not compiled again for AMX: AVX-512's do the same. */
#if defined(__AVX512BF16__)
#define BESIDE_TILES(name) vt_vector_##name##_avx512
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...) void BESIDE_TILES(name)(vt_backend * backend VT_PARAMETERS(__VA_ARGS__));
#include "backend/operations.def"
double BESIDE_TILES(multiply_adds)(vt_type type, int64_t rounds);
#else
#define BESIDE_TILES(name) VT_VECTOR(name)
#endif

void VT_VECTOR(fill)(vt_backend *backend)
{
#define FILL_BESIDE_TILES(name) backend->name = BESIDE_TILES(name);
#define FILL(name) backend->name = VT_VECTOR(name);
    VT_BESIDE_TILES(FILL_BESIDE_TILES)
    VT_OTHER_VECTORS(FILL)
    ((vt_cpu_state *)backend->state)->multiply_adds = BESIDE_TILES(multiply_adds);
}

#endif
