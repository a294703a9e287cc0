#include "source/fields/about.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/version.h"

static const char purpose[] = "a description of data";

const char *const vt_normalising_names[VT_NORMALISING_FILES] = {
    [VT_FILE_OF_MEANS] = "global_means.npy",     [VT_FILE_OF_STDS] = "global_stds.npy",
    [VT_FILE_OF_CHANGES] = "time_diff_stds.npy", [VT_FILE_OF_TIME_MEANS] = "time_means.npy",
    [VT_FILE_OF_CLIMATOLOGY] = "climatology.h5",
};

vt_fields_about *vt_fields_about_make(void)
{
    vt_fields_about *about = vt_allocate(1, sizeof *about, purpose);
    for (int i = 0; i < VT_NORMALISING_FILES; i++) about->normalisation.checksums[i] = -1;
    return about;
}

void vt_fields_about_close(vt_fields_about **pointer)
{
    vt_fields_about *about = *pointer;
    if (about == NULL) return;
    *pointer = NULL;
    vt_text_free_list(about->names, about->channels);
    free(about->meanings);
    free(about->latitudes);
    free(about->longitudes);
    free(about->spans);
    free(about->normalisation.means);
    free(about->normalisation.stds);
    free(about->normalisation.change_stds);
    for (int i = 0; i < VT_MOST_SCALES; i++) free(about->normalisation.block_change_stds[i]);
    free(about->files);
    free(about->made_by);
    free(about->date);
    free(about);
}

vt_fields_about *vt_fields_about_of_names(const char *const *names, int64_t count)
{
    vt_fields_about *about = vt_fields_about_make();
    about->channels = count;
    about->names = vt_allocate((size_t)count + 1, sizeof *about->names, purpose);
    for (int64_t c = 0; c < count; c++) about->names[c] = vt_text_clean(names[c]);
    return about;
}

void vt_fields_about_limit(vt_fields_about *about, int64_t first, int64_t count)
{
    if (first == 0 && count >= about->channels) return;
    for (int64_t c = 0; about->names != NULL && c < about->channels; c++)
        if (c < first || c >= first + count) free(about->names[c]);
    if (about->names != NULL) memmove(about->names, about->names + first, (size_t)count * sizeof *about->names);
    if (about->meanings != NULL)
        memmove(about->meanings, about->meanings + first, (size_t)count * sizeof *about->meanings);
    about->channels = count;
}

static void take_if_missing(double **own, double **other)
{
    if (*own != NULL) return;
    *own = *other;
    *other = NULL;
}

void vt_fields_about_add_grid(vt_fields_about *about, vt_fields_about *other)
{
    take_if_missing(&about->latitudes, &other->latitudes);
    take_if_missing(&about->longitudes, &other->longitudes);
    about->rotated = about->rotated || other->rotated;
    about->imaginary = about->imaginary || other->imaginary;
    about->no_latitudes = about->no_latitudes || other->no_latitudes;
    about->turned = about->turned || other->turned;
    about->unplaced = about->unplaced || other->unplaced;
}

void vt_fields_about_add_span(vt_fields_about *about, vt_date first, vt_date last)
{
    vt_time_span *before = about->span_count > 0 ? &about->spans[about->span_count - 1] : NULL;
    if (before != NULL && about->step > 0 && vt_date_steps(before->last, first, about->step) == 1) {
        before->last = last;
        return;
    }
    about->spans = vt_grow(about->spans, (size_t)about->span_count, sizeof *about->spans, purpose);
    about->spans[about->span_count++] = (vt_time_span){first, last};
}

const char *vt_fields_about_now(char text[VT_NOW_SIZE])
{
    static const int64_t end = INT64_C(253402300800); /* the year 10000 */
    const char *given = getenv("SOURCE_DATE_EPOCH");
    int64_t seconds;
    struct tm parts;
    if (given == NULL || !vt_text_to_integer(given, &seconds) || seconds < 0 || seconds >= end) seconds = time(NULL);
    const time_t now = (time_t)seconds;
    strftime(text, VT_NOW_SIZE, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    return text;
}

void vt_fields_about_sign(vt_fields_about *about, const char *command)
{
    char text[VT_NOW_SIZE];
    free(about->made_by);
    free(about->date);
    about->made_by = vt_text_format("vitrain %s %s", vt_version, command);
    about->date = vt_text_copy(vt_fields_about_now(text));
}

double *vt_fields_about_coordinates(const vt_fields_about *about, bool longitudes)
{
    const vt_frame_window *window = &about->window;
    const int64_t count = longitudes ? window->width : window->rows;
    const double *grid = longitudes ? about->longitudes : about->latitudes;
    if (grid == NULL) return NULL;
    double *degrees = vt_allocate((size_t)count, sizeof *degrees, purpose);
    for (int64_t i = 0; i < count; i++)
        degrees[i] = grid[longitudes ? vt_window_column(window, i) : window->first_row + i];
    return degrees;
}

const vt_channel_meaning *vt_fields_about_meaning(const vt_fields_about *about, int64_t channel)
{
    static const vt_channel_meaning nothing = {0};
    return about->meanings != NULL ? &about->meanings[channel] : &nothing;
}

vt_fields_about *vt_fields_about_copy(const vt_fields_about *about)
{
    const size_t channels = (size_t)about->channels;
    const vt_fields_normalisation *numbers = &about->normalisation;
    vt_fields_about *copy = vt_copy(about, 1, sizeof *about, purpose);
    copy->names = vt_copy(about->names, channels, sizeof *about->names, purpose);
    for (size_t c = 0; c < channels && copy->names != NULL; c++) copy->names[c] = vt_text_copy(about->names[c]);
    copy->meanings = vt_copy(about->meanings, channels, sizeof *about->meanings, purpose);
    copy->latitudes = vt_copy(about->latitudes, (size_t)about->rows, sizeof(double), purpose);
    copy->longitudes = vt_copy(about->longitudes, (size_t)about->columns, sizeof(double), purpose);
    copy->spans = NULL; /* grown, so that more can be added */
    for (int64_t i = 0; i < about->span_count; i++) {
        copy->spans = vt_grow(copy->spans, (size_t)i, sizeof *copy->spans, purpose);
        copy->spans[i] = about->spans[i];
    }
    copy->normalisation.means = vt_copy(numbers->means, channels, sizeof(double), purpose);
    copy->normalisation.stds = vt_copy(numbers->stds, channels, sizeof(double), purpose);
    copy->normalisation.change_stds = vt_copy(numbers->change_stds, channels, sizeof(double), purpose);
    for (int i = 0; i < VT_MOST_SCALES; i++)
        copy->normalisation.block_change_stds[i] =
            vt_copy(numbers->block_change_stds[i], channels, sizeof(double), purpose);
    if (about->files != NULL) copy->files = vt_text_copy(about->files);
    if (about->made_by != NULL) copy->made_by = vt_text_copy(about->made_by);
    if (about->date != NULL) copy->date = vt_text_copy(about->date);
    return copy;
}

/* ---- for people ---- */

static void print_channels(const vt_fields_about *about, const char *indent)
{
    vt_print("%schannels:", indent);
    for (int64_t c = 0; c < about->channels; c++) {
        const vt_channel_meaning *meaning = vt_fields_about_meaning(about, c);
        const bool named = about->names != NULL && about->names[c][0] != '\0';
        vt_print(" %s", named ? about->names[c] : "-");
        if (meaning->units[0] != '\0') vt_print(" (%s)", meaning->units);
        if (meaning->transform[0] != '\0') vt_print(" as %s", meaning->transform);
    }
    vt_print("\n");
}

static void print_grid(const vt_fields_about *about, const char *indent)
{
    const vt_frame_window *window = &about->window;
    const int64_t rows = window->rows, columns = window->width;
    if (rows == 0) return;
    vt_print("%sgrid: %ld×%ld", indent, rows, columns);
    if (rows != about->rows || columns != about->columns)
        vt_print(" of %ld×%ld, from row %ld and column %ld on", about->rows, about->columns, window->first_row,
                 window->first_column);
    for (int k = 0; k < 2; k++) {
        double *degrees = vt_fields_about_coordinates(about, k == 1);
        if (degrees != NULL)
            vt_print(", %s %g to %g", k == 0 ? "latitudes" : "longitudes", degrees[0],
                     degrees[(k == 0 ? rows : columns) - 1]);
        free(degrees);
    }
    vt_print("%s\n", about->rotated ? ", of a rotated pole" : "");
}

static void print_times(const vt_fields_about *about, const char *indent)
{
    char dates[2][VT_DATE_SIZE], step[VT_DATE_SIZE];
    if (about->times == 0 && about->step == 0) return;
    vt_print("%stimes:", indent);
    if (about->times > 0) vt_print(" %ld", about->times);
    if (about->span_count > 0)
        vt_print(", %s to %s", vt_date_format(about->spans[0].first, dates[0]),
                 vt_date_format(about->spans[about->span_count - 1].last, dates[1]));
    if (about->step > 0) vt_print(", every %s", vt_length_format(about->step, step));
    if (about->span_count > 1) vt_print(", with %ld gaps", about->span_count - 1);
    if (about->dated) vt_print(", calendar %s", vt_calendar_name(about->calendar));
    vt_print("\n");
}

void vt_fields_about_print(const vt_fields_about *about, const char *indent)
{
    const vt_fields_normalisation *numbers = &about->normalisation;
    if (about->channels > 0) print_channels(about, indent);
    print_grid(about, indent);
    print_times(about, indent);
    if (numbers->means != NULL && about->channels > 0)
        vt_print("%snormalised: %s of the first channel by mean %g and standard deviation %g\n", indent,
                 numbers->of_departures ? "departures" : "values", numbers->means[0], numbers->stds[0]);
    if (about->files != NULL) vt_print("%sfrom: %s\n", indent, about->files);
    if (about->made_by != NULL)
        vt_print("%smade by: %s, %s\n", indent, about->made_by, about->date != NULL ? about->date : "");
}
