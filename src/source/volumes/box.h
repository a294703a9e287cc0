/* One array of a box: the fields of a cube of side³ points, in a file or in memory, out of which smaller cubes are
 * read. */
#ifndef VT_SOURCE_VOLUMES_BOX_H
#define VT_SOURCE_VOLUMES_BOX_H

#include "data/source.h"
#include "source/volumes/shared_box.h"
#include "source/volumes/turn.h"
#include "storage/store.h"

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
    vt_store *store;     /* of HDF5 */
    vt_array *array;     /* of HDF5, too; array->obstacle says why the library has to read it */
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
