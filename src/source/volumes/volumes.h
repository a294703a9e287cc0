/* The source `volumes`: cubes cut at random out of a box of N-body fields (the input) and hydrodynamic fields (the
 * target) at the same place, each turned in one of 24 ways. Tensors are [side³, channels], the last axis of the box
 * fastest. */
#ifndef VT_SOURCE_VOLUMES_VOLUMES_H
#define VT_SOURCE_VOLUMES_VOLUMES_H

#include "data/source.h"
#include "storage/store.h"

extern const vt_source_kind vt_source_volumes;

/* ---- the 2022 tutorial's 24 turns of a cube: 16 rotations and 8 reflections (its list is no group) ---- */

enum { VT_TURNS = 24 };

/* Axis a of the result is axis from[a] of the cube, reversed where flipped[a]: point i of the result is point j with
 * j[from[a]] = flipped[a] ? side - 1 - i[a] : i[a]. */
typedef struct {
    int from[3];
    bool flipped[3];
} vt_turn;

/* turn 0 … 23: entry turn + 1 of the tutorial's list. The last one leaves the cube as it is. */
extern const vt_turn vt_turns[VT_TURNS];

/* A cube of `side` points along each axis from `corner` on, of the first `fields` fields, and how it is turned: with
 * rotate_vectors fields 1 to 3, the components of a velocity, turn with its points. */
enum { VT_CUBE_FIELDS = 64 };
typedef struct {
    int64_t corner[3], side, fields;
    const vt_turn *turn;
    bool rotate_vectors;
} vt_cube;

/* A part of a cube as it lies in memory: points [first, first + count) of each axis, and fields. */
typedef struct {
    const float *values; /* of the first point and field */
    int64_t first[3], count[3];
    int64_t stride[3]; /* between points along each axis */
    int64_t first_field, fields, field_stride;
} vt_cube_part;

/* Writes those points of the turned cube, to [side³, fields], that the part holds. */
void vt_turn_part(const vt_cube *cube, const vt_cube_part *part, float *to);

/* A random cube without fields. It depends only on these arguments: the sample `index` of an epoch, and the points
 * along each axis of the box and of the cube. */
vt_cube vt_volume_draw(uint64_t seed, vt_set set, int64_t epoch, int64_t index, int64_t box, int64_t side);

/* ---- memory that all processes of a user on one machine share, which the first of them fills ---- */

typedef struct {
    char *name; /* of its file */
    int file;
    char *memory;
    size_t bytes; /* with a page at the end that says whether it was filled */
} vt_shared_box;

/* The memory [bytes] of the name `key`, which says all that its contents depend on. If no other process has filled it,
 * fill(memory, context) fills it while others wait. The last process that closes it removes it. A killed process leaves
 * it behind, and the next run uses it. */
vt_status vt_shared_box_open(const char *key, size_t bytes, vt_status (*fill)(void *memory, void *context),
                             void *context, vt_shared_box **box);
void vt_shared_box_close(vt_shared_box **box); /* *box may be NULL */

/* ---- one array of a box: the fields of side³ points, in a file or in memory, out of which cubes are read ---- */

/* How its numbers are reached: straight from the file (RUNS, of .npy and contiguous HDF5), chunk by chunk (CHUNKS), by
 * HDF5's library, or in memory. */
typedef enum { VT_BOX_RUNS, VT_BOX_CHUNKS, VT_BOX_LIBRARY, VT_BOX_MEMORY } vt_box_reach;

typedef struct {
    char *path;
    const char *name;         /* of the array in its file; NULL in a .npy file */
    int64_t side;             /* points used along each axis: of the box, or of its corner */
    int64_t extent, channels; /* of the file: points along each axis, and fields */
    int64_t together;         /* fields whose numbers lie together at each point: all, or 1 */
    vt_box_reach reach;
    int descriptor;      /* of the file */
    int64_t address;     /* where the numbers begin in it */
    vt_store *store;     /* the HDF5 file; NULL for .npy */
    vt_array *array;     /* its dataset, or NULL; array->obstacle says why the library has to read it */
    const float *memory; /* the whole array, as the file has it */
    vt_shared_box *shared;
} vt_box;

/* HDF5: dataset `name` [channels, L, L, L], float32. direct: past the library, where the file allows. name NULL: a .npy
 * file [L, L, L, channels]. At least `channels` fields must be there. side: how much is used; VT_UNSET_INTEGER: all. */
vt_status vt_box_open(const char *path, const char *name, int64_t channels, int64_t side, bool direct, vt_box **box);
void vt_box_close(vt_box **box);

/* Has the whole array in memory from now on, which all processes of this machine share. */
vt_status vt_box_keep(vt_box *box);

/* Writes the turned cube to [side³, fields]. Any thread. */
vt_status vt_box_read(vt_box *box, const vt_cube *cube, vt_decoder *decoder, float *to);

/* How many runs of bytes vt_box_read reads for a cube, and the bytes of one of them. */
int64_t vt_box_runs(const vt_box *box, const vt_cube *cube);
vt_file_extent vt_box_run(vt_box *box, const vt_cube *cube, int64_t run);

/* Writes dataset `name` [channels, L, L, L] of the HDF5 file `from` as the array [L, L, L, channels] of the .npy file
 * `to`, which is replaced; a layer of the box is in memory at a time. For dali-lowmem. */
vt_status vt_box_convert(const char *from, const char *name, const char *to);

#endif
