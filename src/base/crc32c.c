#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Does the processor have an instruction for eight bytes at once? It is as fast as the system copies a file's bytes. */
static bool has_instruction(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return false;
#endif
}

static uint32_t add_eight(uint32_t crc, uint64_t bytes)
{
#if defined(__x86_64__)
    uint64_t wide = crc;
    __asm__("crc32q %1, %0" : "+r"(wide) : "r"(bytes));
    return (uint32_t)wide;
#elif defined(__aarch64__)
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(bytes));
    return crc;
#else
    (void)bytes;
    return crc;
#endif
}

uint32_t vt_crc32c_more(uint32_t before, const void *data, size_t size)
{
    /* Remainders of the 16 values of half a byte, polynomial 0x1EDC6F41 with its bits reversed. */
    static const uint32_t halves[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *bytes = data;
    const bool has = has_instruction();
    uint32_t crc = ~before;
    size_t i = 0;
    for (uint64_t eight; i + sizeof eight <= size && has; i += sizeof eight) {
        memcpy(&eight, bytes + i, sizeof eight);
        crc = add_eight(crc, eight);
    }
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
