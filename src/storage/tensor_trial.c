/* Tries tensor files, which may be a stranger's, in a process of its own. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/text.h"
#include "storage/tensor_file_inside.h"
#include "storage/trial.h"

/* As whatever reads it would: as a text, or as numbers. */
static herr_t visit_attribute(hid_t root, const char *name, const H5A_info_t *info, void *context)
{
    enum { MOST_NUMBERS = 1 << 20 };
    static int64_t numbers[MOST_NUMBERS];
    vt_tensor_file *file = context;
    char *text = NULL;
    int64_t count = MOST_NUMBERS;
    double real;
    (void)root, (void)info;
    if (vt_tensor_file_get_text(file, name, &text) != VT_OK) vt_error_clear();
    if (vt_tensor_file_get_integers(file, name, &count, numbers) != VT_OK) vt_error_clear();
    if (vt_tensor_file_get_real(file, name, &real) != VT_OK) vt_error_clear();
    free(text);
    return 0;
}

/* Visits what is in a group ("" is the root), and in its own groups down to the depth of tensors. A group that can't be
 * opened, as in a damaged file, is passed over. */
static void visit_group(vt_tensor_file *file, const char *group, int depth)
{
    vt_names names = {0};
    if (vt_tensor_file_list(file, depth == 0 ? "/" : group, &names) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < names.count; i++) {
        char *name = vt_text_format("%s%s%s", group, depth == 0 ? "" : "/", names.names[i]);
        vt_tensor_visit(file, name);
        if (depth + 1 < VT_TENSOR_DEPTH) visit_group(file, name, depth + 1);
        free(name);
    }
    vt_names_close(&names);
}

static void visit_file(const char *path)
{
    vt_tensor_file *file = NULL;
    if (vt_tensor_file_open(path, &file) != VT_OK) {
        vt_error_clear();
        return;
    }
    vt_hdf5_enter();
    H5Aiterate2(file->file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_attribute, file);
    vt_hdf5_leave();
    visit_group(file, "", 0);
    vt_tensor_file_close(&file);
}

/* The tensor files of a directory, or `path` itself. */
static vt_names files_of(const char *path)
{
    vt_names files = {0};
    DIR *opened = opendir(path);
    if (opened == NULL) vt_names_add(&files, path);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;)
        if (vt_text_ends_with(entry->d_name, ".h5"))
            vt_names_take(&files, vt_text_format("%s/%s", path, entry->d_name));
    if (opened != NULL) closedir(opened);
    return files;
}

int64_t vt_tensor_files_bytes(const char *path)
{
    int64_t bytes = 0;
    struct stat info;
    vt_names files = files_of(path);
    for (int64_t i = 0; i < files.count; i++)
        if (stat(files.names[i], &info) == 0) bytes += info.st_size;
    vt_names_close(&files);
    return bytes;
}

static void try_out(const char *const *words, int64_t count)
{
    const vt_names files = files_of(words[0]);
    (void)count;
    for (int64_t i = 0; i < files.count; i++) visit_file(files.names[i]);
}

vt_status vt_tensor_files_try(const char *path)
{
    return vt_trial(path, vt_tensor_files_bytes(path), try_out, &path, 1);
}
