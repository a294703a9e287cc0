#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
/* By the processor's instruction, eight bytes at once: as fast as the system copies a file's bytes. Returns how many
 * bytes it took. */
__attribute__((target("sse4.2"))) static size_t take_eights(const uint8_t *bytes, size_t size, uint32_t *crc)
{
    uint64_t wide = *crc, word;
    size_t i = 0;
    for (; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    *crc = (uint32_t)wide;
    return i;
}
#endif

uint32_t vt_crc32c_more(uint32_t before, const void *data, size_t size)
{
    /* Remainders of the 16 values of half a byte, polynomial 0x1EDC6F41 with its bits reversed. */
    static const uint32_t halves[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *bytes = data;
    uint32_t crc = ~before;
    size_t i = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) i = take_eights(bytes, size, &crc);
#endif
    for (; i < size; i++) {
        crc ^= bytes[i];
        crc = (crc >> 4) ^ halves[crc & 15];
        crc = (crc >> 4) ^ halves[crc & 15];
    }
    return ~crc;
}

uint32_t vt_crc32c(const void *data, size_t size)
{
    return vt_crc32c_more(0, data, size);
}

uint32_t vt_crc32c_masked(const void *data, size_t size)
{
    uint32_t crc = vt_crc32c(data, size);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}
