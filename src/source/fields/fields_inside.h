/* The arrays of an open vt_fields_file, for the files that open it (fields_file.c, field_source.c, netcdf.c) and read
 * from it (read_plan.c, read_item.c). */
#ifndef VT_SOURCE_FIELDS_FIELDS_INSIDE_H
#define VT_SOURCE_FIELDS_FIELDS_INSIDE_H

#include "source/fields/fields_file.h"
#include "storage/unpack.h"

/* One dataset [time, level, lat, lon], where `fields` has its channels as levels; one of [time, lat, lon] has one
 * level, and a fixed one of [lat, lon] one time, too. */
struct vt_field_source {
    char *name;
    const vt_store *store; /* not owned */
    vt_array *array;
    struct vt_coordinates *coordinates; /* coordinates.h */
    int rank;                           /* 3 or 4; 2 of a fixed one */
    int64_t extent[4];
    vt_packing packing; /* of the stored bytes; those that the library reads are never swapped */
    bool latitudes_known;
    bool south_first; /* rows run from south to north, and are turned round */
    int64_t *sampled; /* [extent[1]]: 1 + the time of the level whose values are always looked at; atomic */
    int64_t chunk[4], stride[4], grid[4];
    uint64_t key; /* vt_array_key of `array` */
};

/* Which of [time, level, lat, lon] an array's dimension `dimension` is. */
static inline int vt_field_dimension(int rank, int dimension)
{
    return rank > 2 && dimension == 0 ? 0 : 4 - rank + dimension;
}

/* Places or sizes [time, level, lat, lon] as the array has them: [rank]. */
static inline void vt_field_own_dimensions(const vt_field_source *source, const int64_t all[4], int64_t own[4])
{
    for (int i = 0; i < source->rank; i++) own[i] = all[vt_field_dimension(source->rank, i)];
}

static inline int64_t vt_field_source_chunks(const vt_field_source *source)
{
    return source->grid[0] * source->grid[1] * source->grid[2] * source->grid[3];
}

/* Opens an array of rank 3 or 4, or 2 where it is fixed, that holds numbers, and lists its coordinates. Errors name
 * what is wrong with it. If its array has no obstacle then, it can be read without the store's library. */
vt_status vt_field_source_open(const vt_store *store, const char *name, const vt_fields_form *form,
                               vt_field_source *source);
void vt_field_source_close(vt_field_source *source);

/* Bytes of decoded chunks that the library may hold of it. */
vt_status vt_field_source_enlarge_cache(vt_field_source *source, int64_t *cache_bytes);

/* Where chunk `index` begins, as [time, level, lat, lon], and where it lies (vt_array_find_chunk). */
vt_status vt_field_source_find_chunk(const vt_field_source *source, int64_t index, int64_t at[4],
                                     vt_chunk_place *place);

/* Moves the dimensions to [time, level, lat, lon] where their names say which they are and the store can move them. */
void vt_dimensions_order(vt_array *array);

/* Fails if the array hasn't 3 or 4 dimensions, or 2 where it is fixed, or if the file says that it is an ensemble or
 * has its channels last (dimensions.c). */
vt_status vt_dimensions_check(const vt_array *array, bool fixed);

/* Reads when its times are (fields_time.c). */
vt_status vt_fields_open_times(vt_fields_file *file, const vt_fields_form *form);

/* Leaves the times that the form chooses: perhaps none (period.c). */
vt_status vt_fields_choose_times(vt_fields_file *file, const vt_fields_form *form);

/* Finds which way the rows of a source run, and its grid, which must be that of the file's other sources
 * (fields_grid.c). */
vt_status vt_fields_take_grid(vt_fields_file *file, vt_field_source *source);

/* Adds to *held those of the variables, without their levels, that the file has, also by another of its names. */
vt_status vt_netcdf_holds(const char *path, const char *variables, vt_names *held);

/* Sources, channels, sizes, names and grid of a file whose variables are separate datasets (netcdf.c). */
vt_status vt_netcdf_open(vt_fields_file *file, const vt_fields_form *form);

#endif
