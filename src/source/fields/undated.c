/* Files whose names say no date, in a folder of which a period is chosen: their time coordinates say when they are. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/fields_inside.h"
#include "source/fields/file_list.h"
#include "storage/trial.h"

/* Files that hold the variables together, at the same times. */
typedef struct {
    int64_t first, count; /* of the paths */
    vt_date begin;
} group;

static void try_out(const char *const *words, int64_t count)
{
    uint64_t held;
    VT_ASSERT(count == 2);
    (void)vt_netcdf_holds(words[0], words[1], &held);
}

/* One that has none of the variables is left alone; one that has some of those of the group before begins another. */
static vt_status make_groups(vt_file_list *list, char **paths, int64_t count, const char *variables, group *groups,
                             int64_t *group_count)
{
    vt_status status = VT_OK;
    uint64_t together = 0, held = 0;
    for (int64_t i = 0; i < count; i++) {
        VT_TRY(vt_trial(paths[i], 0, try_out, (const char *[]){paths[i], variables}, 2));
        VT_TRY(vt_netcdf_holds(paths[i], variables, &held));
        if (held == 0) continue;
        if (*group_count == 0 || (together & held) != 0) {
            groups[(*group_count)++] = (group){.first = list->count};
            together = 0;
        }
        together |= held;
        groups[*group_count - 1].count++;
        list->paths = vt_grow(list->paths, (size_t)list->count, sizeof *list->paths, "a list of files");
        list->paths[list->count++] = vt_text_copy(paths[i]);
    }
done:
    return status;
}

static vt_status find_beginning(const vt_file_list *list, const vt_fields_form *form, group *own)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    vt_fields_form whole = *form;
    whole.period = whole.time_step = NULL;
    VT_TRY(vt_fields_file_open((const char *const *)list->paths + own->first, own->count, &whole, &file));
    VT_CHECK(file->times.count > 0,
             "%s: neither its name nor a time coordinate says when its times are%s%s; rename it "
             "like air_2013.nc",
             list->paths[own->first], file->times.doubt != NULL ? ": " : "",
             file->times.doubt != NULL ? file->times.doubt : "");
    own->begin = file->times.stretches[0].date;
done:
    vt_fields_file_close(&file);
    return status;
}

static int by_beginning(const void *a, const void *b)
{
    const int64_t left = ((const group *)a)->begin.minutes, right = ((const group *)b)->begin.minutes;
    return (left > right) - (left < right);
}

vt_status vt_file_list_take_undated(vt_file_list *list, char **paths, int64_t count, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    group *groups = vt_allocate((size_t)count + 1, sizeof *groups, "the list of data files");
    char **sorted = vt_allocate((size_t)count + 1, sizeof *sorted, "the list of data files");
    int64_t found = 0, next = 0;
    VT_TRY(make_groups(list, paths, count, form->variables, groups, &found));
    for (int64_t i = 0; i < found; i++) VT_TRY(find_beginning(list, form, &groups[i]));
    qsort(groups, (size_t)found, sizeof *groups, by_beginning);
    list->first = vt_allocate((size_t)found + 1, sizeof *list->first, "the list of data files");
    for (; list->groups < found; list->groups++) {
        list->first[list->groups] = next;
        for (int64_t i = 0; i < groups[list->groups].count; i++)
            sorted[next++] = list->paths[groups[list->groups].first + i];
    }
    list->first[found] = next;
    memcpy(list->paths, sorted, (size_t)next * sizeof *sorted);
done:
    free(groups);
    free(sorted);
    return status;
}
