/* What tests need to know about the two 16-bit types. */
#ifndef VT_TESTS_OPERATIONS_HALVES_H
#define VT_TESTS_OPERATIONS_HALVES_H

#include "backend/half.h"

#define FOR_EACH_HALF(type) for (vt_type type = VT_BFLOAT16; type <= VT_FLOAT16; type++)

/* The largest relative error of rounding: half the distance of neighbours, 2^-8 and 2^-11 (8 and 11 bits). */
static inline double half_unit(vt_type type)
{
    return type == VT_BFLOAT16 ? 0x1p-8 : 0x1p-11;
}

static inline const char *half_name(vt_type type)
{
    return type == VT_FLOAT32 ? "float32" : type == VT_BFLOAT16 ? "bfloat16" : "float16";
}

#endif
