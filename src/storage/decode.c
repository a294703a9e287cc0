#include "storage/decode.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#ifdef VT_HAS_BLOSC
#include <blosc.h>
#endif
#ifdef VT_HAS_ZSTD
#include <zstd.h>
#endif
#ifdef VT_HAS_LZ4
#include <lz4.h>
#endif

#include "base/crc32c.h"
#include "base/memory.h"

enum { CHECKSUM_SIZE = 4 };

/* ---- memory ---- */

void vt_decoder_close(vt_decoder *decoder)
{
    free(decoder->stored.bytes);
    free(decoder->box.bytes);
    free(decoder->turned.bytes);
    for (int i = 0; i < 2; i++) free(decoder->buffers[i].bytes);
    if (decoder->inflater != NULL) libdeflate_free_decompressor(decoder->inflater);
#ifdef VT_HAS_ZSTD
    ZSTD_freeDCtx(decoder->context);
#endif
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

/* ---- HDF5's own fletcher32 and shuffle ---- */

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

/* Makes elements of a type's size of their bytes: byte b of every element lies in plane b, low bytes first. Compilers
 * make vectors of it only with a size that is known. */
#define DEFINE_UNSHUFFLE(NAME, TYPE)                                                                                   \
    static void NAME(const unsigned char *shuffled, size_t count, unsigned char *elements)                             \
    {                                                                                                                  \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                                         \
        {                                                                                                              \
            TYPE element = 0;                                                                                          \
            _Pragma("GCC unroll 8") /* else there are no vectors */                                                    \
                for (size_t b = 0; b < sizeof element; b++) element =                                                  \
                    (TYPE)(element | (TYPE)((TYPE)shuffled[b * count + i] << 8 * b));                                  \
            memcpy(elements + i * sizeof element, &element, sizeof element);                                           \
        }                                                                                                              \
    }

DEFINE_UNSHUFFLE(unshuffle_2, uint16_t)
DEFINE_UNSHUFFLE(unshuffle_4, uint32_t)
DEFINE_UNSHUFFLE(unshuffle_8, uint64_t)

/* Bytes beyond the last whole element are as they were. */
void vt_unshuffle(const unsigned char *shuffled, size_t bytes, size_t size, unsigned char *elements)
{
    const size_t count = bytes / size;
    if (size == 2) {
        unshuffle_2(shuffled, count, elements);
    } else if (size == 4) {
        unshuffle_4(shuffled, count, elements);
    } else if (size == 8) {
        unshuffle_8(shuffled, count, elements);
    } else {
        for (size_t b = 0; b < size; b++)
            for (size_t i = 0; i < count; i++) elements[i * size + b] = shuffled[b * count + i];
    }
    memcpy(elements + count * size, shuffled + count * size, bytes - count * size);
}

/* ---- filters ---- */

/* A step: `count` bytes become *made ones, at most `room`; false: they are damaged. */
typedef struct {
    vt_decoder *decoder;
    vt_filter filter;
    const unsigned char *bytes;
    size_t count, element_size;
    unsigned char *result;
    size_t room, made;
} step;

static bool undo_shuffle(step *own)
{
    own->made = own->count;
    if (own->count <= own->room) vt_unshuffle(own->bytes, own->count, own->element_size, own->result);
    return own->count <= own->room;
}

static bool undo_deflate(step *own)
{
    if (own->decoder->inflater == NULL) own->decoder->inflater = libdeflate_alloc_decompressor();
    if (own->decoder->inflater == NULL) vt_memory_exhausted(16 << 10, "decompression");
    return (own->filter == VT_FILTER_GZIP ? libdeflate_gzip_decompress : libdeflate_zlib_decompress)(
               own->decoder->inflater, own->bytes, own->count, own->result, own->room, &own->made) ==
           LIBDEFLATE_SUCCESS;
}

#ifdef VT_HAS_BLOSC
static bool undo_blosc(step *own)
{
    if (blosc_cbuffer_validate(own->bytes, own->count, &own->made) < 0 || own->made > own->room) return false;
    return own->made == 0 ||
           blosc_decompress_ctx(own->bytes, own->result, own->made, 1) == (int)own->made; /* on this thread alone */
}
#else
#define undo_blosc NULL
#endif

#ifdef VT_HAS_ZSTD
static bool undo_zstd(step *own)
{
    vt_decoder *decoder = own->decoder;
    if (decoder->context == NULL) decoder->context = ZSTD_createDCtx();
    if (decoder->context == NULL) return false;
    own->made = ZSTD_decompressDCtx(decoder->context, own->result, own->room, own->bytes, own->count);
    return !ZSTD_isError(own->made);
}
#else
#define undo_zstd NULL
#endif

#ifdef VT_HAS_LZ4
/* A block without a frame behind its decoded size in four bytes, low byte first (numcodecs). */
static bool undo_lz4(step *own)
{
    if (own->count < 4 || own->count > INT32_MAX) return false;
    const int room = own->room > INT32_MAX ? INT32_MAX : (int)own->room;
    const int made = LZ4_decompress_safe((const char *)own->bytes + 4, (char *)own->result, (int)own->count - 4, room);
    own->made = made > 0 ? (size_t)made : 0;
    return made >= 0;
}
#else
#define undo_lz4 NULL
#endif

/* Before 1.6.3 HDF5 wrote the sum with the bytes of each half swapped, and still reads that. */
static bool is_fletcher32(uint32_t stored, const unsigned char *bytes, size_t count)
{
    const uint32_t sum = vt_fletcher32(bytes, count);
    return stored == sum || stored == ((sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8);
}

static bool is_crc32c(uint32_t stored, const unsigned char *bytes, size_t count)
{
    return stored == vt_crc32c(bytes, count);
}

/* Either `undo` makes other bytes of the stored ones, or a checksum follows them. */
static const struct {
    const char *name, *library, *package;
    bool (*undo)(step *own);
    bool (*is_sum)(uint32_t stored, const unsigned char *bytes, size_t count);
} rows[VT_FILTER_KINDS] = {
    [VT_FILTER_FLETCHER32] = {.name = "fletcher32", .is_sum = is_fletcher32},
    [VT_FILTER_SHUFFLE] = {.name = "shuffle", .undo = undo_shuffle},
    [VT_FILTER_DEFLATE] = {.name = "gzip", .undo = undo_deflate},
    [VT_FILTER_BLOSC] = {"blosc", "c-blosc", "libblosc-dev", undo_blosc, NULL},
    [VT_FILTER_ZSTD] = {"zstd", "libzstd", "libzstd-dev", undo_zstd, NULL},
    [VT_FILTER_LZ4] = {"lz4", "liblz4", "liblz4-dev", undo_lz4, NULL},
    [VT_FILTER_GZIP] = {.name = "gzip", .undo = undo_deflate},
    [VT_FILTER_ZLIB] = {.name = "zlib", .undo = undo_deflate},
    [VT_FILTER_CRC32C] = {.name = "crc32c", .is_sum = is_crc32c},
};

vt_filter vt_filter_of_zarr(const char *name)
{
    int filter = VT_FILTER_BLOSC;
    while (filter < VT_FILTER_KINDS && strcasecmp(rows[filter].name, name) != 0) filter++;
    return (vt_filter)filter;
}

vt_status vt_pipeline_check(const vt_pipeline *pipeline)
{
    vt_status status = VT_OK;
    for (int i = 0; i < pipeline->count; i++) {
        const vt_filter filter = pipeline->filters[i];
        VT_CHECK(rows[filter].undo != NULL || rows[filter].is_sum != NULL,
                 "it is compressed with %s, which this vitrain was built without; install %s (%s on Debian) and build "
                 "it again",
                 rows[filter].name, rows[filter].library, rows[filter].package);
    }
done:
    return status;
}

bool vt_pipeline_is_gzip(const vt_pipeline *pipeline)
{
    for (int i = 0; i < pipeline->count; i++)
        if (rows[pipeline->filters[i]].is_sum != NULL) return false;
    return pipeline->count > 0 && pipeline->filters[pipeline->count - 1] == VT_FILTER_DEFLATE;
}

/* ---- chunks ---- */

/* The last four bytes are the checksum, low byte first. */
static vt_status check_sum(vt_filter filter, const unsigned char *bytes, size_t *count)
{
    vt_status status = VT_OK;
    VT_CHECK(*count >= CHECKSUM_SIZE, "it is too short for its %s checksum", rows[filter].name);
    *count -= CHECKSUM_SIZE;
    const unsigned char *end = bytes + *count;
    const uint32_t stored = (uint32_t)end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    VT_CHECK(rows[filter].is_sum(stored, bytes, *count), "its %s checksum is wrong", rows[filter].name);
done:
    return status;
}

/* Bytes that undoing filter i may give: all of the array, and what the filters before it added. */
static size_t room_after(const vt_pipeline *pipeline, int i, size_t decoded_size)
{
    size_t room = decoded_size;
    for (int before = 0; before < i; before++)
        room += rows[pipeline->filters[before]].is_sum != NULL ? CHECKSUM_SIZE : decoded_size / 8 + 65536;
    return room;
}

vt_status vt_decode(vt_decoder *decoder, const vt_pipeline *pipeline, uint32_t skipped, const unsigned char *stored,
                    size_t stored_size, size_t size, unsigned char *to)
{
    vt_status status = VT_OK;
    step own = {.decoder = decoder, .bytes = stored, .count = stored_size, .element_size = pipeline->element_size};
    int other = 0; /* the buffer that own.bytes is not in */
    for (int i = pipeline->count - 1; i >= 0; i--) {
        const vt_filter filter = pipeline->filters[i];
        if ((skipped >> i & 1) != 0) continue;
        if (rows[filter].is_sum != NULL) {
            VT_TRY(check_sum(filter, own.bytes, &own.count));
            continue;
        }
        const bool is_last = (~skipped & ((UINT32_C(1) << i) - 1)) == 0;
        own.filter = filter;
        own.room = is_last ? size : room_after(pipeline, i, size);
        own.result = to;
        if (!is_last) VT_TRY(vt_decoder_reserve(&decoder->buffers[other], own.room + 1, &own.result));
        VT_CHECK(rows[filter].undo(&own), "its %s data are damaged, or hold more than its shape needs",
                 rows[filter].name);
        own.bytes = own.result;
        own.count = own.made;
        other = 1 - other;
    }
    VT_CHECK(own.count == size, "it holds %zu bytes, but its shape needs %zu", own.count, size);
    if (own.bytes != to) memcpy(to, own.bytes, size);
done:
    return status;
}
