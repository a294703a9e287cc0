/* CRC-32C (Castagnoli; RFC 3720, appendix B.4), and the masked form of it that TFRecord files hold. */
#ifndef VT_BASE_CRC32C_H
#define VT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t vt_crc32c(const void *data, size_t size);

/* Of data that come in pieces: `before` is the checksum of those before, 0 for the first. */
uint32_t vt_crc32c_more(uint32_t before, const void *data, size_t size);

/* Rotated and shifted, so that a checksum of data that hold checksums stays a good one
 * (tensorflow/core/lib/hash/crc32c.h). */
uint32_t vt_crc32c_masked(const void *data, size_t size);

#endif
