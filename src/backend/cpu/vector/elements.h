/* Numbers of a vt_matrix as vectors of float32, whatever type they are stored in. */
#ifndef VT_BACKEND_CPU_VECTOR_ELEMENTS_H
#define VT_BACKEND_CPU_VECTOR_ELEMENTS_H

#include "backend/cpu/vector/vector.h"
#include "backend/half.h"

/* Elements index … of a matrix's memory. */
INLINE vector load_elements(const vt_matrix *from, int64_t index)
{
    if (from->type == VT_FLOAT32) return load(from->data + index);
    float wide[LANES];
    vt_half_widen_row(from->type, from->half + index, LANES, wide);
    return load(wide);
}

INLINE void store_elements(const vt_matrix *to, int64_t index, vector value)
{
    float wide[LANES];
    store(to->type == VT_FLOAT32 ? to->data + index : wide, value);
    if (to->type != VT_FLOAT32) vt_half_round_row(to->type, wide, LANES, to->half + index);
}

/* The first `count` < LANES of them; the other lanes are 0. */
INLINE vector load_some(const vt_matrix *from, int64_t index, int64_t count)
{
    if (from->type == VT_FLOAT32) return load_part(from->data + index, count);
    float wide[LANES] = {0};
    vt_half_widen_row(from->type, from->half + index, count, wide);
    return load(wide);
}

INLINE void store_some(const vt_matrix *to, int64_t index, vector value, int64_t count)
{
    if (to->type == VT_FLOAT32) {
        store_part(to->data + index, value, count);
        return;
    }
    float wide[LANES];
    store(wide, value);
    vt_half_round_row(to->type, wide, count, to->half + index);
}

/* What a matrix of this type makes of a number. */
INLINE vector as_stored(const vt_matrix *in, vector value)
{
    if (in->type == VT_FLOAT32) return value;
    uint16_t half[LANES];
    float wide[LANES];
    store(wide, value);
    vt_half_round_row(in->type, wide, LANES, half);
    vt_half_widen_row(in->type, half, LANES, wide);
    return load(wide);
}

#endif
