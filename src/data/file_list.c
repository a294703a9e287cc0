#include "data/file_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

static bool is_yearly_file(const char *name)
{
    size_t length = strlen(name);
    if (name[0] == '.' || length < 7 || strcmp(name + length - 3, ".h5") != 0) return false;
    for (size_t i = length - 7; i < length - 3; i++)
        if (!isdigit((unsigned char)name[i])) return false;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void append(vt_file_list *list, char *path)
{
    /* grows at every power of two */
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count == 0 ? 1 : 2 * (size_t)list->count;
        char **grown = vt_reallocate(list->paths, capacity, sizeof *grown, "a list of files");
        list->paths = grown;
    }
    list->paths[list->count++] = path;
}

vt_status vt_file_list_open(const char *directory, const char *option_name, vt_file_list *list)
{
    vt_status status = VT_OK;
    *list = (vt_file_list){0};
    DIR *opened = opendir(directory);
    VT_CHECK(opened != NULL || errno != ENOENT,
             "%s '%s': no such directory. Make a synthetic set with `vitrain synth`, or see docs/data.md", option_name,
             directory);
    VT_CHECK(opened != NULL || errno != ENOTDIR,
             "%s '%s' is a file, but should be a directory that holds files *YYYY.h5, see docs/data.md", option_name,
             directory);
    VT_CHECK(opened != NULL, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    errno = 0;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        if (is_yearly_file(entry->d_name)) append(list, vt_text_format("%s/%s", directory, entry->d_name));
        errno = 0;
    }
    VT_CHECK(errno == 0, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    VT_CHECK(list->count > 0,
             "%s '%s': no files *YYYY.h5 (names that end in a year, like 2013.h5) in it. Make a synthetic set with "
             "`vitrain synth`, or see docs/data.md",
             option_name, directory);
    qsort(list->paths, (size_t)list->count, sizeof *list->paths, by_name);
done:
    if (opened != NULL) closedir(opened);
    if (status != VT_OK) vt_file_list_close(list);
    return status;
}

void vt_file_list_close(vt_file_list *list)
{
    for (int64_t i = 0; i < list->count; i++) free(list->paths[i]);
    free(list->paths);
    *list = (vt_file_list){0};
}
