#include "data/file_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Where the extension begins, or NULL when the file is none of ours. */
static const char *find_extension(const char *name, bool variables)
{
    const char *dot = strrchr(name, '.');
    if (name[0] == '.' || dot == NULL) return NULL;
    if (strcmp(dot, ".h5") == 0) return dot;
    return variables && (strcmp(dot, ".nc") == 0 || strcmp(dot, ".nc4") == 0) ? dot : NULL;
}

/* The digits that the name ends in, with '-' and '_' between them, from a group of at least four on: "2013_01" of
 * "era5_2013_01.nc"; length 0: none. */
static const char *find_date(const char *name, bool variables, size_t *length)
{
    const char *end = find_extension(name, variables), *begin = end;
    *length = 0;
    if (end == NULL) return NULL;
    while (begin > name && (isdigit((unsigned char)begin[-1]) || begin[-1] == '-' || begin[-1] == '_')) begin--;
    while (begin < end) {
        size_t digits = strspn(begin, "0123456789");
        if (digits >= 4) break;
        begin += digits > 0 ? digits : 1;
    }
    if (begin < end && isdigit((unsigned char)end[-1])) *length = (size_t)(end - begin);
    return begin;
}

static bool is_wanted(const char *name, bool variables)
{
    size_t length;
    if (variables) {
        find_date(name, true, &length);
        return length > 0;
    }
    length = strlen(name);
    if (find_extension(name, false) == NULL || length < 7) return false;
    for (size_t i = length - 7; i < length - 3; i++)
        if (!isdigit((unsigned char)name[i])) return false;
    return true;
}

static const char *base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_dates(const char *a, const char *b)
{
    size_t length[2];
    const char *dates[2] = {find_date(base_name(a), true, &length[0]), find_date(base_name(b), true, &length[1])};
    VT_ASSERT(dates[0] != NULL && dates[1] != NULL); /* is_wanted saw one */
    int order = strncmp(dates[0], dates[1], length[0] < length[1] ? length[0] : length[1]);
    return order != 0 ? order : length[0] < length[1] ? -1 : length[0] > length[1];
}

static int by_date(const void *a, const void *b)
{
    int order = compare_dates(*(char *const *)a, *(char *const *)b);
    return order != 0 ? order : by_name(a, b);
}

static void find_groups(vt_file_list *list, bool variables)
{
    list->first = vt_allocate((size_t)(list->count + 1), sizeof *list->first, "the list of data files");
    for (int64_t i = 0; i < list->count; i++)
        if (i == 0 || !variables || compare_dates(list->paths[i - 1], list->paths[i]) != 0)
            list->first[list->groups++] = i;
    list->first[list->groups] = list->count;
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

vt_status vt_file_list_open(const char *directory, const char *option_name, bool variables, vt_file_list *list)
{
    vt_status status = VT_OK;
    int64_t others = 0;
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
        if (is_wanted(entry->d_name, variables))
            append(list, vt_text_format("%s/%s", directory, entry->d_name));
        else if (is_wanted(entry->d_name, true))
            others++;
        errno = 0;
    }
    VT_CHECK(errno == 0, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    VT_CHECK(list->count > 0 || others == 0,
             "%s '%s': no files *YYYY.h5 in it, but netCDF files: say which of their variables are the channels, "
             "--variables=[u10,v10,t2m,z@500], see docs/data.md",
             option_name, directory);
    VT_CHECK(list->count > 0 || !variables,
             "%s '%s': no files *YYYY.nc or *YYYY.h5 (names that end in a date, like air.2013.nc) in it, see "
             "docs/data.md",
             option_name, directory);
    VT_CHECK(list->count > 0,
             "%s '%s': no files *YYYY.h5 (names that end in a year, like 2013.h5) in it. Make a synthetic set with "
             "`vitrain synth`, or see docs/data.md",
             option_name, directory);
    qsort(list->paths, (size_t)list->count, sizeof *list->paths, variables ? by_date : by_name);
    find_groups(list, variables);
done:
    if (opened != NULL) closedir(opened);
    if (status != VT_OK) vt_file_list_close(list);
    return status;
}

void vt_file_list_close(vt_file_list *list)
{
    for (int64_t i = 0; i < list->count; i++) free(list->paths[i]);
    free(list->paths);
    free(list->first);
    *list = (vt_file_list){0};
}
