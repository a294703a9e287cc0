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
    vt_hdf5_enter();
    H5Aiterate2(file->file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_attribute, file);
    vt_hdf5_leave();
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
