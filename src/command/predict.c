#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/arguments.h"
#include "forecast/forecaster.h"
#include "forecast/prediction.h"
#include "storage/output_file.h"

static const char help[] =
    "vitrain predict CHECKPOINT --time=2003-01-05T06:00 --output=FILE.nc [flags]: a forecast of --rollout\n"
    "times, dt times of the data apart, from one initial time, as a NetCDF-4 file by the CF conventions:\n"
    "a variable a channel in the units of the data, which ncdump, xarray and Panoply open.\n\n";
static const char help_end[] =
    "\nThe configuration is the checkpoint's; every key of it is a flag, too (--data_dir=DIR).\n";

static void choose_set(vt_prediction_options *options, const char *split)
{
    static const char *const sets[] = {"train", "valid", "test", NULL};
    options->set = (vt_set)vt_text_place(split, strlen(split), sets);
}

/* Everything before the ranks connect. */
static vt_status prepare(int argument_count, char *const *arguments, const vt_launch *launch,
                         vt_prediction_options *options)
{
    vt_status status = VT_OK;
    const char *named = NULL, *list = NULL;
    int64_t members = 0;
    vt_argument_choice split = {"valid", "train|valid|test"};
    vt_words changes = {0};
    bool force = false;
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &named, 0, 0, VT_CHECKPOINT_FLAG_HELP},
        {"checkpoints", VT_ARGUMENT_PATH, &list, 0, 0, VT_CHECKPOINTS_FLAG_HELP},
        {"members", VT_ARGUMENT_INTEGER, &members, 1, 100000, VT_MEMBERS_FLAG_HELP},
        {"time", VT_ARGUMENT_TEXT, &options->time, 0, 0, "initial time, UTC: 2003-01-05T06:00"},
        {"rollout", VT_ARGUMENT_INTEGER, &options->steps, 1, 100000, "forecasts, each the next one's input"},
        {"steps", VT_ARGUMENT_INTEGER, &options->steps, 1, 100000, "another name for --rollout"},
        {"output", VT_ARGUMENT_PATH, &options->output, 0, 0, "the file to write, NAME.nc"},
        {"split", VT_ARGUMENT_CHOICE, &split, 0, 0, "where the initial time is"},
        {"force", VT_ARGUMENT_SWITCH, &force, 0, 0, "replace a file of that name"},
    };
    const vt_command_line line = {.command = "predict",
                                  .help = help,
                                  .help_end = help_end,
                                  VT_FLAGS(flags),
                                  .operand_name = "CHECKPOINT",
                                  .operand = &named,
                                  .operand_is_optional = true,
                                  .options = true};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, &changes));
    VT_CHECK((named != NULL || list != NULL) && options->time != NULL && options->output != NULL,
             "predict: a CHECKPOINT, --time=DATE and --output=FILE.nc are needed; see `vitrain predict --help`");
    VT_TRY(vt_output_check_file("--output", options->output));
    VT_CHECK(force || !vt_output_exists(options->output), "predict: %s exists already; give --force to replace it",
             options->output);
    const size_t length = strlen(options->output);
    VT_CHECK(length > 3 && strcmp(options->output + length - 3, ".nc") == 0,
             "predict: --output=%s: expected a name that ends in .nc, as it is a NetCDF file", options->output);
    VT_TRY(vt_members_configure(named, list, members, changes.count, changes.words, launch->world_size,
                                &options->members, &options->checkpoint, &options->config));
    VT_CHECK(
        options->config->data_parallel == 1,
        "predict forecasts from one initial time, which the %lld ranks can only share as stages of the model: start "
        "one rank, or give --pipeline_parallel=%lld",
        (long long)options->config->ranks, (long long)options->config->ranks);
    VT_TRY(vt_forecaster_check_rollout(options->config, options->steps));
    choose_set(options, split.chosen);
done:
    free(changes.words);
    return status;
}

vt_status vt_command_predict(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_prediction_options options = {.steps = 20};
    vt_launch launch;
    VT_TRY(vt_launch_detect(&launch));
    status = prepare(argument_count, arguments, &launch, &options);
    if (status == VT_ERROR) vt_world_fail_early(&launch);
    if (status == VT_OK) status = vt_predict(&options, &launch);
done:
    vt_config_close(&options.config);
    vt_members_close(&options.members);
    free(options.checkpoint);
    return status;
}
