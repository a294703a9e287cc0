/* Tries tensor files, which may be a stranger's, in a process of its own. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static herr_t open_and_visit(hid_t file, const char *name, const H5A_info_t *info, void *context)
{
    (void)info, (void)context;
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    if (attribute < 0) return 0;
    visit_attribute(attribute);
    H5Aclose(attribute);
    return 0;
}

static void visit_attributes(vt_tensor_file *file)
{
    vt_hdf5_enter();
    H5Aiterate2(file->file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, open_and_visit, NULL);
    vt_hdf5_leave();
}

/* What is in the group, and in the groups of it as deep as tensors lie; "" is the root. */
static void visit_group(vt_tensor_file *file, const char *group, int depth)
{
    char **names = NULL;
    int64_t count = 0;
    if (vt_tensor_file_list(file, depth == 0 ? "/" : group, &names, &count) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < count; i++) {
        char *name = vt_text_format("%s%s%s", group, depth == 0 ? "" : "/", names[i]);
        if (!vt_tensor_visit(file, name) && depth + 1 < VT_TENSOR_DEPTH) visit_group(file, name, depth + 1);
        free(name);
    }
    vt_text_free_list(names, count);
}

static void visit_file(const char *path, void *context)
{
    (void)context;
    vt_tensor_file *file = NULL;
    if (vt_tensor_file_open(path, &file) != VT_OK) {
        vt_error_clear();
        return;
    }
    visit_attributes(file);
    visit_group(file, "", 0);
    vt_tensor_file_close(&file);
}

/* Calls visit for `path`, or for each tensor file of it if it is a directory. */
static void for_each_file(const char *path, void (*visit)(const char *path, void *context), void *context)
{
    DIR *opened = opendir(path);
    if (opened == NULL) visit(path, context);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        if (!vt_text_ends_with(entry->d_name, ".h5")) continue;
        char *file = vt_text_format("%s/%s", path, entry->d_name);
        visit(file, context);
        free(file);
    }
    if (opened != NULL) closedir(opened);
}

static void add_bytes(const char *path, void *context)
{
    struct stat info;
    if (stat(path, &info) == 0) *(int64_t *)context += info.st_size;
}

int64_t vt_tensor_files_bytes(const char *path)
{
    int64_t bytes = 0;
    for_each_file(path, add_bytes, &bytes);
    return bytes;
}

static void try_out(const char *const *words, int64_t count)
{
    (void)count;
    for_each_file(words[0], visit_file, NULL);
}

vt_status vt_tensor_files_try(const char *path)
{
    return vt_trial(path, vt_tensor_files_bytes(path), try_out, &path, 1);
}
