#include "source/fields/file_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/fields_inside.h"
#include "storage/store.h"
#include "storage/trial.h"

/* Where the extension begins, or NULL if the file has no extension of data. */
static const char *find_extension(const char *name, bool variables)
{
    static const char *const hdf5[] = {".h5", ".hdf5", ".zarr", NULL}, *const netcdf[] = {".nc", ".nc4", NULL};
    const char *dot = strrchr(name, '.');
    if (name[0] == '.' || dot == NULL) return NULL;
    if (vt_text_place(dot, strlen(dot), hdf5) >= 0) return dot;
    return variables && vt_text_place(dot, strlen(dot), netcdf) >= 0 ? dot : NULL;
}

/* The date that the name ends in, "2013_01" of "era5_2013_01.nc": digits with '-' and '_' between them, of which the
 * first group has at least four; length 0: there is none. */
static const char *find_date(const char *name, size_t *length)
{
    const char *end = find_extension(name, true), *begin = end;
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
        find_date(name, &length);
        return length > 0;
    }
    const char *end = find_extension(name, false);
    return end != NULL && end - name >= 4 && strspn(end - 4, "0123456789") == 4;
}

/* ---- what else is there ---- */

/* Has the name an ending of data anywhere, as "2002.h5.part" and "2002.grib" have? */
static bool looks_like_data(const char *name)
{
    static const char *const endings[] = {"h5",     "hdf5", "hdf", "he5",  "nc",    "nc3",  "nc4", "cdf",
                                          "netcdf", "grib", "grb", "grb2", "grib2", "zarr", "npy", NULL};
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (vt_text_place(dot + 1, strcspn(dot + 1, "."), endings) >= 0) return true;
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

static int compare_dates(const char *a, const char *b)
{
    size_t length[2];
    const char *dates[2] = {find_date(vt_file_name(a), &length[0]), find_date(vt_file_name(b), &length[1])};
    VT_ASSERT(dates[0] != NULL && dates[1] != NULL); /* is_wanted saw one */
    int order = strncmp(dates[0], dates[1], length[0] < length[1] ? length[0] : length[1]);
    return order != 0 ? order : length[0] < length[1] ? -1 : length[0] > length[1];
}

static int by_date(const void *a, const void *b)
{
    int order = compare_dates(*(char *const *)a, *(char *const *)b);
    return order != 0 ? order : vt_by_name(a, b);
}

static void add_group(vt_file_list *list, int64_t first)
{
    list->groups = vt_grow(list->groups, (size_t)list->group_count, sizeof *list->groups, "the list of data files");
    list->groups[list->group_count++] = (vt_file_group){.first = first};
}

static void find_groups(vt_file_list *list, bool variables)
{
    for (int64_t i = 0; i < list->count; i++) {
        if (i == 0 || !variables || compare_dates(list->paths[i - 1], list->paths[i]) != 0) add_group(list, i);
        list->groups[list->group_count - 1].count++;
    }
}

/* What is in the directory besides the files to be read: data with a year in the wrong place, what else may be data,
 * and all other files but hidden ones. */
enum { MISNAMED, DOUBTFUL, OTHER, KINDS };

/* Takes over the path. */
static void append(vt_file_list *list, char *path)
{
    list->paths = vt_grow(list->paths, (size_t)list->count, sizeof *list->paths, "a list of files");
    list->paths[list->count++] = path;
}

/* The first few names, "a, b, c and 7 more". */
static void name_some(char **paths, int64_t count, vt_text *text)
{
    enum { MOST = 12 };
    for (int64_t i = 0; i < count && i < MOST; i++)
        vt_text_append(text, "%s%s", i > 0 ? ", " : "", vt_file_name(paths[i]));
    if (count > MOST) vt_text_append(text, " and %ld more", count - MOST);
}

static void note_others(vt_file_list *list, const vt_names *others, const char *directory, const char *option_name)
{
    static const char *const what[KINDS] = {"", "not read, though it may be data: ", "left alone: "};
    char **const sentences[KINDS] = {&list->misnamed, &list->doubtful, &list->left_alone};
    for (int kind = 0; kind < KINDS; kind++) {
        const vt_names *other = &others[kind];
        vt_text text = {0};
        if (other->count == 0) continue;
        vt_text_append(&text, "%s '%s': %s", option_name, directory, what[kind]);
        name_some(other->names, other->count, &text);
        if (kind == MISNAMED) {
            const char *it = other->count > 1 ? "them" : "it";
            vt_text_append(&text,
                           " would not be read, for a name of data ends in its date, like 2013.h5; rename %s, or move "
                           "%s elsewhere. The files that would be read: ",
                           it, it);
            name_some(list->paths, list->count, &text);
        }
        *sentences[kind] = text.characters;
    }
}

/* If there is nothing to read: what is there instead, "; it holds a, b", malloc'd. */
static char *say_what_is_there(const vt_names *others)
{
    vt_text text = {0};
    vt_text_append(&text, "%s", "");
    for (int kind = 0; kind < KINDS; kind++) {
        if (others[kind].count == 0) continue;
        vt_text_append(&text, text.length > 0 ? ", " : "; it holds ");
        name_some(others[kind].names, others[kind].count, &text);
    }
    return text.characters;
}

static void sort_in(vt_file_list *list, vt_names *others, const char *directory, const char *name, bool variables)
{
    char *path = vt_text_format("%s/%s", directory, name);
    const bool is_misnamed = find_extension(name, variables) != NULL && has_year(name);
    vt_names *other = &others[is_misnamed ? MISNAMED : looks_like_data(name) ? DOUBTFUL : OTHER];
    if (is_wanted(name, variables))
        append(list, path);
    else if (name[0] == '.')
        free(path);
    else
        vt_names_take(other, path);
}

/* ---- files whose names say no date ---- */

static void try_out(const char *const *words, int64_t count)
{
    vt_names held = {0};
    VT_ASSERT(count == 2);
    (void)vt_netcdf_holds(words[0], words[1], &held);
    vt_names_close(&held);
}

static bool share_a_name(const vt_names *one, const vt_names *other)
{
    for (int64_t i = 0; i < one->count; i++)
        for (int64_t j = 0; j < other->count; j++)
            if (strcmp(one->names[i], other->names[j]) == 0) return true;
    return false;
}

/* One that has none of the variables is left alone; one that has some of those of the group before begins another. */
static vt_status make_groups(vt_file_list *list, char **paths, int64_t count, const char *variables)
{
    vt_status status = VT_OK;
    vt_names together = {0}, held = {0};
    for (int64_t i = 0; i < count; i++) {
        vt_names_close(&held);
        VT_TRY(vt_trial(paths[i], 0, try_out, (const char *[]){paths[i], variables}, 2));
        VT_TRY(vt_netcdf_holds(paths[i], variables, &held));
        if (held.count == 0) continue;
        if (list->group_count == 0 || share_a_name(&together, &held)) {
            add_group(list, list->count);
            vt_names_close(&together);
        }
        for (int64_t j = 0; j < held.count; j++) vt_names_add(&together, held.names[j]);
        list->groups[list->group_count - 1].count++;
        append(list, vt_text_copy(paths[i]));
    }
done:
    vt_names_close(&together);
    vt_names_close(&held);
    return status;
}

static vt_status find_beginning(const vt_file_list *list, const vt_fields_form *form, vt_file_group *own)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    vt_fields_form whole = *form;
    whole.period = whole.time_step = NULL;
    VT_TRY(vt_fields_file_open((const char *const *)list->paths + own->first, own->count, &whole, &file));
    VT_CHECK(file->times.known,
             "%s: neither its name nor a time coordinate says when its times are%s%s; rename it "
             "like air_2013.nc",
             list->paths[own->first], file->times.doubt != NULL ? ": " : "",
             file->times.doubt != NULL ? file->times.doubt : "");
    own->begin = file->times.begin;
done:
    vt_fields_file_close(&file);
    return status;
}

static int by_beginning(const void *a, const void *b)
{
    const int64_t left = ((const vt_file_group *)a)->begin.minutes, right = ((const vt_file_group *)b)->begin.minutes;
    return (left > right) - (left < right);
}

/* Takes all files that may be data; a period says which of their times are wanted. Files that hold different variables
 * are a group. Groups are in the order of their first times; fails where a file has no time coordinate that says it. */
static vt_status take_undated(vt_file_list *list, vt_names *others, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    vt_names all = {0};
    for (int kind = MISNAMED; kind <= DOUBTFUL; kind++)
        for (int64_t i = 0; i < others[kind].count; i++)
            if (find_extension(vt_file_name(others[kind].names[i]), true) != NULL)
                vt_names_add(&all, others[kind].names[i]);
    vt_names_sort(&all);
    VT_TRY(make_groups(list, all.names, all.count, form->variables));
    for (int64_t i = 0; i < list->group_count; i++) VT_TRY(find_beginning(list, form, &list->groups[i]));
    if (list->group_count > 0) qsort(list->groups, (size_t)list->group_count, sizeof *list->groups, by_beginning);
done:
    vt_names_close(&all);
    return status;
}

/* ---- the list ---- */

vt_status vt_file_list_open(const char *directory, const char *option_name, const vt_fields_form *form,
                            vt_file_list *list)
{
    vt_status status = VT_OK;
    const bool variables = form->variables != NULL;
    bool netcdf = false;
    DIR *opened = NULL;
    vt_names others[KINDS] = {{0}};
    char *instead = NULL;
    *list = (vt_file_list){0};
    if (vt_store_is_directory(directory)) {
        append(list, vt_text_copy(directory));
        find_groups(list, false);
        goto done;
    }
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
        sort_in(list, others, directory, entry->d_name, variables);
        netcdf = netcdf || is_wanted(entry->d_name, true);
        errno = 0;
    }
    VT_CHECK(errno == 0, "%s '%s': can't read the directory: %s", option_name, directory, strerror(errno));
    for (int kind = 0; kind < KINDS; kind++) vt_names_sort(&others[kind]);
    if (list->count == 0 && variables && form->period != NULL) VT_TRY(take_undated(list, others, form));
    if (list->group_count > 0) goto done;
    if (list->count == 0) instead = say_what_is_there(others);
    VT_CHECK(list->count > 0 || variables || !netcdf,
             "%s '%s': no files *YYYY.h5 in it, but netCDF files: say which of their variables are the channels, "
             "--variables=[u10,v10,t2m,z@500], see docs/data.md",
             option_name, directory);
    VT_CHECK(list->count > 0 || !variables,
             "%s '%s': no files *YYYY.nc or *YYYY.h5 (names that end in a date, like air.2013.nc) in it%s; with "
             "--train_period=1979..2015 any names will do, see docs/data.md",
             option_name, directory, instead);
    VT_CHECK(list->count > 0,
             "%s '%s': no files *YYYY.h5 (names that end in a year, like 2013.h5) in it%s. Make a synthetic set with "
             "`vitrain synth`, or see docs/data.md",
             option_name, directory, instead);
    qsort(list->paths, (size_t)list->count, sizeof *list->paths, variables ? by_date : vt_by_name);
    find_groups(list, variables);
    note_others(list, others, directory, option_name);
done:
    if (opened != NULL) closedir(opened);
    free(instead);
    for (int kind = 0; kind < KINDS; kind++) vt_names_close(&others[kind]);
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

/* If they don't all survive, each is tried by itself when it is used. */
static void try_together(vt_file_list *list, int64_t group, const vt_fields_form *form)
{
    enum { TOGETHER = 16 };
    const int64_t left = list->group_count - group, count = left < TOGETHER ? left : TOGETHER;
    if (list->group_count < TOGETHER || list->groups[group].trial != VT_GROUP_UNTRIED) return;
    const char **paths = vt_allocate((size_t)(list->count + count), sizeof *paths, "the list of data files");
    int64_t words = 0;
    for (const vt_file_group *own = list->groups + group; own < list->groups + group + count; own++) {
        if (words > 0) paths[words++] = NULL;
        for (int64_t i = 0; i < own->count; i++) paths[words++] = list->paths[own->first + i];
    }
    const bool survive = vt_fields_files_try(paths, words, form) == VT_OK;
    if (!survive) vt_error_clear();
    for (int64_t i = 0; i < count; i++) list->groups[group + i].trial = survive ? VT_GROUP_GOOD : VT_GROUP_ALONE;
    free(paths);
}

const char *vt_file_list_path(const vt_file_list *list, int64_t group)
{
    return list->paths[list->groups[group].first];
}

vt_status vt_file_list_use(vt_file_list *list, int64_t group, const vt_fields_form *form, vt_fields_file **file)
{
    vt_status status = VT_OK;
    vt_file_group *own = &list->groups[group];
    const char *const *paths = (const char *const *)list->paths + own->first;
    *file = NULL;
    try_together(list, group, form);
    VT_TRY(
        (own->trial == VT_GROUP_GOOD ? vt_fields_file_open_again : vt_fields_file_open)(paths, own->count, form, file));
    own->trial = VT_GROUP_GOOD;
done:
    return status;
}

void vt_file_list_leave_out(vt_file_list *list, int64_t group)
{
    vt_file_group *own = &list->groups[group];
    vt_fields_file_close(&own->file);
    memmove(own, own + 1, (size_t)(--list->group_count - group) * sizeof *own);
}

void vt_file_list_close(vt_file_list *list)
{
    vt_text_free_list(list->paths, list->count);
    for (int64_t i = 0; i < list->group_count; i++) vt_fields_file_close(&list->groups[i].file);
    free(list->groups);
    free(list->misnamed);
    free(list->doubtful);
    free(list->left_alone);
    *list = (vt_file_list){0};
}
