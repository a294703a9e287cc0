#include "storage/unpack.h"

#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/status.h"

int64_t vt_element_size(vt_element element)
{
    static const int64_t sizes[] = {0, 2, 4, 8, 1, 1, 2, 2, 4, 4, 8, 8};
    return sizes[element];
}

static bool is_scaled(const vt_packing *packing)
{
    return packing->scale != 1 || packing->offset != 0 || packing->missing_count > 0 || packing->has_limits;
}

bool vt_packing_is_plain(const vt_packing *packing)
{
    return packing->element == VT_ELEMENT_FLOAT32 && !packing->swapped && !is_scaled(packing);
}

static void swap_bytes(unsigned char *bytes, int64_t count, int64_t size)
{
    for (int64_t i = 0; i < count; i++, bytes += size)
        for (int64_t low = 0, high = size - 1; low < high; low++, high--) {
            unsigned char byte = bytes[low];
            bytes[low] = bytes[high];
            bytes[high] = byte;
        }
}

enum { BLOCK = 1024 }; /* elements between the steps below: they stay in the first cache */

/* In float64, as NumPy and netCDF's own tools do. */
static void widen(vt_element element, const unsigned char *stored, int64_t count, double *values)
{
#define WIDEN(TYPE)                                                                                                    \
    {                                                                                                                  \
        TYPE aligned[BLOCK];                                                                                           \
        memcpy(aligned, stored, (size_t)count * sizeof(TYPE));                                                         \
        for (int64_t i = 0; i < count; i++) values[i] = (double)aligned[i];                                            \
    }                                                                                                                  \
    break
    switch (element) {
    case VT_ELEMENT_FLOAT32:
        WIDEN(float);
    case VT_ELEMENT_FLOAT64:
        WIDEN(double);
    case VT_ELEMENT_INT8:
        WIDEN(int8_t);
    case VT_ELEMENT_UINT8:
        WIDEN(uint8_t);
    case VT_ELEMENT_INT16:
        WIDEN(int16_t);
    case VT_ELEMENT_UINT16:
        WIDEN(uint16_t);
    case VT_ELEMENT_INT32:
        WIDEN(int32_t);
    case VT_ELEMENT_UINT32:
        WIDEN(uint32_t);
    case VT_ELEMENT_INT64:
        WIDEN(int64_t);
    case VT_ELEMENT_UINT64:
        WIDEN(uint64_t);
    case VT_ELEMENT_FLOAT16:
        for (int64_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, stored + 2 * i, sizeof half);
            values[i] = (double)vt_float16_widen(half);
        }
        break;
    case VT_ELEMENT_NONE:
        VT_ASSERT(false); /* it is no number */
    }
#undef WIDEN
}

double vt_element_number(vt_element element, const void *stored)
{
    double number;
    widen(element, stored, 1, &number);
    return number;
}

void vt_unpack(const vt_packing *packing, void *memory, int64_t count, float *values)
{
    unsigned char *stored = memory;
    const int64_t size = vt_element_size(packing->element);
    const double scale = packing->scale, offset = packing->offset;
    if (packing->swapped) swap_bytes(stored, count, size);
    if (packing->element == VT_ELEMENT_FLOAT32 && !is_scaled(packing)) {
        memcpy(values, stored, (size_t)(count * size));
        return;
    }
    for (int64_t first = 0; first < count; first += BLOCK) {
        double wide[BLOCK];
        const int64_t block = count - first < BLOCK ? count - first : BLOCK;
        widen(packing->element, stored + first * size, block, wide);
        for (int64_t i = 0; i < block; i++) values[first + i] = (float)(wide[i] * scale + offset);
        for (int m = 0; m < packing->missing_count; m++)
            for (int64_t i = 0; i < block; i++)
                if (wide[i] == packing->missing[m]) values[first + i] = NAN;
        for (int64_t i = 0; i < block && packing->has_limits; i++)
            if (!(wide[i] >= packing->least && wide[i] <= packing->most)) values[first + i] = NAN;
    }
}

double vt_unpack_number(const vt_packing *packing, double stored)
{
    bool valid = !packing->has_limits || (stored >= packing->least && stored <= packing->most);
    for (int m = 0; m < packing->missing_count; m++) valid = valid && stored != packing->missing[m];
    return valid ? stored * packing->scale + packing->offset : (double)NAN;
}

/* Added to the bits of a value without its sign, this reaches the sign's bit from the number above VT_LARGEST_VALUE on,
 * infinities and NaN included. */
#define BEYOND_LARGEST (0x80000000u - 0x7149f2cbu)

/* Of integers, as they need no order of additions: compilers make it as fast as memory. */
bool vt_all_finite(const float *values, int64_t count)
{
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        found |= (bits & 0x7fffffffu) + BEYOND_LARGEST;
    }
    return (found & 0x80000000u) == 0;
}
