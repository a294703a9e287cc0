/* HDF5's filters fletcher32 and shuffle. */
#include <string.h>

#include "storage/decode.h"

static uint32_t fold(uint32_t sum)
{
    return (sum & 0xffff) + (sum >> 16);
}

/* Fletcher, "An arithmetic checksum for serial transmissions", 1982, over 16-bit words, first byte high. Sums are
 * reduced before they can overflow. */
uint32_t vt_fletcher32(const unsigned char *bytes, size_t count)
{
    enum { BEFORE_OVERFLOW = 360 };
    uint32_t sum = 0, sum_of_sums = 0;
    for (size_t words = count / 2; words > 0;) {
        size_t run = words < BEFORE_OVERFLOW ? words : BEFORE_OVERFLOW;
        words -= run;
        for (; run > 0; run--, bytes += 2) {
            sum += (uint32_t)bytes[0] << 8 | bytes[1];
            sum_of_sums += sum;
        }
        sum = fold(sum);
        sum_of_sums = fold(sum_of_sums);
    }
    if (count % 2 != 0) {
        sum = fold(sum + ((uint32_t)bytes[0] << 8));
        sum_of_sums = fold(sum_of_sums + sum);
    }
    return fold(sum_of_sums) << 16 | fold(sum);
}

typedef uint8_t vector __attribute__((vector_size(16)));
#if defined(__clang__)
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#else
#define LOW(a, b) __builtin_shuffle(a, b, (vector){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23})
#define HIGH(a, b) __builtin_shuffle(a, b, (vector){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31})
#endif

static vector load(const unsigned char *bytes)
{
    vector v;
    memcpy(&v, bytes, sizeof v);
    return v;
}

/* How far ahead memory is prefetched: otherwise each store would wait for its cache line. */
enum { AHEAD = 1024, CACHE_LINE = 64 };

/* Sixteen elements at a time; returns how many are done. Interleaving the first half of the planes with the second,
 * log2(size) times, puts the bytes of each element side by side. Inlined and unrolled for each size, because only then
 * the planes are kept in registers. */
__attribute__((always_inline)) static inline size_t unshuffle_vectors(const unsigned char *shuffled, size_t count,
                                                                      size_t size, unsigned char *elements)
{
    size_t done = 0;
    for (; done + 16 <= count; done += 16, elements += 16 * size) {
        vector planes[8], mixed[8];
        for (size_t line = 0; line < 16 * size; line += CACHE_LINE) __builtin_prefetch(elements + AHEAD + line, 1);
#pragma GCC unroll 8
        for (size_t b = 0; b < size; b++) planes[b] = load(shuffled + b * count + done);
#pragma GCC unroll 3
        for (size_t round = 1; round < size; round *= 2) {
#pragma GCC unroll 4
            for (size_t b = 0; b < size / 2; b++) {
                mixed[2 * b] = LOW(planes[b], planes[b + size / 2]);
                mixed[2 * b + 1] = HIGH(planes[b], planes[b + size / 2]);
            }
#pragma GCC unroll 8
            for (size_t b = 0; b < size; b++)
                planes[b] = mixed[b]; /* cppcheck-suppress uninitvar ; size of them were set */
        }
#pragma GCC unroll 8
        for (size_t b = 0; b < size; b++) memcpy(elements + 16 * b, &planes[b], sizeof planes[b]);
    }
    return done;
}

/* Byte b of every element lies in plane b; bytes beyond the last whole element are as they were. */
void vt_unshuffle(const unsigned char *shuffled, size_t bytes, size_t size, unsigned char *elements)
{
    size_t count = bytes / size, done = 0;
    if (size == 2) done = unshuffle_vectors(shuffled, count, 2, elements);
    if (size == 4) done = unshuffle_vectors(shuffled, count, 4, elements);
    if (size == 8) done = unshuffle_vectors(shuffled, count, 8, elements);
    for (size_t b = 0; b < size; b++)
        for (size_t i = done; i < count; i++) elements[i * size + b] = shuffled[b * count + i];
    memcpy(elements + count * size, shuffled + count * size, bytes - count * size);
}
