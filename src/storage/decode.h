/* Undoes what a chunk's bytes went through when they were stored, so that several threads can do it. Checksums, gzip
 * and shuffle of HDF5 are those of its file format specification, section "Filter Pipeline", and of its sources
 * H5Zfletcher32.c, H5Zdeflate.c and H5Zshuffle.c; each of Zarr's compressors is one call of its library. */
#ifndef VT_STORAGE_DECODE_H
#define VT_STORAGE_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum {
    VT_FILTER_FLETCHER32, /* HDF5's: the first three */
    VT_FILTER_SHUFFLE,
    VT_FILTER_DEFLATE,
    VT_FILTER_BLOSC, /* Zarr's from here on */
    VT_FILTER_ZSTD,
    VT_FILTER_LZ4,
    VT_FILTER_GZIP,
    VT_FILTER_ZLIB,
    VT_FILTER_CRC32C,
    VT_FILTER_KINDS
} vt_filter;

enum { VT_FILTERS = 8 };

typedef struct {
    int count;
    vt_filter filters[VT_FILTERS]; /* in the order in which they were applied */
    size_t element_size;           /* of shuffle */
} vt_pipeline;

/* Memory that grows; starts as {0}. */
typedef struct {
    unsigned char *bytes;
    size_t size;
} vt_decoder_memory;

/* What one thread uses; starts as {0}. `stored` is for the stored bytes of a chunk, `box` and `turned` for the reader.
 */
typedef struct {
    vt_decoder_memory stored, buffers[2], box, turned;
    void *inflater;
    void *context; /* of zstd */
} vt_decoder;

void vt_decoder_close(vt_decoder *decoder);

/* *room: at least `bytes` of the memory; what it held is lost. */
vt_status vt_decoder_reserve(vt_decoder_memory *memory, size_t bytes, unsigned char **room);

/* to [size] = the chunk that lies in `stored`, [stored_size], which may be `to` itself where no filter has to be
 * undone; bit i of `skipped` says that filter i was not applied to it. The error is a cause: "its fletcher32 checksum
 * is wrong".
 */
vt_status vt_decode(vt_decoder *decoder, const vt_pipeline *pipeline, uint32_t skipped, const unsigned char *stored,
                    size_t stored_size, size_t size, unsigned char *to);

/* By its name in Zarr's metadata; VT_FILTER_KINDS: it is none of them. */
vt_filter vt_filter_of_zarr(const char *name);

/* Fails where the program was built without the library of one of them. The error is a cause. */
vt_status vt_pipeline_check(const vt_pipeline *pipeline);

/* Is HDF5's gzip the first filter to be undone, and is there no checksum? */
bool vt_pipeline_is_gzip(const vt_pipeline *pipeline);

/* HDF5's own. */
uint32_t vt_fletcher32(const unsigned char *bytes, size_t count);
void vt_unshuffle(const unsigned char *shuffled, size_t bytes, size_t element_size, unsigned char *elements);

#endif
