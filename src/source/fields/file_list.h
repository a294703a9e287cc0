/* The files of a data directory. */
#ifndef VT_SOURCE_FIELDS_FILE_LIST_H
#define VT_SOURCE_FIELDS_FILE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/fields_file.h"

/* ALONE: HDF5 did not survive all of those that were tried together. GOOD: it survived the group's files. */
typedef enum { VT_GROUP_UNTRIED, VT_GROUP_ALONE, VT_GROUP_GOOD } vt_group_trial;

/* Files of the same times: paths[first] … paths[first + count - 1]. */
typedef struct {
    int64_t first, count;
    vt_date begin; /* of its times, where names say no date */
    vt_group_trial trial;
    /* of a set that is being read (reading.h): */
    vt_fields_file *file; /* NULL while closed */
    uint64_t last_use;
    int64_t users; /* frames of plans that hold it open */
} vt_file_group;

typedef struct {
    char **paths; /* directory included, [count] */
    int64_t count;
    vt_file_group *groups; /* [group_count], in the order of their names or times */
    int64_t group_count;
    /* sentences about what else is in the directory; NULL: nothing of the kind, or names say no date */
    char *misnamed;   /* files that look like data of some year, but would not be read: a fault */
    char *doubtful;   /* what may be data, too: no year in the name, netCDF without `variables`, an unfinished copy */
    char *left_alone; /* all other files but hidden ones */
} vt_file_list;

/* A Zarr store is a list of itself alone. Else all files of `directory` whose name ends in four digits and ".h5" or
 * ".hdf5" in any case (2013.h5, era5_2013.H5), and Zarr stores *YYYY.zarr, hidden ones left out; each is a group by
 * itself. With `variables`, files that end in a date (2013, 201301, 2013-01, 2013_01) and ".nc", ".nc4" or these; those
 * of one date are a group, and groups are in the order of their dates; if there are none and a period is chosen, any
 * names will do, and groups are in the order of their first times. option_name ("train_data_path") is named in
 * messages: no such directory, not a directory, no permission, no such file in it. */
vt_status vt_file_list_open(const char *directory, const char *option_name, const vt_fields_form *form,
                            vt_file_list *list);

/* Opens the files of a group (vt_fields_file_open). Where there are many groups, those after it are tried with it in
 * one process, as a process for each would take long. */
vt_status vt_file_list_use(vt_file_list *list, int64_t group, const vt_fields_form *form, vt_fields_file **file);

/* The path of a group's first file. */
const char *vt_file_list_path(const vt_file_list *list, int64_t group);

/* Closes a group and takes it out of the list; its paths stay. */
void vt_file_list_leave_out(vt_file_list *list, int64_t group);
void vt_file_list_close(vt_file_list *list);

/* Fails if a file is misnamed; logs what is not read. */
vt_status vt_file_list_check(const vt_file_list *list);

#endif
