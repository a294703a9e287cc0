#include "source/fields/file_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

/* Is the text one of the words (NULL ends them), in any case? */
static bool is_one_of(const char *text, size_t length, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == length && strncasecmp(text, *words, length) == 0) return true;
    return false;
}

/* Where the extension begins, or NULL when the file is none of ours. */
static const char *find_extension(const char *name, bool variables)
{
    static const char *const hdf5[] = {".h5", ".hdf5", NULL}, *const netcdf[] = {".nc", ".nc4", NULL};
    const char *dot = strrchr(name, '.');
    if (name[0] == '.' || dot == NULL) return NULL;
    if (is_one_of(dot, strlen(dot), hdf5)) return dot;
    return variables && is_one_of(dot, strlen(dot), netcdf) ? dot : NULL;
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
    const char *end = find_extension(name, false);
    return end != NULL && end - name >= 4 && strspn(end - 4, "0123456789") == 4;
}

/* ---- what else lies there ---- */

/* Has the name an ending of data anywhere: "2002.h5.part", "2002.grib"? */
static bool looks_like_data(const char *name)
{
    static const char *const endings[] = {"h5",     "hdf5", "hdf", "he5",  "nc",    "nc3",  "nc4", "cdf",
                                          "netcdf", "grib", "grb", "grb2", "grib2", "zarr", "npy", NULL};
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (is_one_of(dot + 1, strcspn(dot + 1, "."), endings)) return true;
    return false;
}

/* Four digits of the years 1700 to 2199, alone or before those of a month and a day. */
static bool has_year(const char *name)
{
    for (size_t digits; *name != '\0'; name += digits > 0 ? digits : 1) {
        digits = strspn(name, "0123456789");
        const bool year = (name[0] == '1' && name[1] >= '7') || (name[0] == '2' && name[1] <= '1');
        if (year && (digits == 4 || digits == 6 || digits == 8)) return true;
    }
    return false;
}

/* The first few names, "a, b, c and 7 more". */
static void name_some(char **names, int64_t count, vt_text *text)
{
    enum { MOST = 12 };
    for (int64_t i = 0; i < count && i < MOST; i++)
        vt_text_append(text, "%s%s", i > 0 ? ", " : "", strrchr(names[i], '/') + 1);
    if (count > MOST) vt_text_append(text, " and %lld more", (long long)(count - MOST));
}

/* Is it the directory of a Zarr store? */
static bool is_zarr_store(const char *directory)
{
    static const char *const marks[] = {".zgroup", ".zarray", ".zmetadata", "zarr.json"};
    bool is_zarr = false;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !is_zarr; i++) {
        char *path = vt_text_format("%s/%s", directory, marks[i]);
        is_zarr = access(path, F_OK) == 0;
        free(path);
    }
    return is_zarr;
}

/* Of a store itself, or what is to be in one. */
static vt_status check_zarr(const char *directory, const char *option_name)
{
    vt_status status = VT_OK;
    char *above = vt_text_copy(directory), *slash = strrchr(above, '/');
    if (slash != NULL && slash > above) *slash = '\0';
    const char *store = is_zarr_store(directory) ? directory : is_zarr_store(above) ? above : NULL;
    VT_CHECK(store == NULL,
             "%s '%s': %s is a Zarr store, which is not read; make netCDF files of it that end in their date: "
             "python3 -c \"import xarray; xarray.open_zarr('%s').to_netcdf('2013.nc')\"",
             option_name, directory, store, store);
done:
    free(above);
    return status;
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

static void append(char ***paths, int64_t *count, char *path)
{
    if ((*count & (*count - 1)) == 0) /* grows at every power of two */
        *paths = vt_reallocate(*paths, *count == 0 ? 1 : 2 * (size_t)*count, sizeof **paths, "a list of files");
    (*paths)[(*count)++] = path;
}

/* What is in the directory but not in the list. */
typedef struct {
    char **misnamed, **data, **rest; /* data with a year at the wrong place; what else may be data; all else */
    int64_t misnamed_count, data_count, rest_count;
} other_files;

static void sort_names(char **names, int64_t count)
{
    if (count > 0) qsort(names, (size_t)count, sizeof *names, by_name);
}

static void note_others(vt_file_list *list, other_files *others, const char *directory, const char *option_name)
{
    vt_text text = {0};
    sort_names(others->misnamed, others->misnamed_count);
    sort_names(others->data, others->data_count);
    sort_names(others->rest, others->rest_count);
    if (others->misnamed_count > 0) {
        vt_text_append(&text, "%s '%s': ", option_name, directory);
        name_some(others->misnamed, others->misnamed_count, &text);
        vt_text_append(&text,
                       " would not be read, for a name of data ends in its date, like 2013.h5; rename %s, or move %s "
                       "elsewhere. The files that would be read: ",
                       others->misnamed_count > 1 ? "them" : "it", others->misnamed_count > 1 ? "them" : "it");
        name_some(list->paths, list->count, &text);
        list->misnamed = text.characters;
        text = (vt_text){0};
    }
    if (others->data_count > 0) {
        vt_text_append(&text, "%s '%s': not read, though it may be data: ", option_name, directory);
        name_some(others->data, others->data_count, &text);
        list->doubtful = text.characters;
        text = (vt_text){0};
    }
    if (others->rest_count > 0) {
        vt_text_append(&text, "%s '%s': left alone: ", option_name, directory);
        name_some(others->rest, others->rest_count, &text);
        list->left_alone = text.characters;
    }
}

/* Where the list is empty: what lies there instead, "; it holds a, b", malloc'd. */
static char *say_what_lies_there(const other_files *others)
{
    vt_text text = {0};
    const int64_t all = others->misnamed_count + others->data_count + others->rest_count;
    vt_text_append(&text, "%s", all > 0 ? "; it holds " : "");
    name_some(others->misnamed, others->misnamed_count, &text);
    if (others->misnamed_count > 0 && all > others->misnamed_count) vt_text_append(&text, ", ");
    name_some(others->data, others->data_count, &text);
    if (others->data_count > 0 && others->rest_count > 0) vt_text_append(&text, ", ");
    name_some(others->rest, others->rest_count, &text);
    return text.characters;
}

static void free_names(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

static void sort_in(vt_file_list *list, other_files *others, const char *directory, const char *name, bool variables)
{
    char *path = vt_text_format("%s/%s", directory, name);
    if (is_wanted(name, variables))
        append(&list->paths, &list->count, path);
    else if (name[0] == '.')
        free(path);
    else if (find_extension(name, variables) != NULL && has_year(name))
        append(&others->misnamed, &others->misnamed_count, path);
    else if (looks_like_data(name))
        append(&others->data, &others->data_count, path);
    else
        append(&others->rest, &others->rest_count, path);
}

vt_status vt_file_list_open(const char *directory, const char *option_name, bool variables, vt_file_list *list)
{
    vt_status status = VT_OK;
    bool netcdf = false;
    DIR *opened = NULL;
    other_files others = {0};
    char *instead = NULL;
    *list = (vt_file_list){0};
    VT_TRY(check_zarr(directory, option_name));
    opened = opendir(directory);
    VT_CHECK(opened != NULL || errno != ENOENT,
             "%s '%s': no such directory. %sMake a synthetic set with `vitrain synth`, or see docs/data.md",
             option_name, directory,
             strstr(option_name, "_data_path") != NULL ? "--data_dir=DIR says where all data are. " : "");
    VT_CHECK(opened != NULL || errno != ENOTDIR,
             "%s '%s' is a file, but should be a directory that holds files *YYYY.h5, see docs/data.md", option_name,
             directory);
    VT_CHECK(opened != NULL, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    errno = 0;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        sort_in(list, &others, directory, entry->d_name, variables);
        netcdf = netcdf || is_wanted(entry->d_name, true);
        errno = 0;
    }
    VT_CHECK(errno == 0, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    for (int64_t i = 0; list->count == 0 && i < others.data_count; i++) VT_TRY(check_zarr(others.data[i], option_name));
    if (list->count == 0) instead = say_what_lies_there(&others);
    VT_CHECK(list->count > 0 || variables || !netcdf,
             "%s '%s': no files *YYYY.h5 in it, but netCDF files: say which of their variables are the channels, "
             "--variables=[u10,v10,t2m,z@500], see docs/data.md",
             option_name, directory);
    VT_CHECK(list->count > 0 || !variables,
             "%s '%s': no files *YYYY.nc or *YYYY.h5 (names that end in a date, like air.2013.nc) in it%s; see "
             "docs/data.md",
             option_name, directory, instead);
    VT_CHECK(list->count > 0,
             "%s '%s': no files *YYYY.h5 (names that end in a year, like 2013.h5) in it%s. Make a synthetic set with "
             "`vitrain synth`, or see docs/data.md",
             option_name, directory, instead);
    qsort(list->paths, (size_t)list->count, sizeof *list->paths, variables ? by_date : by_name);
    find_groups(list, variables);
    note_others(list, &others, directory, option_name);
done:
    if (opened != NULL) closedir(opened);
    free(instead);
    free_names(others.misnamed, others.misnamed_count);
    free_names(others.data, others.data_count);
    free_names(others.rest, others.rest_count);
    if (status != VT_OK) vt_file_list_close(list);
    return status;
}

vt_status vt_file_list_check(const vt_file_list *list)
{
    vt_status status = VT_OK;
    VT_CHECK(list->misnamed == NULL, "%s", list->misnamed);
    if (list->doubtful != NULL) vt_log_warning("%s", list->doubtful);
    if (list->left_alone != NULL) vt_log_info("%s", list->left_alone);
done:
    return status;
}

void vt_file_list_close(vt_file_list *list)
{
    free_names(list->paths, list->count);
    free(list->first);
    free(list->misnamed);
    free(list->doubtful);
    free(list->left_alone);
    *list = (vt_file_list){0};
}
