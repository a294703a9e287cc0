#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "forecast/cubes.h"
#include "forecast/evaluation.h"
#include "forecast/forecaster.h"
#include "forecast/language.h"

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
static vt_status prepare(const vt_call *call, const vt_launch *launch, vt_evaluation_options *options, evaluated *what)
{
    vt_status status = VT_OK;
    const vt_evaluate_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL, *list = flags->checkpoints;
    const int64_t members = flags->members > 0 ? flags->members : 0;
    VT_CHECK(named != NULL || list != NULL, "evaluate: no CHECKPOINT given; see `vitrain evaluate --help`");
    if (named != NULL && list == NULL)
        VT_TRY(vt_cubes_configure(named, call->option_count, call->options, launch->world_size, &what->of_cubes,
                                  &options->checkpoint, &options->config));
    if (named != NULL && list == NULL && !what->of_cubes)
        VT_TRY(vt_language_configure(named, call->option_count, call->options, launch->world_size, &what->of_text,
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
        VT_TRY(vt_members_configure(named, list, members, call->option_count, call->options, launch->world_size,
                                    &options->members, &options->checkpoint, &options->config));
        VT_TRY(vt_forecaster_check_rollout(options->config, options->rollout));
    }
    if (flags->output != NULL)
        options->output = vt_text_copy(flags->output);
    else
        VT_TRY(default_output(options->checkpoint, options->test, options->members.count, &options->output));
done:
    return status;
}

vt_status vt_command_evaluate(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_evaluate_flags *flags = call->flags;
    vt_evaluation_options options = {.test = flags->split == VT_SPLIT_TEST,
                                     .rollout = flags->rollout,
                                     .every = flags->every,
                                     .channel = flags->map_channel};
    vt_launch launch;
    evaluated what = {0};
    VT_TRY(vt_launch_detect(&launch));
    status = prepare(call, &launch, &options, &what);
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
