#include "backend/cpu/vector/kernels.h"

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

/* Beside tiles, which take over products and attention, these serve only operands that tiles do not take. They are not
 * compiled again for AMX: AVX-512's do the same. */
#if defined(__AVX512BF16__)
void vt_vector_attention_backward_fill_avx512(vt_backend *backend);
void vt_vector_convolution_fill_avx512(vt_backend *backend);
void vt_vector_attention_forward_fill_avx512(vt_backend *backend);
void vt_vector_limits_fill_avx512(vt_backend *backend);
void vt_vector_product_fill_avx512(vt_backend *backend);
#define BESIDE_TILES(name) VT_JOIN(name, avx512)
#else
#define BESIDE_TILES(name) VT_KERNEL(name)
#endif

void VT_KERNEL(vt_vector_fill)(vt_backend *backend)
{
    VT_KERNEL(vt_vector_activation_fill)(backend);
    BESIDE_TILES(vt_vector_attention_backward_fill)(backend);
    BESIDE_TILES(vt_vector_attention_forward_fill)(backend);
    VT_KERNEL(vt_vector_convert_fill)(backend);
    BESIDE_TILES(vt_vector_convolution_fill)(backend);
    VT_KERNEL(vt_vector_gelu_fill)(backend);
    VT_KERNEL(vt_vector_layer_norm_fill)(backend);
    BESIDE_TILES(vt_vector_limits_fill)(backend);
    VT_KERNEL(vt_vector_loss_fill)(backend);
    VT_KERNEL(vt_vector_density_loss_fill)(backend);
    VT_KERNEL(vt_vector_mask_fill)(backend);
    VT_KERNEL(vt_vector_adafactor_fill)(backend);
    VT_KERNEL(vt_vector_optimizer_fill)(backend);
    VT_KERNEL(vt_vector_patches_fill)(backend);
    BESIDE_TILES(vt_vector_product_fill)(backend);
    VT_KERNEL(vt_vector_words_fill)(backend);
}

#endif
