/* Who fills which rows of the back end's table for one instruction set (VT_ISA: baseline, avx2, avx512, bf16, amx). */
#ifndef VT_BACKEND_CPU_VECTOR_KERNELS_H
#define VT_BACKEND_CPU_VECTOR_KERNELS_H

#include "backend/cpu/cpu.h"

#define VT_JOIN_(a, b) a##_##b
#define VT_JOIN(a, b) VT_JOIN_(a, b)
/* The name of this file's function for this instruction set. */
#define VT_KERNEL(name) VT_JOIN(name, VT_ISA)

/* Each file's part of the table, for this instruction set. */
void VT_KERNEL(vt_vector_activation_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_attention_backward_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_attention_forward_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_convert_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_convolution_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_gelu_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_layer_norm_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_limits_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_loss_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_density_loss_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_mask_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_adafactor_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_optimizer_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_patches_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_product_fill)(vt_backend *backend);
void VT_KERNEL(vt_vector_words_fill)(vt_backend *backend);

/* Those on tiles. */
void VT_KERNEL(vt_tiles_attention_backward_fill)(vt_backend *backend);
void VT_KERNEL(vt_tiles_attention_forward_fill)(vt_backend *backend);
void VT_KERNEL(vt_tiles_limits_fill)(vt_backend *backend);
void VT_KERNEL(vt_tiles_product_fill)(vt_backend *backend);

#endif
