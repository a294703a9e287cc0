/* The first try of a directory of tensor files that may be a stranger's, in a process of its own. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "storage/tensor_file_inside.h"
#include "storage/trial.h"

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
        free(names[i]);
    }
    free(names);
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
    vt_tensor_visit_attributes(file);
    if (vt_tensor_file_list(file, "/", &groups, &count) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < count; i++) {
        visit_group(file, groups[i]);
        free(groups[i]);
    }
    free(groups);
    vt_tensor_file_close(&file);
}

/* Those of hundreds of ranks are not all gone through: the trial must not take long. */
static void try_out(void *context)
{
    enum { MOST_SECONDS = 5 };
    const char *directory = context;
    const double begin = vt_clock_seconds();
    DIR *opened = opendir(directory);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if (length < 3 || strcmp(entry->d_name + length - 3, ".h5") != 0) continue;
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
