/* The registry of parameters: each is described once (name, shape, how it is split over ranks, over which ranks its
 * gradient is a partial sum, how it starts), and initialisation, gradient reduction, norms, ZeRO, tables and
 * checkpoints all read that description.
 *
 * Storage. Values and gradients are one block each, cut into buckets: runs of parameters whose gradients are reduced
 * together, a multiple of the shards long. ZeRO (Rajbhandari et al. 2020) splits each bucket into equal slices, one a
 * shard; a block that is "sliced" holds only this shard's slices, one behind another. Frozen parameters have buckets of
 * their own behind all others, which only the block of values holds. */
#ifndef VT_MODEL_PARAMETERS_H
#define VT_MODEL_PARAMETERS_H

#include "backend/backend.h"
#include "parallel/region.h"

typedef enum {
    VT_START_VALUE,  /* `spread` itself */
    VT_START_NORMAL, /* normal with standard deviation `spread`, cut at ±2 (absolute) */
    VT_START_UNCUT,  /* the same, not cut */
    VT_START_UNIFORM /* uniform in ±spread */
} vt_start;

enum { VT_PARAMETER_DIMENSIONS = 5, VT_PARAMETER_NAME = 96 }; /* five: the weight of a convolution in 3-D */

typedef struct {
    char name[VT_PARAMETER_NAME]; /* as in the PyTorch state_dict */
    int64_t index;                /* among the registered ones */
    int dimensions;
    int64_t shape[VT_PARAMETER_DIMENSIONS]; /* of the whole tensor */
    int64_t whole_count;                    /* its elements */
    int64_t local[VT_PARAMETER_DIMENSIONS]; /* of this rank's part */
    int split;                              /* the dimension that is split; -1: none, every rank has all of it */
    int64_t first;                          /* where this rank's part begins on that dimension */
    unsigned split_axes;                    /* over which axes it is split */
    unsigned sum_axes;                      /* its gradient is a partial sum over these, besides the data axis */
    bool
        joined; /* lies right behind the one registered before, with the same split, so that a layer uses both as one */
    /* The tensor that files have, of which this is the rows from file_row on, and its rows; "": this one. */
    char file_name[VT_PARAMETER_NAME];
    int64_t file_row, file_rows;
    int64_t unit;     /* the block of layers it belongs to */
    bool frozen;      /* it stays as it is: no gradient, no moments (option freeze) */
    bool comes_later; /* a run may be resumed from a checkpoint that lacks it; then it begins anew */
    vt_start start;
    double spread;
    int64_t count;  /* elements of this rank's part; 0: other ranks have its unit */
    int64_t offset; /* of the first element in a whole block */
    int64_t bucket; /* that it lies in */
    float *value;   /* of this rank's part; with ZeRO stage 3 only while its unit is needed */
    uint16_t *half; /* the value in 16 bits, of the last vt_parameters_refresh; NULL: not kept */
    vt_type half_type;
    float *gradient; /* with ZeRO stage 2 and 3 only in its unit's backward; NULL: it is frozen */
} vt_parameter;

typedef struct {
    int64_t first, count;                     /* elements of a whole block */
    int64_t slice;                            /* of these a shard's: all, where nothing is sliced */
    int64_t first_parameter, parameter_count; /* in the order of storage */
    int64_t first_unit, last_unit;
    unsigned split_axes, sum_axes;
    double padding; /* the part of `count` that is gaps */
} vt_bucket;

/* What is stored of each parameter; ZeRO slices moments from stage 1 on, gradients from 2, values from 3. */
typedef enum { VT_BLOCK_VALUES, VT_BLOCK_GRADIENTS, VT_BLOCK_MOMENTS, VT_BLOCK_COUNT } vt_block_kind;

typedef struct {
    double bucket_bytes; /* about this many in a bucket; with ZeRO stages 2 and 3 a bucket holds one unit */
    int zero_stage;
    int shards, shard; /* how many slices there are, and which one is this rank's; 1, 0: not sliced */
    int64_t grain;     /* tensors and slices begin at multiples of so many elements, a power of two */
} vt_parameters_storage;

/* Calls to the code that manages the storage (optimizer/gradient_sync.c); NULL: nothing is called. */
typedef struct {
    void *context;
    /* Before a unit is used; `next` is the unit that will be used after it, or -1. In backward, its gradients are
     * zeroed or kept as the storage asks. */
    void (*needed)(void *context, int64_t unit, int64_t next, bool backward);
    /* When a unit's backward is over. */
    void (*gradients_ready)(void *context, int64_t unit);
} vt_parameters_hooks;

/* Only parameters.c changes it, but for the hooks. */
typedef struct {
    vt_backend *backend;
    const vt_parallel *parallel;
    vt_parameter **list;   /* [count], as registered; each allocated by itself, so that layers may keep pointers */
    vt_parameter **stored; /* in the order of the blocks: those of which this rank has a part */
    int64_t count, stored_count;
    int64_t unit_count;                /* begun so far */
    int64_t first_trained;             /* the first of them, of all ranks, with a parameter that is not frozen */
    int64_t whole_count, frozen_count; /* elements of all whole tensors, and of those that are frozen */
    vt_span units;                     /* that this rank has: all, unless fewer are kept */
    vt_bucket *buckets;
    int64_t bucket_count;
    int64_t elements;                 /* of a whole block, gaps included */
    int64_t trained, trained_buckets; /* what of both belongs to parameters that are trained: the first so many */
    vt_parameters_storage storage;
    vt_parameters_hooks hooks;
    vt_type type;  /* that matrix products take */
    float *values; /* the blocks */
    float *gradients;
    uint16_t *halves; /* or NULL */
} vt_parameters;

/* `parallel` outlives the registry. */
vt_status vt_parameters_open(vt_backend *backend, const vt_parallel *parallel, vt_parameters **parameters);
void vt_parameters_close(vt_parameters **parameters);

/* Registers "prefix.name" of this whole shape, in the current unit. Each rank has all of it, and its gradient is a sum
 * over the ranks that share a sample's tokens, unless the layer splits it, or changes `sum_axes` or `joined`. The
 * description lives as long as the registry. */
vt_parameter *vt_parameters_add(vt_parameters *parameters, const char *prefix, const char *name, int dimensions,
                                const int64_t *shape, vt_start start, double spread);

/* This rank has only `part` of dimension `dimension`; the ranks along `axes` have the rest. */
void vt_parameter_split(vt_parameter *parameter, int dimension, unsigned axes, vt_span part);

/* The parameters added from here on are the next unit: what is computed, and with ZeRO stage 3 gathered, together. */
void vt_parameters_next_unit(vt_parameters *parameters);

/* This rank has the parameters of these units only (a stage of a pipeline). The others stay in the list, with no
 * elements here. To be called before vt_parameters_allocate. */
void vt_parameters_keep_units(vt_parameters *parameters, vt_span units);

/* Freezes those whose names match one of the patterns of the option `freeze`, "[blocks.[0-3].*, pos_embed]" (fnmatch;
 * NULL: none). To be called before vt_parameters_allocate. Errors: a pattern that matches nothing, nothing left to
 * train, a part of what layers use as one (`joined`). */
vt_status vt_parameters_freeze(vt_parameters *parameters, const char *patterns);

/* Do the patterns match this name? */
bool vt_parameters_freezes(const char *patterns, const char *name);

/* Allocates the blocks (values, gradients and, for a type of 16 bits, rounded values), zeroed. After this no
 * parameter can be added. */
vt_status vt_parameters_allocate(vt_parameters *parameters, vt_type type, const vt_parameters_storage *storage);

/* ---- while a pass runs ---- */

/* Points the values (and rounded values) or the gradients of a bucket's parameters at `memory`, where the bucket lies
 * whole. */
void vt_parameters_place_values(vt_parameters *parameters, const vt_bucket *bucket, float *memory, uint16_t *half);
void vt_parameters_place_gradients(vt_parameters *parameters, const vt_bucket *bucket, float *memory);

/* Sets all gradients that this rank keeps to 0. */
void vt_parameters_clear_gradients(vt_parameters *parameters);

/* Rounds all values to 16 bits again where such copies are kept. To be called after every change of the values, but for
 * those that an update rounds itself. */
void vt_parameters_refresh(vt_parameters *parameters);

/* Where an update rounds the values from `offset` of the block on, in the same pass over memory. NULL: nowhere. There
 * is no such copy, or with ZeRO values are sent first. */
uint16_t *vt_parameters_rounded(const vt_parameters *parameters, int64_t offset);

/* Rounds some values to 16 bits, into `half`. */
void vt_parameters_round(const vt_parameters *parameters, vt_matrix values, uint16_t *half);

/* The value, one row, as matrix products take it: in 16 bits where that is kept. */
vt_matrix vt_parameter_matrix(const vt_parameter *parameter);

/* ---- what is stored ---- */

/* Starts every parameter whose name begins with the prefix, from (seed, name, index of the element in the whole tensor)
 * alone. */
void vt_parameters_start(vt_parameters *parameters, uint64_t seed, const char *prefix);

/* The elements that this rank keeps of a block: all, or its slices. */
int64_t vt_parameters_block_elements(const vt_parameters *parameters, vt_block_kind block);
bool vt_parameters_is_sliced(const vt_parameters *parameters, vt_block_kind block);

/* Where in a block this shard's slice of a bucket begins. */
int64_t vt_parameters_slice_offset(const vt_parameters *parameters, const vt_bucket *bucket, vt_block_kind block);

/* A run of elements of this rank's part of a parameter. */
typedef struct {
    int64_t first, count; /* in the parameter's part, row-major; count may be 0 */
    int64_t offset;       /* in the block */
} vt_piece;

/* What a block keeps of a parameter. */
vt_piece vt_parameters_piece(const vt_parameters *parameters, const vt_parameter *parameter, vt_block_kind block);

/* How many ranks hold the same elements of a bucket: whole, or of this shard's slice when `sliced`. */
int64_t vt_parameters_copies(const vt_parameters *parameters, const vt_bucket *bucket, bool sliced);

#endif
