#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "command/arguments.h"
#include "source/fields/statistics.h"
#include "storage/output_file.h"
#include "task/weather/seasonal.h"

static const char help[] =
    "vitrain stats DIR [flags]: mean and standard deviation of every channel and of its changes, the mean "
    "fields over\n"
    "time, and the seasonal climatology (docs/evaluation.md).\n"
    "DIR is a data directory: DIR/train is read, DIR/stats written. Or it is a directory of files *YYYY.h5:\n"
    "`stats` is written beside it when it is called `train`, else inside it. Of a Zarr store era5.zarr it is\n"
    "era5.stats.\n\n";

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Where the files are, and where the statistics go, so that data_dir's defaults find them. Both malloc'd. `whole`: the
 * files lie in the directory itself, of which a period chooses. */
static void find_directories(const char *operand, const char *chosen_output, bool whole, char **files, char **output)
{
    size_t length = strlen(operand);
    while (length > 1 && operand[length - 1] == '/') length--;
    char *directory = vt_text_format("%.*s", (int)length, operand);
    const char *slash = strrchr(directory, '/');
    const char *name = slash != NULL ? slash + 1 : directory;
    *files = vt_text_format("%s/train", directory);
    if (vt_file_is_zarr(directory)) { /* beside the store, not in it */
        free(*files);
        *files = vt_text_copy(directory);
        *output = vt_text_format(
            "%.*s.stats", (int)(vt_text_ends_with(directory, ".zarr") ? strlen(directory) - 5 : strlen(directory)),
            directory);
    } else if (!whole && is_directory(*files)) {
        *output = vt_text_format("%s/stats", directory);
    } else {
        free(*files);
        *files = vt_text_copy(directory);
        if (strcmp(name, "train") == 0)
            *output = vt_text_format("%.*sstats", (int)(name - directory), directory);
        else
            *output = vt_text_format("%s/stats", directory);
    }
    if (chosen_output != NULL) {
        free(*output);
        *output = vt_text_copy(chosen_output);
    }
    free(directory);
}

/* Nothing is replaced. But a set whose statistics were made elsewhere, or by an older version, lacks the last two
 * files, and gets these alone: *keeps. */
static vt_status check_overwriting(const char *directory, bool *keeps)
{
    static const char *const names[] = {"global_means.npy",   "global_stds.npy", "time_means.npy",
                                        "time_diff_stds.npy", "climatology.h5",  "about.json"};
    enum { NAMES = sizeof names / sizeof names[0], OLD = 3, LATER = 5 };
    vt_status status = VT_OK;
    bool there[NAMES];
    int first = NAMES, old = 0, later = 0;
    for (int i = 0; i < NAMES; i++) {
        char *path = vt_text_format("%s/%s", directory, names[i]);
        there[i] = vt_output_exists(path);
        free(path);
        if (there[i] && first == NAMES) first = i;
        if (i < LATER) *(i < OLD ? &old : &later) += there[i];
    }
    *keeps = old == OLD && later == 0;
    VT_CHECK(old + later == 0 || *keeps, "%s/%s exists already; give --force to replace it, or another --output",
             directory, names[first]);
done:
    return status;
}

static void print_table(const vt_statistics *statistics, const vt_time_statistics *times)
{
    vt_print("%7s  %-12s %14s %14s %14s\n", "channel", "name", "mean", "std", "std of change");
    for (int64_t c = 0; c < vt_statistics_channels(statistics); c++) {
        const char *name = vt_statistics_channel_name(statistics, c);
        vt_print("%7lld  %-12s %14.7g %14.7g %14.7g\n", (long long)c, name[0] != '\0' ? name : "-",
                 vt_statistics_mean(statistics, c), vt_statistics_std(statistics, c),
                 vt_text_plain_nan(vt_time_statistics_change_std(times, c)));
    }
}

vt_status vt_command_stats(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_statistics *statistics = NULL;
    const char *operand = NULL, *chosen_output = NULL, *lat_range = NULL, *lon_range = NULL;
    vt_argument_choice missing = {"refuse", "refuse|mask"};
    vt_statistics_source source = {.option_name = "data directory", .form.period_option = "train_period"};
    char *files = NULL, *output = NULL, *notes = NULL;
    int64_t dt = 1, harmonics = 1;
    bool force = false, keeps = false;
    const vt_argument flags[] = {
        {"output", VT_ARGUMENT_PATH, &chosen_output, 0, 0, "directory for the files, made when missing"},
        {"variables", VT_ARGUMENT_TEXT, &source.form.variables, 0, 0,
         "netCDF: the variables that are the channels, [u10,z@500]"},
        {"coordinates", VT_ARGUMENT_TEXT, &source.form.coordinates, 0, 0, "names of coordinates, [lat=FNOCY,time=T]"},
        {"time_step", VT_ARGUMENT_TEXT, &source.form.time_step, 0, 0,
         "as in training: 6h takes these of hourly times, or is the time between those of files that don't say it"},
        {"train_period", VT_ARGUMENT_TEXT, &source.form.period, 0, 0,
         "1979..2015: of these times; DIR then holds the files, or is a Zarr store"},
        {"harmonics", VT_ARGUMENT_INTEGER, &harmonics, 0, VT_SEASONAL_HARMONICS,
         "of the year in the seasonal climatology, beside the mean"},
        {"dt", VT_ARGUMENT_INTEGER, &dt, 1, 100000,
         "times of the files over which changes are measured: training's dt"},
        {"lat_range", VT_ARGUMENT_TEXT, &lat_range, 0, 0, "of a window only: [south, north] in degrees"},
        {"lon_range", VT_ARGUMENT_TEXT, &lon_range, 0, 0, "[west, east] in degrees"},
        {"missing", VT_ARGUMENT_CHOICE, &missing, 0, 0, "as in training: a missing value is an error, or left out"},
        {"accept", VT_ARGUMENT_TEXT, &source.form.accept, 0, 0,
         "as in training: what files may differ in, [channels,units,grid,calendar,step]"},
        {"skip_bad_samples", VT_ARGUMENT_SWITCH, &source.tolerant, 0, 0, "leave out times that can't be read"},
        {"force", VT_ARGUMENT_SWITCH, &force, 0, 0, "replace files that are there"},
    };
    const vt_command_line line = {
        .command = "stats", .help = help, VT_FLAGS(flags), .operand_name = "data directory", .operand = &operand};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    source.form.masked = strcmp(missing.chosen, "mask") == 0;
    find_directories(operand, chosen_output, source.form.period != NULL, &files, &output);
    source.directory = files;
    VT_TRY(vt_window_range_parse(lat_range, lon_range, &source.range));
    if (!force) VT_TRY(check_overwriting(output, &keeps));
    source.times = vt_time_statistics_open(dt, harmonics);
    VT_TRY(vt_statistics_gather(&source, &statistics));
    VT_ASSERT(statistics != NULL);
    if (!keeps) VT_TRY(vt_statistics_write(statistics, output));
    vt_fields_about *about = vt_statistics_about_of(statistics);
    about->dt = dt;
    VT_TRY(vt_time_statistics_write(source.times, output, about, &notes));
    vt_fields_about_sign(about, "stats");
    VT_TRY(vt_statistics_write_about(statistics, source.times, !keeps, output));
    print_table(statistics, source.times);
    const int64_t left_out = vt_statistics_left_out(statistics);
    vt_print("%lld times of %s", (long long)vt_statistics_times(statistics), files);
    if (left_out > 0) vt_print(", %lld left out", (long long)left_out);
    vt_print("; written to %s\n%s", output, notes);
    if (keeps) vt_print("the .npy files that were there stay as they are; --force replaces them\n");
done:
    vt_time_statistics_close(&source.times);
    vt_statistics_close(&statistics);
    free(files);
    free(output);
    free(notes);
    return status;
}
