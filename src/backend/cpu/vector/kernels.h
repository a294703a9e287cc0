/* Who fills which rows of the back end's table for one instruction set (VT_ISA: baseline, avx2, avx512, bf16, amx). */
#ifndef VT_BACKEND_CPU_VECTOR_KERNELS_H
#define VT_BACKEND_CPU_VECTOR_KERNELS_H

#include "backend/cpu/cpu.h"

#define VT_JOIN_(a, b) a##_##b
#define VT_JOIN(a, b) VT_JOIN_(a, b)
/* The name of this file's function for this instruction set. */
#define VT_KERNEL(name) VT_JOIN(name, VT_ISA)

/* The files whose kernels tiles take over (vector/ and amx/ have one of each name); these and the others that AMX takes
 * from AVX-512 as they are (make/compile.mk); and the rest. Each defines its VT_KERNEL(vt_vector_<name>_fill), or
 * vt_tiles_<name>_fill, which fills its part of the table. */
#define VT_FILES_ON_TILES(file) file(attention_backward) file(attention_forward) file(limits) file(product)
#define VT_FILES_BESIDE_TILES(file) VT_FILES_ON_TILES(file) file(convolution)
#define VT_OTHER_FILES(file)                                                                                           \
    file(activation) file(adafactor) file(gelu) file(layer_norm) file(loss) file(mask) file(optimizer) file(patches)   \
        file(words)

#define VT_DECLARE_FILL(name) void VT_KERNEL(vt_vector_##name##_fill)(vt_backend * backend);
#define VT_DECLARE_TILES_FILL(name) void VT_KERNEL(vt_tiles_##name##_fill)(vt_backend * backend);
VT_FILES_BESIDE_TILES(VT_DECLARE_FILL)
VT_OTHER_FILES(VT_DECLARE_FILL)
VT_FILES_ON_TILES(VT_DECLARE_TILES_FILL)

#endif
