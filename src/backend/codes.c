#include "backend/codes.h"

#include <math.h>
#include <pthread.h>

static vt_code_map of_signed, of_unsigned;
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* positive: 0, the positive codes (the last decade has `last` of them), 1; returns how many these are. */
static int make_positive(int last, double *positive)
{
    static const double tenths[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int count = 0;
    positive[count++] = 0;
    for (int i = 0; i < 7; i++) {
        const int n = last >> (6 - i);
        for (int j = 0; j < n; j++) positive[count++] = tenths[i] * (0.1 + 0.9 * (j + 0.5) / n);
    }
    positive[count++] = 1;
    return count;
}

/* A line through the codes of each decade, which begins halfway between the last code of the one before and its first.
 */
static void make_lines(const double *positive, int last, vt_code_lines *lines)
{
    int first = 1;
    for (int i = 0; i < 7; i++) {
        const int n = last >> (6 - i);
        const double step = n > 1 ? positive[first + 1] - positive[first] : 1;
        lines->edge[i] = (float)((positive[first - 1] + positive[first]) / 2);
        lines->slope[i] = n > 1 ? (float)(1 / step) : 0;
        lines->offset[i] = (float)(n > 1 ? first - positive[first] / step + 0.5 : first);
        first += n;
        lines->limit[i] = (float)(first - 1);
    }
    lines->edge[7] = (float)((positive[first - 1] + positive[first]) / 2);
    lines->slope[7] = 0;
    lines->offset[7] = lines->limit[7] = (float)first;
}

static void make_maps(void)
{
    double positive[VT_CODES];
    int count = make_positive(64, positive);
    of_signed.zero = 127;
    for (int i = 0; i < count; i++) {
        of_signed.value[127 + i] = (float)positive[i];
        if (i > 0 && i < count - 1) of_signed.value[127 - i] = (float)-positive[i];
    }
    make_lines(positive, 64, &of_signed.lines);
    count = make_positive(128, positive);
    for (int i = 0; i < count; i++) of_unsigned.value[i] = (float)positive[i];
    make_lines(positive, 128, &of_unsigned.lines);
}

const vt_code_map *vt_code_map_signed(void)
{
    pthread_once(&made, make_maps);
    return &of_signed;
}

const vt_code_map *vt_code_map_unsigned(void)
{
    pthread_once(&made, make_maps);
    return &of_unsigned;
}

static int nearest(const vt_code_map *map, double ratio)
{
    int low = 0, high = VT_CODES - 1; /* the code is one of low … high */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ratio > ((double)map->value[middle] + (double)map->value[middle + 1]) / 2)
            low = middle + 1;
        else
            high = middle;
    }
    return map->zero == 0 && low == 0 && ratio > 0 ? 1 : low;
}

void vt_codes_encode(const vt_code_map *map, const float *x, int64_t count, int64_t block, uint8_t *codes,
                     float *scales)
{
    for (int64_t first = 0; first < count; first += block) {
        const int64_t end = first + block < count ? first + block : count;
        float largest = x[first], least = x[first];
        for (int64_t i = first; i < end; i++) {
            largest = fmaxf(largest, x[i]);
            least = fminf(least, x[i]);
        }
        const float scale = scales[first / block] = vt_code_scale(largest, least);
        for (int64_t i = first; i < end; i++)
            codes[i] = (uint8_t)(scale == 0 ? map->zero : nearest(map, (double)x[i] / (double)scale));
    }
}

void vt_codes_decode(const vt_code_map *map, const uint8_t *codes, const float *scales, int64_t count, int64_t block,
                     float *x)
{
    for (int64_t i = 0; i < count; i++) x[i] = map->value[codes[i]] * scales[i / block];
}
