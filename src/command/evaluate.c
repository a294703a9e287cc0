#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "command/arguments.h"
#include "forecast/cubes.h"
#include "forecast/evaluation.h"
#include "forecast/forecaster.h"
#include "forecast/language.h"

static const char help[] =
    "vitrain evaluate CHECKPOINT [flags]: forecasts from every initial time of the validation or test\n"
    "set, scored beside persistence (nothing changes) and the seasonal climatology (`vitrain stats` makes it):\n"
    "  RMSE   latitude-weighted, in the units of the data (Rasp et al. 2020, WeatherBench)\n"
    "  skill  1 - RMSE^2 / RMSE^2 of the climatology: below 0, the climatology is the better forecast\n"
    "  ACC    correlation of the departures from the climatology (Rasp et al. 2024, WeatherBench 2)\n"
    "  loss   of single steps, as training has it (\"Avg val loss\"), over all samples\n"
    "and of an ensemble (--members=N), whose mean is then the forecast that is scored:\n"
    "  spread, spread / error (1: as large as the error), fair CRPS (Zamo and Naveau 2018)\n"
    "Writes loss.csv, scores.csv, horizons.csv, spectra.csv, scores.html and maps (target, forecast,\n"
    "difference); docs/evaluation.md has the formulas.\n\n"
    "Of a U-Net (model unet3d): the mean absolute error of each channel, beside copying, and the power\n"
    "spectrum of the density, predicted and true; writes l1.csv and spectrum.csv (docs/unet3d.md).\n\n"
    "Of a language model: loss, perplexity and bits a token, of windows side by side and of those of the\n"
    "run's stride; writes perplexity.csv (docs/lm.md).\n\n";
static const char help_end[] =
    "\nThe configuration is the checkpoint's; every key of it is a flag, too: --data_dir=DIR,\n"
    "--limit_nsamples_val=N (only the first N initial times), --local_batch_size=N (forecasts at once: 8).\n";

/* In the directory of the run that owns the checkpoint, or in the current one; an ensemble has its own. */
static vt_status default_output(const char *checkpoint, bool test, int64_t members, char **output)
{
    vt_status status = VT_OK;
    char *trained = NULL;
    int64_t step = 0;
    const char *run_end = strstr(checkpoint, "/checkpoints/");
    for (const char *next = run_end; next != NULL; next = strstr(next + 1, "/checkpoints/")) run_end = next;
    VT_TRY(vt_forecaster_describe(checkpoint, VT_WEIGHTS_LIVE, &trained, &step));
    *output = vt_text_format("%.*s%sevaluation/step-%08lld-%s", run_end != NULL ? (int)(run_end - checkpoint) : 0,
                             checkpoint, run_end != NULL ? "/" : "", (long long)step, test ? "test" : "valid");
    if (members > 0) {
        char *single = *output;
        *output = vt_text_format("%s-%lld-member%s", single, (long long)members, members == 1 ? "" : "s");
        free(single);
    }
done:
    free(trained);
    return status;
}

typedef struct {
    bool of_cubes, of_text; /* neither: forecasts of fields */
} evaluated;

/* Everything before the ranks connect. */
static vt_status prepare(int argument_count, char *const *arguments, const vt_launch *launch,
                         vt_evaluation_options *options, evaluated *what)
{
    vt_status status = VT_OK;
    const char *named = NULL, *list = NULL, *output = NULL;
    int64_t members = 0;
    vt_argument_choice split = {"valid", "valid|test"};
    vt_words changes = {0};
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &named, 0, 0, VT_CHECKPOINT_FLAG_HELP},
        {"checkpoints", VT_ARGUMENT_PATH, &list, 0, 0, VT_CHECKPOINTS_FLAG_HELP},
        {"members", VT_ARGUMENT_INTEGER, &members, 1, 100000, VT_MEMBERS_FLAG_HELP},
        {"rollout", VT_ARGUMENT_INTEGER, &options->rollout, 1, 100000, "steps of each forecast"},
        {"steps", VT_ARGUMENT_INTEGER, &options->rollout, 1, 100000, "another name for --rollout"},
        {"split", VT_ARGUMENT_CHOICE, &split, 0, 0, "which set"},
        {"every", VT_ARGUMENT_INTEGER, &options->every, 1, 100000, "use every N-th initial time of the set"},
        {"map_channel", VT_ARGUMENT_TEXT, &options->channel, 0, 0,
         "channel of the maps (default: the third, or the last)"},
        {"output", VT_ARGUMENT_PATH, &output, 0, 0, "directory (default <run>/evaluation/step-N-<split>)"},
    };
    const vt_command_line line = {.command = "evaluate",
                                  .help = help,
                                  .help_end = help_end,
                                  VT_FLAGS(flags),
                                  .operand_name = "CHECKPOINT",
                                  .operand = &named,
                                  .operand_is_optional = true,
                                  .options = true};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, &changes));
    options->test = strcmp(split.chosen, "test") == 0;
    VT_CHECK(named != NULL || list != NULL, "evaluate: no CHECKPOINT given; see `vitrain evaluate --help`");
    if (named != NULL && list == NULL)
        VT_TRY(vt_cubes_configure(named, changes.count, changes.words, launch->world_size, &what->of_cubes,
                                  &options->checkpoint, &options->config));
    if (named != NULL && list == NULL && !what->of_cubes)
        VT_TRY(vt_language_configure(named, changes.count, changes.words, launch->world_size, &what->of_text,
                                     &options->checkpoint, &options->config));
    if (what->of_text) {
        VT_CHECK(members == 0 && options->channel == NULL && options->every == 1,
                 "evaluate: a language model has neither members nor maps; leave out --members, --every and "
                 "--map_channel");
    } else if (what->of_cubes) {
        VT_CHECK(!options->test && members == 0 && options->channel == NULL && options->every == 1,
                 "evaluate: a U-Net has a validation set alone, and neither members nor maps; leave out --split, "
                 "--members, --every and --map_channel");
    } else {
        VT_TRY(vt_members_configure(named, list, members, changes.count, changes.words, launch->world_size,
                                    &options->members, &options->checkpoint, &options->config));
        VT_TRY(vt_forecaster_check_rollout(options->config, options->rollout));
    }
    if (output != NULL)
        options->output = vt_text_copy(output);
    else
        VT_TRY(default_output(options->checkpoint, options->test, options->members.count, &options->output));
done:
    free(changes.words);
    return status;
}

vt_status vt_command_evaluate(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_evaluation_options options = {.rollout = 20, .every = 1};
    vt_launch launch;
    evaluated what = {0};
    VT_TRY(vt_launch_detect(&launch));
    status = prepare(argument_count, arguments, &launch, &options, &what);
    if (status == VT_ERROR) vt_world_fail_early(&launch);
    if (status == VT_OK && what.of_text)
        status = vt_language_evaluate(options.config, options.checkpoint, options.test, options.output, &launch);
    else if (status == VT_OK)
        status = what.of_cubes ? vt_cubes_evaluate(options.config, options.checkpoint, options.output, &launch)
                               : vt_evaluate(&options, &launch);
done:
    vt_config_close(&options.config);
    vt_members_close(&options.members);
    free(options.checkpoint);
    free(options.output);
    return status;
}
