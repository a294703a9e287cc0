#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "source/fields/dataset.h"
#include "source/fields/statistics.h"
#include "storage/output_file.h"

/* Where the files are, and where the statistics go, so that data_dir's defaults find them. Both malloc'd. `whole`: the
 * files lie in the directory itself, of which a period chooses. */
static void find_directories(const char *directory, const char *chosen_output, bool whole, char **files, char **output)
{
    const char *name = vt_file_name(directory);
    const bool is_store = vt_file_is_zarr(directory);
    const bool has_training = !is_store && !whole && vt_output_holds(directory, "train");
    *files = has_training ? vt_text_format("%s/train", directory) : vt_text_copy(directory);
    if (chosen_output != NULL)
        *output = vt_text_copy(chosen_output);
    else if (is_store)
        *output = vt_config_beside_store(directory, "stats");
    else if (!has_training && strcmp(name, "train") == 0)
        *output = vt_text_format("%.*sstats", (int)(name - directory), directory);
    else
        *output = vt_text_format("%s/stats", directory);
}

/* Nothing is replaced. But a set whose statistics were made elsewhere, or by an older version, lacks the last two
 * files, and gets these alone: *keeps. */
static vt_status check_overwriting(const char *directory, bool *keeps)
{
    static const char *const names[] = {"global_means.npy", "global_stds.npy", "time_means.npy", "time_diff_stds.npy",
                                        "climatology.h5"};
    enum { NAMES = sizeof names / sizeof names[0], OLD = 3 };
    vt_status status = VT_OK;
    *keeps = true;
    for (int i = 0; i < NAMES; i++) *keeps = *keeps && vt_output_holds(directory, names[i]) == (i < OLD);
    for (int i = 0; i < NAMES && !*keeps; i++)
        VT_CHECK(!vt_output_holds(directory, names[i]),
                 "%s/%s exists already; give --force to replace it, or another --output", directory, names[i]);
done:
    return status;
}

static void print_table(const vt_statistics *statistics)
{
    const vt_fields_about *about = statistics->about;
    vt_print("%7s  %-12s %14s %14s %14s\n", "channel", "name", "mean", "std", "std of change");
    for (int64_t c = 0; c < statistics->channels; c++) {
        const char *name = about->names != NULL ? about->names[c] : "";
        const char *transform = about->meanings != NULL ? about->meanings[c].transform : "";
        vt_print("%7ld  %-12s %14.7g %14.7g %14.7g%s%s\n", c, name[0] != '\0' ? name : "-",
                 vt_statistics_mean(statistics, c), vt_statistics_std(statistics, c),
                 vt_text_plain_nan(vt_time_statistics_change_std(statistics->by_time, c)),
                 transform[0] != '\0' ? "  of " : "", transform);
    }
}

vt_status vt_command_stats(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_stats_flags *flags = call->flags;
    vt_statistics *statistics = NULL;
    vt_config *config = NULL;
    char *files = NULL, *output = NULL, *notes = NULL;
    bool keeps = false;
    VT_TRY(vt_config_open_text("stats: {model: vit}\n", "stats", call->option_count, call->options, 1, &config));
    find_directories(call->operands[0], flags->output, config->train_period != NULL, &files, &output);
    const vt_dataset_options data = vt_fields_options(config, VT_SET_TRAINING);
    const vt_statistics_source source = {.directory = files,
                                         .option_name = "data directory",
                                         .form = data.form,
                                         .range = data.range,
                                         .tolerant = config->skip_bad_samples,
                                         .dt = config->dt,
                                         .harmonics = flags->harmonics};
    if (!flags->force) VT_TRY(check_overwriting(output, &keeps));
    VT_TRY(vt_statistics_gather(&source, &statistics));
    VT_ASSERT(statistics != NULL);
    if (!keeps) VT_TRY(vt_statistics_write(statistics, output));
    VT_TRY(vt_statistics_write_rest(statistics, "stats", !keeps, output, &notes));
    print_table(statistics);
    vt_print("%ld times of %s", statistics->times, files);
    if (statistics->left_out > 0) vt_print(", %ld left out", statistics->left_out);
    vt_print("; written to %s\n%s", output, notes);
    if (keeps) vt_print("the .npy files that were there stay as they are; --force replaces them\n");
done:
    vt_statistics_close(&statistics);
    vt_config_close(&config);
    free(files);
    free(output);
    free(notes);
    return status;
}
