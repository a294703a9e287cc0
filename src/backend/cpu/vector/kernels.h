/* The kernels that fill rows of the back end's table for one instruction set (VT_ISA: baseline, avx2, avx512, bf16,
 * amx): each has the name of its operation. */
#ifndef VT_BACKEND_CPU_VECTOR_KERNELS_H
#define VT_BACKEND_CPU_VECTOR_KERNELS_H

#include "backend/cpu/cpu.h"

#define VT_JOIN_(a, b) a##_##b
#define VT_JOIN(a, b) VT_JOIN_(a, b)
/* The name of a function for this instruction set; that of an operation in vector/, and in amx/. */
#define VT_KERNEL(name) VT_JOIN(name, VT_ISA)
#define VT_VECTOR(operation) VT_KERNEL(vt_vector_##operation)
#define VT_TILES(operation) VT_KERNEL(vt_tiles_##operation)

/* The operations that vector/ has: products; these and the others that tiles take over (amx/ has them, too); these and
 * the others that AMX takes from AVX-512 as they are (make/compile.mk); and the rest. */
#define VT_PRODUCTS(operation)                                                                                         \
    operation(linear_forward) operation(linear_backward_input) operation(linear_backward_weight)                       \
        operation(linear_gelu_forward)
#define VT_ON_TILES(operation) VT_PRODUCTS(operation) operation(attention_forward) operation(attention_backward)
#define VT_BESIDE_TILES(operation)                                                                                     \
    VT_ON_TILES(operation)                                                                                             \
    operation(convolution_forward) operation(convolution_backward_input) operation(convolution_backward_weight)
#define VT_OTHER_VECTORS(operation)                                                                                    \
    operation(convert) operation(layer_norm_forward) operation(layer_norm_backward) operation(residual_add)            \
        operation(residual_layer_norm) operation(mask_multiply) operation(gelu_forward) operation(gelu_backward)       \
            operation(bias_activation_forward) operation(bias_activation_backward) operation(cross_entropy_parts)      \
                operation(cross_entropy_backward) operation(patches_load) operation(patches_load_backward)             \
                    operation(scaled_add) operation(loss_sums) operation(loss_backward) operation(sum_of_squares)      \
                        operation(update) operation(update_in_codes) operation(factored_squares)                       \
                            operation(adafactor_norm) operation(adafactor_apply)

/* Declared for every operation; those of the lists above exist. */
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...)                                                                                     \
    void VT_VECTOR(name)(vt_backend * backend VT_PARAMETERS(__VA_ARGS__));                                             \
    void VT_TILES(name)(vt_backend * backend VT_PARAMETERS(__VA_ARGS__));
#include "backend/operations.def"

/* vt_backend_cpu_multiply_adds by these kernels. */
double VT_VECTOR(multiply_adds)(vt_type type, int64_t rounds);
double VT_TILES(multiply_adds)(vt_type type, int64_t rounds);

#endif
