#include "backend/cpu/vector/vector.h"

void VT_KERNEL(vt_vector_fill)(vt_backend *backend)
{
    VT_KERNEL(vt_vector_attention_backward_fill)(backend);
    VT_KERNEL(vt_vector_attention_forward_fill)(backend);
    VT_KERNEL(vt_vector_convert_fill)(backend);
    VT_KERNEL(vt_vector_gelu_fill)(backend);
    VT_KERNEL(vt_vector_layer_norm_fill)(backend);
    VT_KERNEL(vt_vector_limits_fill)(backend);
    VT_KERNEL(vt_vector_loss_fill)(backend);
    VT_KERNEL(vt_vector_optimizer_fill)(backend);
    VT_KERNEL(vt_vector_patches_fill)(backend);
    VT_KERNEL(vt_vector_product_fill)(backend);
}
