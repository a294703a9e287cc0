/* The yearly files of a data directory. */
#ifndef VT_DATA_FILE_LIST_H
#define VT_DATA_FILE_LIST_H

#include <stdint.h>

#include "base/status.h"

typedef struct {
    char **paths; /* directory included, [count], in the order of their names */
    int64_t count;
} vt_file_list;

/* All files of `directory` whose name ends in four digits and ".h5" (2013.h5, era5_2013.h5), hidden ones left out.
 * option_name ("train_data_path") is named in messages: no such directory, not a directory, no permission, no such
 * file in it. */
vt_status vt_file_list_open(const char *directory, const char *option_name, vt_file_list *list);
void vt_file_list_close(vt_file_list *list);

#endif
