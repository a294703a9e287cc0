/* The inside of a Zarr store, for zarr_store.c (with shape and type of an array), zarr_nodes.c (which arrays it holds),
 * zarr_storage.c (how an array is stored) and zarr_chunks.c (reading). The formats are those of the Zarr
 * specifications, versions 2 and 3 (zarr-specs.readthedocs.io), and of numcodecs. */
#ifndef VT_STORAGE_ZARR_INSIDE_H
#define VT_STORAGE_ZARR_INSIDE_H

#include <jansson.h>
#include <pthread.h>

#include "storage/store.h"

enum { VT_ZARR_KEY = 512 };

/* An array or a group of a store, as its metadata describe it. */
typedef struct {
    char *name;         /* from the root on: "forecast/t2m" */
    json_t *metadata;   /* of an array: .zarray or zarr.json */
    json_t *attributes; /* NULL: none */
    /* It is to be read: when its directory had changed last, and `c` in it, where version 3 has its chunks.
     * Chunks that are removed, or replaced as zarr does it, change one of them, if they lie right in it. */
    bool is_used;
    int64_t changed[2];
} vt_zarr_node;

typedef struct {
    vt_store store; /* the descriptor is the directory's */
    int version;
    json_t *attributes; /* of the root; NULL: none */
    vt_zarr_node *nodes;
    int64_t node_count;
    char *metadata_name;             /* the file of the root's metadata: they must stay what they were */
    int64_t metadata_bytes, changed; /* its size, and when it was written */
} vt_zarr_store;

/* Where the chunks of a shard lie: pairs of offset and size. */
typedef struct {
    int64_t bytes, changed; /* the shard's, when this was read */
    uint64_t *places;       /* [2 · chunks of a shard]; NULL: the shard isn't there */
    bool known;
} vt_shard_index;

typedef struct {
    vt_array array;
    vt_zarr_node *node;
    int stored_as[VT_ARRAY_RANK]; /* dimension i of the array is dimension stored_as[i] of the store */
    /* in the store's order of dimensions: */
    int64_t extent[VT_ARRAY_RANK], chunk[VT_ARRAY_RANK], stride[VT_ARRAY_RANK];
    int64_t shard[VT_ARRAY_RANK]; /* of a file: like `chunk` unless is_sharded */
    char separator;
    bool has_prefix;   /* "c/0/0" */
    bool has_cells;    /* anemoi's array: its last two dimensions, [1, cells], are read as a grid */
    const char *dates; /* the type is numpy's datetime64 in these units; else NULL */
    bool is_sharded, index_first;
    vt_pipeline index_codecs; /* of a shard's index; those of chunks are array.pipeline */
    vt_shard_index *shards;   /* [shard_count], made when the first is needed */
    int64_t shard_count;
    pthread_mutex_t lock; /* guards `shards` */
} vt_zarr_array;

/* Reads what is in the store: from consolidated metadata, or from the files of each array. */
vt_status vt_zarr_read_nodes(vt_zarr_store *store);
void vt_zarr_close_nodes(vt_store *store);

/* Fails if version 3's metadata of an array or a group have a key that isn't known here, and do not say of it that it
 * need not be understood. The error is a cause. */
vt_status vt_zarr_check_extensions(const json_t *metadata);

/* A list of `rank` whole numbers from `least` on; `what` it is, for the cause. */
vt_status vt_zarr_sizes(const json_t *list, int rank, int64_t least, const char *what, int64_t *sizes);
/* Chunks, codecs and fill value of an array that holds numbers, in words in *storage (malloc'd). The error is a cause.
 */
vt_status vt_zarr_take_storage(vt_zarr_array *own, int version, char **storage);

/* The text of a key; "(without a name)": there is none. */
const char *vt_zarr_name(const json_t *json, const char *key);

/* A number of the metadata: also "NaN", "Infinity", "-Infinity", "0x7fc00000" (its bits) and, as xarray writes them,
 * its eight bytes in base64. */
bool vt_zarr_number(const json_t *json, const vt_array *array, double *value);

/* See vt_store_kind. */
vt_status vt_zarr_load_chunk(const vt_array *array, const int64_t *first, vt_decoder *decoder, size_t bytes,
                             unsigned char *to);
int64_t vt_zarr_chunks_written(const vt_array *array);
vt_status vt_zarr_read(const vt_array *array, const int64_t *start, const int64_t *count, bool as_doubles,
                       void *values);

#endif
