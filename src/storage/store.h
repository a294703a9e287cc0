/* Stores: files, or directories, that hold named arrays of numbers with attributes. Each kind of store is one file and
 * one row of the table in config/kinds.def. Any thread may call any of these functions; those that a library allows one
 * thread at a time wait for each other. */
#ifndef VT_STORAGE_STORE_H
#define VT_STORAGE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "storage/decode.h"
#include "storage/unpack.h"

typedef struct vt_store_kind vt_store_kind;

/* Where a chunk lies. */
typedef struct {
    int64_t address; /* -1: never written */
    uint32_t size;   /* 0: not looked up yet */
    uint32_t skipped_filters;
} vt_chunk_place;

/* What every kind's own struct begins with. */
typedef struct {
    const vt_store_kind *kind;
    char *path;
    int descriptor; /* of the file that holds the arrays */
    int64_t size;   /* its bytes when it was opened */
    char *oddity;   /* what its user should know, in a sentence; or NULL */
} vt_store;

typedef enum { VT_LAYOUT_OTHER, VT_LAYOUT_CONTIGUOUS, VT_LAYOUT_CHUNKED } vt_layout_kind;

enum { VT_ARRAY_RANK = 8 };

/* What every kind's own struct of an array begins with. */
typedef struct {
    const vt_store *store;
    char *name;
    int rank; /* may be more than VT_ARRAY_RANK; `extent` then has the first ones */
    int64_t extent[VT_ARRAY_RANK];
    vt_element element; /* the type in which `read` returns its numbers, and in which they are stored unless there is an
                           obstacle. NONE: it holds something else … */
    const char *type;   /* … which the store calls so; NULL: it has no short name */
    bool swapped;
    size_t element_size; /* bytes, as stored */
    vt_layout_kind layout;
    char *obstacle; /* why only the store's library can read it ("'t2m' is compressed with 'lzf'"); NULL: no reason is
                       known */
    /* by lay_out */
    int64_t stored_bytes, address; /* of a contiguous array, -1: never written */
    int64_t chunk[VT_ARRAY_RANK];
    int64_t stride[VT_ARRAY_RANK]; /* elements of a decoded chunk from one place along a dimension to the next */
    vt_pipeline pipeline;
    char *storage;          /* its chunks and codecs in words; NULL: nobody asked for them */
    vt_chunk_place *places; /* of all chunks, for vt_array_find_chunk; NULL: none was looked up */
    unsigned char fill[16]; /* an element of a chunk that was never written, as it would be stored */
} vt_array;

/* Names and errors are of one store. Functions that return a status note a whole sentence, unless they say "a cause".
 */
struct vt_store_kind {
    const char *name;
    bool (*takes)(const char *path); /* does the path name one? Not asked of the table's first row */
    bool is_directory;

    vt_status (*open)(const char *path, vt_store **store);
    void (*close)(vt_store *store); /* releases what the kind itself added; NULL: nothing */
    /* Fails if the store was written anew since it was opened. NULL: the size of its file tells. */
    vt_status (*check_unchanged)(const vt_store *store);
    bool (*has_array)(const vt_store *store, const char *name); /* finding it may still fail */

    /* Adds the names, from the group on, of the arrays in a group ("" is the root), or with `deeper` also of those
     * below it. Finding one may fail. */
    void (*list)(const vt_store *store, const char *group, bool deeper, vt_names *names);

    /* Fails when the array, or what it holds, lies in another file. */
    vt_status (*find_array)(const vt_store *store, const char *name, vt_array **array);
    void (*close_array)(vt_array *array); /* the same of an array */

    /* Dimension i of the array becomes what was its dimension order[i]; before lay_out. NULL: none can be moved. */
    void (*reorder)(vt_array *array, const int *order);

    /* How the array lies in its file. Fails when a filter is missing. */
    vt_status (*lay_out)(vt_array *array);
    /* Where the chunk that begins with element `first` lies. The error is a cause. NULL: see load_chunk. */
    vt_status (*locate_chunk)(const vt_array *array, const int64_t *first, vt_chunk_place *entry);
    /* Reads and decodes the chunk that begins with element `first` to `to` [bytes]; one that was never written holds
     * the fill value. Any thread. The error is a cause. NULL: the chunk lies where locate_chunk says, and `pipeline`
     * says how to decode it. */
    vt_status (*load_chunk)(const vt_array *array, const int64_t *first, vt_decoder *decoder, size_t bytes,
                            unsigned char *to);
    /* -1: not known. Before there are threads. */
    int64_t (*chunks_written)(const vt_array *array);
    /* Lets the library keep `bytes` bytes of decoded chunks; one time has `chunks` chunks. NULL: it keeps none. */
    vt_status (*keep_decoded)(vt_array *array, int64_t chunks, int64_t bytes);

    /* Reads the box [start, start + count) as the array's elements, in this machine's byte order, or as float64. The
     * error is a cause. */
    vt_status (*read)(const vt_array *array, const int64_t *start, const int64_t *count, bool as_doubles, void *values);

    /* Up to `most` numbers of an attribute; 0: there is no such attribute; -1: it is something else, or damaged. */
    int (*attribute_numbers)(const vt_array *array, const char *name, int most, double *values, bool *is_float);
    /* Adds the texts of an attribute, none if there is no such attribute; false: it is something else, or damaged. */
    bool (*attribute_texts)(const vt_array *array, const char *name, vt_names *texts);
    /* The value of elements that were never written; 0 also if the array's writer chose none. NULL: always 0. */
    double (*fill_value)(const vt_array *array);

    /* netCDF's dimensions: the name of one, "" if it has none; is an array the scale of dimension `dimension` of
     * another one (NULL: of any)? */
    void (*dimension_name)(const vt_array *array, int dimension, char *name, size_t size);
    bool (*is_scale_of)(const vt_array *scale, const vt_array *array, int dimension);
};

/* Opens a store of the kind that takes the path. *store may be NULL in vt_store_close, *array in vt_array_close. */
vt_status vt_store_open(const char *path, vt_store **store);
bool vt_store_is_directory(const char *path); /* of a kind whose stores are directories */
void vt_store_close(vt_store **store);

/* memory [bytes] = those at `offset` of the file that holds the arrays. The error is a cause; *got: how many could be
 * read. Any thread. */
vt_status vt_store_read(const vt_store *store, int64_t offset, int64_t bytes, void *memory, int64_t *got);

vt_status vt_array_find(const vt_store *store, const char *name, vt_array **array);
void vt_array_close(vt_array **array);

/* Values that were never written, because the program that wrote the file was ended early, read as the fill value
 * (mostly 0), as if they were data. Fails if nothing at all was written, and warns if chunks are missing. After
 * lay_out, before there are threads. */
vt_status vt_array_check_written(const vt_array *array);

/* Where the chunk that begins with element `first` lies; it is looked up once. Zeros where the store finds chunks
 * itself (load_chunk). Any thread. The error is a cause. */
vt_status vt_array_find_chunk(vt_array *array, const int64_t *first, vt_chunk_place *found);
/* Reads and decodes that chunk as load_chunk does, also where it lies at `place`. */
vt_status vt_array_load_chunk(const vt_array *array, const int64_t *first, const vt_chunk_place *place,
                              vt_decoder *decoder, size_t bytes, unsigned char *to);
void vt_array_fill(const vt_array *array, size_t bytes, unsigned char *memory);

/* Tells an array from those of other stores, and of this one in another state: a hash. */
uint64_t vt_array_key(const vt_array *array);

/* The length of a one-dimensional array; 0 if there is none, or it can't be read. */
int64_t vt_array_length(const vt_store *store, const char *name);

/* Name and version of the HDF5 library that the program runs with: "HDF5 1.10.8". */
enum { VT_HDF5_NAME = 32 };
const char *vt_hdf5_name(char name[VT_HDF5_NAME]);

#endif
