/* Tries a directory of tensor files, which may be a stranger's, in a process of its own. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/tensor_file_inside.h"
#include "storage/trial.h"

/* Reads its type, its size and, if that is not more than a text may have, its values. */
static void visit_attribute(hid_t attribute)
{
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const size_t size = H5Tget_size(type);
    const H5T_class_t class = H5Tget_class(type);
    const int64_t count = H5Sget_simple_extent_npoints(space);
    const bool is_text = class == H5T_STRING && H5Tis_variable_str(type) <= 0;
    const bool is_number = class == H5T_INTEGER || class == H5T_FLOAT;
    if (count > 0 && size <= VT_TENSOR_LONGEST_TEXT && (is_number || is_text) &&
        count <= VT_TENSOR_LONGEST_TEXT / (int64_t)(size + 8)) {
        void *values = vt_allocate((size_t)count, size + 8, "a checkpoint's file");
        hid_t number = class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
        H5Aread(attribute, is_text ? type : number, values);
        free(values);
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
}

static void visit_attributes(vt_tensor_file *file)
{
    vt_hdf5_enter();
    for (hsize_t i = 0;; i++) {
        hid_t attribute = H5Aopen_by_idx(file->file, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
        if (attribute < 0) break;
        visit_attribute(attribute);
        H5Aclose(attribute);
    }
    vt_hdf5_leave();
}

/* Groups of such a file are one level deep. */
static void visit_group(vt_tensor_file *file, const char *group)
{
    char **names = NULL;
    int64_t count = 0;
    if (vt_tensor_file_list(file, group, &names, &count) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < count; i++) {
        char *name = vt_text_format("%s/%s", group, names[i]);
        vt_tensor_visit(file, name);
        free(name);
    }
    vt_text_free_list(names, count);
}

static void visit_file(const char *path)
{
    vt_tensor_file *file = NULL;
    char **groups = NULL;
    int64_t count = 0;
    if (vt_tensor_file_open(path, &file) != VT_OK) {
        vt_error_clear();
        return;
    }
    visit_attributes(file);
    if (vt_tensor_file_list(file, "/", &groups, &count) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < count; i++) visit_group(file, groups[i]);
    vt_text_free_list(groups, count);
    vt_tensor_file_close(&file);
}

/* With hundreds of files, only some: the trial must not take long. */
static void try_out(void *context)
{
    enum { MOST_SECONDS = 5 };
    const char *directory = context;
    const double begin = vt_clock_seconds();
    DIR *opened = opendir(directory);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        if (!vt_text_ends_with(entry->d_name, ".h5")) continue;
        if (vt_clock_seconds() - begin > MOST_SECONDS) break;
        char *path = vt_text_format("%s/%s", directory, entry->d_name);
        visit_file(path);
        free(path);
    }
    if (opened != NULL) closedir(opened);
}

vt_status vt_tensor_files_try(const char *directory)
{
    char *copy = vt_text_copy(directory);
    vt_status status = vt_trial(directory, try_out, copy);
    free(copy);
    return status;
}
