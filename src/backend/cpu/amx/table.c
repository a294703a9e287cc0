#include "backend/cpu/vector/kernels.h"

void VT_KERNEL(vt_tiles_fill)(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    state->vectors = *backend;
    VT_KERNEL(vt_tiles_attention_backward_fill)(backend);
    VT_KERNEL(vt_tiles_attention_forward_fill)(backend);
    VT_KERNEL(vt_tiles_limits_fill)(backend);
    VT_KERNEL(vt_tiles_product_fill)(backend);
}
