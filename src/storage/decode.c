#include "storage/decode.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKSUM_SIZE = 4 };

void vt_decoder_close(vt_decoder *decoder)
{
    free(decoder->stored.bytes);
    free(decoder->turned.bytes);
    for (int i = 0; i < 2; i++) free(decoder->buffers[i].bytes);
    if (decoder->inflater != NULL) libdeflate_free_decompressor(decoder->inflater);
    if (decoder->context != NULL) decoder->close_context(decoder->context);
    *decoder = (vt_decoder){0};
}

vt_status vt_decoder_reserve(vt_decoder_memory *memory, size_t bytes, unsigned char **room)
{
    vt_status status = VT_OK;
    if (memory->bytes == NULL || memory->size < bytes) {
        const size_t rounded = (bytes + 4095) / 4096 * 4096 + 4096;
        free(memory->bytes);
        *memory = (vt_decoder_memory){.bytes = aligned_alloc(64, rounded)};
        VT_CHECK(memory->bytes != NULL, "out of memory for a chunk of %zu bytes", bytes);
        memory->size = rounded;
    }
    *room = memory->bytes;
done:
    return status;
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
        sum = (sum & 0xffff) + (sum >> 16);
        sum_of_sums = (sum_of_sums & 0xffff) + (sum_of_sums >> 16);
    }
    if (count % 2 != 0) {
        sum += (uint32_t)bytes[0] << 8;
        sum_of_sums += sum;
        sum = (sum & 0xffff) + (sum >> 16);
        sum_of_sums = (sum_of_sums & 0xffff) + (sum_of_sums >> 16);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum_of_sums = (sum_of_sums & 0xffff) + (sum_of_sums >> 16);
    return sum_of_sums << 16 | sum;
}

/* The last four bytes are the sum, low byte first. Before 1.6.3 HDF5 wrote it with the bytes of each half swapped, and
 * still reads that. */
static vt_status check_sum(const unsigned char *bytes, size_t *count)
{
    vt_status status = VT_OK;
    VT_CHECK(*count >= CHECKSUM_SIZE, "it is too short for its fletcher32 checksum");
    *count -= CHECKSUM_SIZE;
    const unsigned char *end = bytes + *count;
    uint32_t stored = (uint32_t)end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    uint32_t sum = vt_fletcher32(bytes, *count), old = (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
    VT_CHECK(stored == sum || stored == old, "its fletcher32 checksum is wrong");
done:
    return status;
}

static vt_status inflate_bytes(vt_decoder *decoder, const unsigned char *bytes, size_t *count, unsigned char *result,
                               size_t capacity)
{
    vt_status status = VT_OK;
    size_t length = 0;
    if (decoder->inflater == NULL) decoder->inflater = libdeflate_alloc_decompressor();
    VT_CHECK(decoder->inflater != NULL, "out of memory for decompression");
    enum libdeflate_result outcome =
        libdeflate_zlib_decompress(decoder->inflater, bytes, *count, result, capacity, &length);
    VT_CHECK(outcome == LIBDEFLATE_SUCCESS, "its gzip data are damaged");
    *count = length;
done:
    return status;
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

vt_status vt_decode(vt_decoder *decoder, const vt_pipeline *pipeline, uint32_t skipped, unsigned char *stored,
                    size_t stored_size, size_t decoded_size, void *place, unsigned char **decoded)
{
    vt_status status = VT_OK;
    const size_t capacity = decoded_size + (size_t)pipeline->count * CHECKSUM_SIZE;
    unsigned char *bytes = stored;
    size_t count = stored_size;
    int other = 0; /* the buffer that `bytes` is not in */
    for (int i = pipeline->count - 1; i >= 0; i--) {
        if ((skipped >> i & 1) != 0) continue;
        if (pipeline->filters[i] == VT_FILTER_FLETCHER32) {
            VT_TRY(check_sum(bytes, &count));
            continue;
        }
        bool gzip = pipeline->filters[i] == VT_FILTER_GZIP;
        bool is_last = place != NULL && (~skipped & ((UINT32_C(1) << i) - 1)) == 0;
        size_t room = is_last ? decoded_size : capacity;
        VT_CHECK(gzip || count <= room, "it holds more bytes than its shape needs");
        unsigned char *result = place;
        if (!is_last) VT_TRY(vt_decoder_reserve(&decoder->buffers[other], capacity, &result));
        if (gzip)
            VT_TRY(inflate_bytes(decoder, bytes, &count, result, room));
        else
            vt_unshuffle(bytes, count, pipeline->element_size, result);
        bytes = result;
        other = 1 - other;
    }
    VT_CHECK(count == decoded_size, "it holds %zu bytes, but its shape needs %zu", count, decoded_size);
    if (place != NULL && bytes != place) bytes = memcpy(place, bytes, decoded_size);
    *decoded = bytes;
done:
    return status;
}

bool vt_pipeline_is_gzip(const vt_pipeline *pipeline)
{
    for (int i = 0; i < pipeline->count; i++)
        if (pipeline->filters[i] == VT_FILTER_FLETCHER32) return false;
    return pipeline->count > 0 && pipeline->filters[pipeline->count - 1] == VT_FILTER_GZIP;
}
