/* Turns elements as a file stores them into float32: byte order, whole numbers with scale and offset, missing values.
 */
#ifndef VT_STORAGE_UNPACK_H
#define VT_STORAGE_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/largest_value.h"

/* Each whole number with a sign stands before the one without. */
typedef enum {
    VT_ELEMENT_NONE, /* no number */
    VT_ELEMENT_FLOAT16,
    VT_ELEMENT_FLOAT32,
    VT_ELEMENT_FLOAT64,
    VT_ELEMENT_INT8,
    VT_ELEMENT_UINT8,
    VT_ELEMENT_INT16,
    VT_ELEMENT_UINT16,
    VT_ELEMENT_INT32,
    VT_ELEMENT_UINT32,
    VT_ELEMENT_INT64,
    VT_ELEMENT_UINT64
} vt_element;

enum { VT_MISSING_VALUES = 8 }; /* _FillValue and those of missing_value */

/* value = stored · scale + offset; what is stored as one of `missing`, or beyond the limits, becomes NaN (the
 * conventions of netCDF). */
typedef struct {
    vt_element element;
    bool swapped; /* of the other byte order than this machine's */
    bool no_sign; /* by the attribute _Unsigned, which made `element` one without a sign */
    double scale, offset;
    int missing_count;
    double missing[VT_MISSING_VALUES];
    bool has_limits;
    double least, most; /* stored numbers that are valid */
} vt_packing;

static inline bool vt_element_is_float(vt_element element)
{
    return element >= VT_ELEMENT_FLOAT16 && element <= VT_ELEMENT_FLOAT64;
}

/* Bytes of an element. */
int64_t vt_element_size(vt_element element);

/* The number that the element at `stored` holds, which is of any alignment and in this machine's byte order. */
double vt_element_number(vt_element element, const void *stored);

/* Stored float32 of this machine's order, without scale, offset and missing values: bytes to be copied. */
bool vt_packing_is_plain(const vt_packing *packing);

/* values [count] from stored [count], which is of any alignment, and may be changed (its byte order turned). */
void vt_unpack(const vt_packing *packing, void *stored, int64_t count, float *values);

/* The same of one number that is a double already. */
double vt_unpack_number(const vt_packing *packing, double stored);

/* Is none of the values NaN, infinite or beyond ±VT_LARGEST_VALUE? */
bool vt_all_finite(const float *values, int64_t count);

#endif
