#include "command/evaluate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/find.h"
#include "command/arguments.h"
#include "forecast/evaluation.h"
#include "forecast/forecaster.h"

static void print_help(const vt_argument *flags, int64_t count)
{
    printf("vitrain evaluate CHECKPOINT [flags]: forecasts from every initial time of the validation or test "
           "set,\nscored beside persistence (nothing changes) and climatology (the mean over time):\n"
           "  RMSE  latitude-weighted, in the units of the data (Rasp et al. 2020, WeatherBench)\n"
           "  ACC   anomaly correlation, against the climatology of time_means_path (Rasp et al. 2024, WeatherBench "
           "2)\n"
           "  loss  of single steps, as training has it (\"Avg val loss\"), over all samples\n"
           "Writes loss.csv, scores.csv and maps (target, forecast, difference); docs/evaluation.md has the "
           "formulas.\n\n");
    vt_arguments_print(flags, count);
    printf("\nThe configuration is the checkpoint's; every key of it is a flag, too: --data_dir=DIR,\n"
           "--limit_nsamples_val=N (only the first N initial times), --local_batch_size=N (forecasts at once: 8).\n");
}

/* In the directory of the run that owns the checkpoint, or in the current one. */
static vt_status default_output(const char *checkpoint, bool test, char **output)
{
    vt_status status = VT_OK;
    char *trained = NULL;
    int64_t step = 0;
    const char *run_end = strstr(checkpoint, "/checkpoints/");
    for (const char *next = run_end; next != NULL; next = strstr(next + 1, "/checkpoints/")) run_end = next;
    VT_TRY(vt_forecaster_describe(checkpoint, &trained, &step));
    *output = vt_text_format("%.*s%sevaluation/step-%08lld-%s", run_end != NULL ? (int)(run_end - checkpoint) : 0,
                             checkpoint, run_end != NULL ? "/" : "", (long long)step, test ? "test" : "valid");
done:
    free(trained);
    return status;
}

/* Everything before the ranks connect. *checkpoint: the checkpoint to use; *output: the default directory, if it is
 * used. Both are malloc'd. */
static vt_status prepare(int argument_count, char *const *arguments, const vt_launch *launch,
                         vt_evaluation_options *options, vt_config **config, char **checkpoint, char **output,
                         bool *help)
{
    vt_status status = VT_OK;
    const char *named = NULL;
    vt_argument_choice split = {"valid", "valid|test"};
    char **others = NULL;
    int other_count = 0;
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &named, 0, 0, VT_CHECKPOINT_FLAG_HELP},
        {"rollout", VT_ARGUMENT_INTEGER, &options->rollout, 1, 100000, "steps of each forecast"},
        {"steps", VT_ARGUMENT_INTEGER, &options->rollout, 1, 100000, "another name for --rollout"},
        {"split", VT_ARGUMENT_CHOICE, &split, 0, 0, "which set"},
        {"every", VT_ARGUMENT_INTEGER, &options->every, 1, 100000, "use every N-th initial time of the set"},
        {"map_channel", VT_ARGUMENT_TEXT, &options->channel, 0, 0,
         "channel of the maps (default: the third, or the last)"},
        {"output", VT_ARGUMENT_PATH, &options->output, 0, 0, "directory (default <run>/evaluation/step-N-<split>)"},
    };
    const int64_t flag_count = sizeof flags / sizeof flags[0];
    VT_TRY(vt_arguments_take_with("evaluate", argument_count, arguments, flags, flag_count, "CHECKPOINT", &named,
                                  &other_count, &others, help));
    if (*help) {
        print_help(flags, flag_count);
        goto done;
    }
    VT_CHECK(named != NULL, "evaluate: no CHECKPOINT given; see `vitrain evaluate --help`");
    VT_TRY(vt_checkpoint_find(named, VT_CHECKPOINT_TO_SHOW, checkpoint));
    options->checkpoint = *checkpoint;
    options->test = strcmp(split.chosen, "test") == 0;
    VT_TRY(vt_forecaster_configure(options->checkpoint, other_count, others, launch->world_size, config));
    options->config = *config;
    VT_CHECK(options->rollout == 1 || vt_forecaster_can_roll(*config),
             "--rollout=%lld: this model forecasts %lld channels from %lld, so a forecast can't be the next one's "
             "input; only --rollout=1 can be scored",
             (long long)options->rollout, (long long)(*config)->n_out_channels,
             (long long)vt_config_channels_a_time(*config));
    if (options->output == NULL) {
        VT_TRY(default_output(options->checkpoint, options->test, output));
        options->output = *output;
    }
done:
    free(others);
    return status;
}

vt_status vt_command_evaluate(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_evaluation_options options = {.rollout = 20, .every = 1};
    char *checkpoint = NULL, *output = NULL;
    bool help = false;
    vt_config *config = NULL;
    vt_launch launch;
    VT_TRY(vt_launch_detect(&launch));
    status = prepare(argument_count, arguments, &launch, &options, &config, &checkpoint, &output, &help);
    if (status != VT_OK) vt_world_fail_early(&launch);
    if (status == VT_OK && !help) status = vt_evaluate(&options, &launch);
done:
    vt_config_close(&config);
    free(checkpoint);
    free(output);
    return status;
}
