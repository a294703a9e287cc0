#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "command/inspect.h"
#include "config/config.h"
#include "source/fields/dataset.h"
#include "source/fields/fields_file.h"
#include "source/fields/file_list.h"
#include "source/fields/statistics.h"
#include "storage/npy.h"
#include "storage/output_file.h"
#include "storage/store.h"
#include "storage/unpack.h"

/* The range of the examined values of a channel, without missing ones. */
typedef struct {
    float least, most;
    int64_t missing;
} value_range;

/* What all files of a directory have in common, and hold together. */
typedef struct {
    vt_fields_about *about; /* NULL: none could be opened yet */
    vt_text remarks;
    char *doubt;         /* why a file's times are unknown, or NULL */
    int64_t groups;      /* the files of one date count once */
    value_range *ranges; /* [channels] */
    int64_t looked_at;   /* times */
} file_set;

static void add_values(value_range *range, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        range->missing += isnan(values[i]);
        range->least = fminf(range->least, values[i]);
        range->most = fmaxf(range->most, values[i]);
    }
}

/* Without --verify examines a few times of a few files. Invalid values are an error (so are missing ones unless they
 * are allowed); the time coordinate is always checked completely. */
static vt_status look_at_values(vt_fields_file *file, int64_t index, bool verify, file_set *set)
{
    enum { SAMPLE = 12 }; /* times of all files together, approximately */
    vt_status status = VT_OK;
    const vt_fields_about *about = file->about;
    const int64_t plane = about->rows * about->columns, apart = (set->groups + SAMPLE - 1) / SAMPLE;
    const int64_t wanted = verify ? about->times : SAMPLE / set->groups > 1 ? SAMPLE / set->groups : 1;
    const int64_t count = wanted < about->times ? wanted : about->times;
    float *values = NULL;
    vt_status fault = VT_OK;
    if (!verify && index % apart != 0) return VT_OK;
    values = malloc((size_t)(about->channels * plane) * sizeof *values);
    VT_CHECK(values != NULL, "out of memory for the fields of one time of %s", file->path);
    for (int64_t i = 0; i < count; i++) {
        const int64_t time = count > 1 ? i * (about->times - 1) / (count - 1) : about->times / 2;
        VT_TRY(vt_fields_file_read(file, time, about->channels, &about->window, false, values));
        for (int64_t c = 0; c < about->channels; c++) add_values(&set->ranges[c], values + c * plane, plane);
        set->looked_at++;
        if (fault == VT_OK && !vt_all_finite(values, about->channels * plane))
            fault = vt_fields_file_read(file, time, about->channels, &about->window, true, values);
    }
    VT_TRY(fault);
done:
    free(values);
    return status;
}

/* "      t2m          K          213.4  318.2": the range of the examined values. */
static void print_ranges(const vt_fields_file *file, const file_set *set, bool verify)
{
    char *const *names = file->about->names;
    if (set->looked_at == 0) return;
    vt_print("    least and greatest values of %s%ld times%s:\n", verify ? "all " : "", set->looked_at,
             verify ? "" : " (--verify: of all)");
    for (int64_t c = 0; c < set->about->channels; c++) {
        const value_range *range = &set->ranges[c];
        char number[32] = "";
        const char *name = names != NULL ? names[c] : "";
        if (name[0] == '\0') snprintf(number, sizeof number, "channel %ld", c);
        vt_print("      %-12s %-10s", name[0] != '\0' ? name : number, file->about->meanings[c].units);
        if (range->least <= range->most) vt_print(" %12.6g %12.6g", (double)range->least, (double)range->most);
        if (range->missing > 0) vt_print("  %ld missing", range->missing);
        vt_print("\n");
    }
}

/* What the files don't say, or say in another way than most. */
static void print_oddities(const vt_fields_file *file, const vt_fields_about *about, const vt_fields_form *form)
{
    static const char *const names[2] = {"latitudes", "longitudes"};
    const double *const coordinates[2] = {file->about->latitudes, file->about->longitudes};
    char step[VT_DATE_SIZE];
    for (int i = 0; i < 2; i++) {
        if (coordinates[i] != NULL) continue;
        vt_print("    no %s are known", names[i]);
        if (file->doubts[i] != NULL) vt_print(" (%s)", file->doubts[i]);
        vt_print("\n");
    }
    if (file->about->turned) vt_print("    rows run from south to north in the file, and are turned round\n");
    if (about->dated && about->span_count > 0) return;
    vt_length_format(about->step == 0 ? 60 * VT_HOURS_A_TIME : about->step, step);
    vt_print("    the files don't say when their times are: in the year of their names, every %s %s\n", step,
             about->step == 0          ? "is assumed (--time_step=24h says another)"
             : form->time_step != NULL ? "by --time_step"
                                       : "by their number, or the attribute time_step");
}

/* The files of one date; a single file unless there are variables. */
static vt_status look_at_file(vt_file_list *list, int64_t index, const vt_fields_form *form, bool verify, file_set *set,
                              vt_fields_file **first)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    VT_TRY(vt_file_list_use(list, index, form, &file));
    VT_TRY(vt_fields_file_check_written(file));
    const vt_fields_about *about = file->about;
    if (about->times == 0 && form->period != NULL) goto done; /* other files have the period's times */
    if (set->about == NULL) {
        set->ranges = vt_allocate((size_t)about->channels, sizeof *set->ranges, "the channels of a set");
        for (int64_t c = 0; c < about->channels; c++) set->ranges[c] = (value_range){INFINITY, -INFINITY, 0};
    }
    VT_TRY(vt_fields_about_add_file(&set->about, file, form, &about->window, &set->remarks));
    const char *doubt = file->times.doubt != NULL ? file->times.doubt : file->times.oddity;
    if (doubt != NULL && set->doubt == NULL) set->doubt = vt_text_copy(doubt);
    if (*first == NULL) *first = file;
    VT_TRY(look_at_values(file, index, verify, set));
done:
    if (*first == file) file = NULL;
    vt_fields_file_close(&file);
    return status;
}

static void print_warning(const char *sentence)
{
    if (sentence != NULL) vt_print("    WARNING: %s\n", sentence);
}

/* Lines; "!" begins a warning. */
static void print_lines(const char *text)
{
    for (int length; text != NULL && text[0] != '\0'; text += length + (text[length] == '\n')) {
        const bool warns = text[0] == '!';
        length = (int)strcspn(text, "\n");
        vt_print("    %s%.*s\n", warns ? "WARNING: " : "", length - warns, text + warns);
    }
}

/* What the files hold together, to be closed; NULL: nothing that can be read.
 * "  train: 26 files 1979.h5 … 2004.h5, 37960 times (9490 days), 20 channels of [360, 720], 787 GB" */
static vt_fields_about *print_files(const char *directory, const char *label, const vt_fields_form *form, bool verify,
                                    int *faults)
{
    vt_file_list list = {0};
    file_set set = {0};
    vt_fields_file *first = NULL;
    char size[VT_NUMBER_SIZE];
    if (!vt_inspect_check(faults, vt_file_list_open(directory, label, form, &list))) return NULL;
    vt_names noted = {0};
    const vt_file_group *last = list.groups + list.group_count - 1;
    set.groups = list.group_count;
    for (int64_t i = 0; i < list.group_count; i++) {
        if (look_at_file(&list, i, form, verify, &set, &first) == VT_OK) continue;
        vt_names_add(&noted, vt_error_text());
        vt_error_clear();
    }
    vt_print("  %s: %ld file%s %s", label, list.count, list.count == 1 ? "" : "s",
             vt_file_name(vt_file_list_path(&list, 0)));
    if (list.count > 1) vt_print(" … %s", vt_file_name(list.paths[last->first + last->count - 1]));
    const vt_fields_about *about = set.about;
    if (about != NULL) {
        const int64_t step = about->step > 0 ? about->step : 60 * VT_HOURS_A_TIME;
        vt_print(", %ld times (%.4g days), %ld channels of [%ld, %ld], %s", about->times,
                 vt_length_hours(about->times * step) / 24, about->channels, about->rows, about->columns,
                 vt_text_bytes((double)(about->times * about->channels * about->rows * about->columns) * 4, size));
    }
    vt_print("\n");
    if (about == NULL && noted.count == 0)
        vt_names_take(&noted, vt_text_format("%s '%s': none of its times lies in %s %s", label, directory,
                                             form->period_option, form->period));
    if (about != NULL && first != NULL) {
        char *storage = vt_fields_file_storage(first);
        vt_fields_about_print(about, "    ");
        print_oddities(first, about, form);
        print_lines(storage);
        print_ranges(first, &set, verify);
        free(storage);
    }
    print_lines(set.remarks.characters);
    print_warning(set.doubt);
    if (list.misnamed != NULL) vt_inspect_fault(faults, "%s", list.misnamed);
    for (int64_t i = 0; i < noted.count; i++) vt_inspect_fault(faults, "%s", noted.names[i]);
    vt_names_close(&noted);
    free(set.ranges);
    vt_fields_file_close(&first);
    vt_file_list_close(&list);
    vt_text_close(&set.remarks);
    free(set.doubt);
    return set.about;
}

/* ---- checks that training makes, too ---- */

enum { SETS = 3 };
static const char *const sets[SETS] = {"train", "valid", "test"};

static vt_status compare_sets(vt_fields_about *const *abouts, const char *accepted)
{
    static const char *const words[SETS] = {"training", "validation", "test"};
    vt_status status = VT_OK;
    vt_text remarks = {0};
    vt_time_span shared;
    char dates[2][VT_DATE_SIZE];
    const vt_fields_rules rules = {.use = VT_SETS_OF_A_RUN, .accepted = accepted};
    for (int i = 0; i < SETS; i++)
        for (int j = i + 1; j < SETS; j++) {
            if (abouts[i] == NULL || abouts[j] == NULL) continue;
            const vt_fields_side one = {abouts[i], sets[i]}, other = {abouts[j], sets[j]};
            VT_TRY(vt_fields_compare(&rules, &other, &one, &remarks));
            if (!vt_fields_share_times(abouts[i], abouts[j], &shared)) continue;
            vt_print("    WARNING: %s and %s overlap: the times from %s to %s are in both. Scores on times that the "
                     "model was trained on, or chosen by, look better than its forecasts are; keep each time in one of "
                     "the two\n",
                     words[i], words[j], vt_date_format(shared.first, dates[0]), vt_date_format(shared.last, dates[1]));
        }
done:
    print_lines(remarks.characters);
    vt_text_close(&remarks);
    return status;
}

/* Do they go with the data, the training set's if there is one? */
static vt_status check_statistics(const char *directory, const vt_fields_about *about, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    const vt_fields_rules rules = {
        .use = VT_STATISTICS_AND_DATA, .accepted = form->accept, .trains = true, .any_transform = true};
    const vt_fields_side data = {about, "the data"};
    float *values = vt_allocate((size_t)about->channels + 1, sizeof *values, "the statistics");
    int64_t checksum;
    vt_text remarks = {0};
    for (int i = 0; i < 2 && status == VT_OK; i++) {
        char *path = vt_text_format("%s/%s", directory, vt_normalising_names[i]);
        status = vt_statistics_read(path, (vt_normalising_file)i, &rules, &data, values, &checksum, &remarks);
        free(path);
    }
    if (remarks.length > 0) vt_print("    %.*s\n", (int)strcspn(remarks.characters, "\n"), remarks.characters);
    vt_text_close(&remarks);
    free(values);
    return status;
}

static void print_statistics(const char *directory, const vt_fields_about *about, const vt_fields_form *form,
                             int *faults)
{
    static const char *const names[] = {"global_means.npy", "global_stds.npy", "time_means.npy"};
    const bool has_time_means = vt_output_holds(directory, names[2]); /* without it training works, too */
    const int before = *faults;
    if (!vt_output_holds(directory, names[0]) && !vt_output_holds(directory, names[1])) { /* data that are new */
        vt_print("  stats: none yet; `vitrain stats` makes them\n");
        return;
    }
    vt_print("  stats:\n");
    for (int i = 0; i < (has_time_means ? 3 : 2); i++) {
        char *path = vt_text_format("%s/%s", directory, names[i]), shape[128];
        vt_npy array = {0};
        if (vt_inspect_check(faults, vt_npy_open(path, &array))) {
            vt_tensor_shape_text(&array.shape, shape);
            vt_print("    %s %s\n", names[i], shape);
        }
        vt_npy_close(&array);
        free(path);
    }
    if (!has_time_means) vt_print("    no time_means.npy: evaluate will score no mean field and no ACC against it\n");
    if (!vt_output_holds(directory, "climatology.h5"))
        vt_print(
            "    no climatology.h5: evaluate will score no skill and no ACC against the season; `vitrain stats` makes "
            "it\n");
    if (*faults == before && about != NULL) vt_inspect_check(faults, check_statistics(directory, about, form));
}

/* ---- a Zarr store ---- */

/* "    t2m [time 120, latitude 32, longitude 64] float, 4 bytes: chunks of [40, 32, 64], blosc (lz4)" */
static vt_status print_array(const vt_store *store, const char *name)
{
    vt_status status = VT_OK;
    vt_array *array = NULL;
    char dimension[64];
    VT_TRY(vt_array_find(store, name, &array));
    vt_print("    %s [", name);
    for (int i = 0; i < array->rank; i++) {
        store->kind->dimension_name(array, i, dimension, sizeof dimension);
        vt_print("%s%s%s%ld", i > 0 ? ", " : "", dimension, dimension[0] != '\0' ? " " : "", array->extent[i]);
    }
    if (array->element == VT_ELEMENT_NONE) {
        vt_print("] %s\n", array->type != NULL ? array->type : "no numbers");
        goto done;
    }
    vt_print("] %s, %zu byte%s", vt_element_is_float(array->element) ? "float" : "whole numbers", array->element_size,
             array->element_size > 1 ? "s" : "");
    VT_TRY(store->kind->lay_out(array));
    vt_print(": %s\n", array->storage);
done:
    if (status != VT_OK && array != NULL) vt_print("\n");
    vt_array_close(&array);
    return status;
}

/* The arrays of a store of whose variables none is named; whether there are `fields`, of which more can be told. */
static bool print_arrays(const char *path, int *faults)
{
    vt_store *store = NULL;
    vt_names names = {0};
    if (!vt_inspect_check(faults, vt_store_open(path, &store))) return false;
    print_warning(store->oddity);
    store->kind->list(store, "", true, &names);
    for (int64_t i = 0; i < names.count; i++) vt_inspect_check(faults, print_array(store, names.names[i]));
    const bool has_fields = store->kind->has_array(store, "fields");
    if (!has_fields)
        vt_print("    --variables=[%s] tells more of some of them\n",
                 store->kind->has_array(store, "2m_temperature") ? "t2m,z@500" : "NAME,NAME@LEVEL");
    vt_names_close(&names);
    vt_store_close(&store);
    return has_fields;
}

void vt_inspect_data(const char *directory, const vt_config *config, bool verify, int *faults)
{
    vt_fields_form form = vt_fields_options(config, VT_SET_TRAINING).form;
    bool any = false, chosen = false;
    vt_fields_about *abouts[SETS] = {NULL}, *about = NULL; /* of each set, and of the first of them */
    const int before = *faults;
    const bool is_store = vt_store_is_directory(directory);
    vt_print("%s: data\n", directory);
    fflush(stdout);
    if (is_store && form.variables == NULL && !print_arrays(directory, faults)) return;
    form.period = NULL;
    for (int i = 0; i < SETS; i++) chosen = chosen || vt_fields_options(config, (vt_set)i).form.period != NULL;
    for (int i = 0; i < SETS; i++) {
        const vt_fields_form own = vt_fields_options(config, (vt_set)i).form;
        const bool by_period = own.period != NULL, wanted = i < 2 && !chosen; /* a test year is optional */
        char *path = by_period ? vt_text_copy(directory) : vt_text_format("%s/%s", directory, sets[i]);
        if (by_period || vt_output_exists(path)) {
            abouts[i] = print_files(path, sets[i], &own, verify, faults);
            any = true;
        } else if (any && wanted) {
            vt_inspect_fault(faults, "there is no %s", path);
        }
        free(path);
    }
    if (!any) abouts[0] = print_files(directory, "files", &form, verify, faults);
    for (int i = SETS - 1; i >= 0; i--) about = abouts[i] != NULL ? abouts[i] : about;
    if (*faults == before) vt_inspect_check(faults, compare_sets(abouts, form.accept));
    if (!any) goto done;
    char *statistics = is_store ? vt_config_beside_store(directory, "stats") : vt_text_format("%s/stats", directory);
    print_statistics(statistics, about, &form, faults);
    free(statistics);
done:
    for (int i = 0; i < SETS; i++) vt_fields_about_close(&abouts[i]);
}
