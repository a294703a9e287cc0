/* What Zarr's chunks are compressed with: each codec is a call of its own library. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "storage/zarr_inside.h"
#ifdef VT_HAS_BLOSC
#include <blosc.h>
#endif
#ifdef VT_HAS_ZSTD
#include <zstd.h>
#endif
#ifdef VT_HAS_LZ4
#include <lz4.h>
#endif

enum { CHECKSUM_SIZE = 4 };

/* A step: `count` bytes become *made ones, at most `room`; false: they are damaged. */
typedef struct {
    vt_decoder *decoder;
    const unsigned char *bytes;
    size_t count;
    unsigned char *result;
    size_t room, made;
} step;

static bool undo_deflate(step *own, bool with_gzip_header)
{
    if (own->decoder->inflater == NULL) own->decoder->inflater = libdeflate_alloc_decompressor();
    if (own->decoder->inflater == NULL) return false;
    return (with_gzip_header ? libdeflate_gzip_decompress
                             : libdeflate_zlib_decompress)(own->decoder->inflater, own->bytes, own->count, own->result,
                                                           own->room, &own->made) == LIBDEFLATE_SUCCESS;
}

static bool undo_gzip(step *own)
{
    return undo_deflate(own, true);
}

static bool undo_zlib(step *own)
{
    return undo_deflate(own, false);
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
static void close_zstd(void *context)
{
    ZSTD_freeDCtx(context);
}

static bool undo_zstd(step *own)
{
    vt_decoder *decoder = own->decoder;
    if (decoder->context == NULL) decoder->context = ZSTD_createDCtx();
    if (decoder->context == NULL) return false;
    decoder->close_context = close_zstd;
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

static const struct {
    const char *name, *library, *package;
    bool (*undo)(step *own);
} rows[VT_CODEC_KINDS] = {
    [VT_CODEC_BLOSC] = {"blosc", "c-blosc", "libblosc-dev", undo_blosc},
    [VT_CODEC_ZSTD] = {"zstd", "libzstd", "libzstd-dev", undo_zstd},
    [VT_CODEC_LZ4] = {"lz4", "liblz4", "liblz4-dev", undo_lz4},
    [VT_CODEC_GZIP] = {"gzip", "libdeflate", "libdeflate-dev", undo_gzip},
    [VT_CODEC_ZLIB] = {"zlib", "libdeflate", "libdeflate-dev", undo_zlib},
    [VT_CODEC_CRC32C] = {.name = "crc32c"},
};

vt_status vt_codecs_check(const vt_codecs *codecs)
{
    vt_status status = VT_OK;
    for (int i = 0; i < codecs->count; i++)
        VT_CHECK(rows[codecs->kinds[i]].undo != NULL || codecs->kinds[i] == VT_CODEC_CRC32C,
                 "it is compressed with %s, which this vitrain was built without; install %s (%s on Debian) and build "
                 "it again",
                 rows[codecs->kinds[i]].name, rows[codecs->kinds[i]].library, rows[codecs->kinds[i]].package);
done:
    return status;
}

/* The last four bytes are the checksum, low byte first. */
static vt_status check_sum(const unsigned char *bytes, size_t *count)
{
    vt_status status = VT_OK;
    VT_CHECK(*count >= CHECKSUM_SIZE, "it is too short for its crc32c checksum");
    *count -= CHECKSUM_SIZE;
    const unsigned char *end = bytes + *count;
    const uint32_t stored = (uint32_t)end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    VT_CHECK(vt_crc32c(bytes, *count) == stored, "its crc32c checksum is wrong");
done:
    return status;
}

/* Bytes that undoing codec i may give: all of the array, and what the codecs before it added. */
static size_t room_after(const vt_codecs *codecs, int i, size_t decoded_size)
{
    size_t room = decoded_size;
    for (int before = 0; before < i; before++)
        room += codecs->kinds[before] == VT_CODEC_CRC32C ? CHECKSUM_SIZE : decoded_size / 8 + 65536;
    return room;
}

vt_status vt_codecs_decode(const vt_codecs *codecs, vt_decoder *decoder, unsigned char *stored, size_t stored_size,
                           size_t decoded_size, void *place, unsigned char **decoded)
{
    vt_status status = VT_OK;
    step own = {.decoder = decoder, .bytes = stored, .count = stored_size};
    unsigned char *bytes = stored;
    int other = 0; /* the buffer that `bytes` is not in */
    for (int i = codecs->count - 1; i >= 0; i--) {
        if (codecs->kinds[i] == VT_CODEC_CRC32C) {
            VT_TRY(check_sum(bytes, &own.count));
            continue;
        }
        own.bytes = bytes;
        own.room = room_after(codecs, i, decoded_size);
        own.result = place;
        if (place == NULL || i > 0) {
            VT_TRY(vt_decoder_reserve(&decoder->buffers[other], own.room + 1, &own.result));
            other = 1 - other;
        }
        VT_CHECK(rows[codecs->kinds[i]].undo(&own), "its %s data are damaged, or hold more than its shape needs",
                 rows[codecs->kinds[i]].name);
        bytes = own.result;
        own.count = own.made;
    }
    VT_CHECK(own.count == decoded_size, "it holds %zu bytes, but its shape needs %zu", own.count, decoded_size);
    if (place != NULL && bytes != place) bytes = memcpy(place, bytes, decoded_size);
    *decoded = bytes;
done:
    return status;
}
