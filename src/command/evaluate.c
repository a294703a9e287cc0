#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "forecast/evaluation.h"
#include "forecast/forecast_file.h"
#include "forecast/forecaster.h"
#include "forecast/language.h"

/* In the directory of the run that owns the checkpoint, or in the current one; an ensemble has its own. */
static vt_status default_output(const char *checkpoint, bool test, int64_t members, char **output)
{
    vt_status status = VT_OK;
    char *trained = NULL, ensemble[48] = "";
    int64_t step = 0;
    const char *run_end = strstr(checkpoint, "/checkpoints/");
    for (const char *next = run_end; next != NULL; next = strstr(next + 1, "/checkpoints/")) run_end = next;
    VT_TRY(vt_forecaster_describe(checkpoint, VT_WEIGHTS_LIVE, &trained, &step));
    if (members > 0) snprintf(ensemble, sizeof ensemble, "-%lld-member%s", (long long)members, members == 1 ? "" : "s");
    *output =
        vt_text_format("%.*s%sevaluation/step-%08lld-%s%s", run_end != NULL ? (int)(run_end - checkpoint) : 0,
                       checkpoint, run_end != NULL ? "/" : "", (long long)step, test ? "test" : "valid", ensemble);
done:
    free(trained);
    return status;
}

static vt_status add_checkpoint(const char *checkpoint, vt_text *lines)
{
    vt_status status = VT_OK;
    uint32_t checksum = 0;
    VT_TRY(vt_checkpoint_checksum(checkpoint, &checksum));
    vt_text_append(lines, "checkpoint: %s, crc32c %08x\n", vt_file_name(checkpoint), (unsigned)checksum);
done:
    return status;
}

/* All that the evaluation is made from, except its data. */
static vt_status describe(const vt_call *call, const vt_evaluation_options *options, vt_text *lines)
{
    vt_status status = VT_OK;
    const vt_members *members = &options->members;
    for (int64_t i = 0; i < members->checkpoint_count; i++) VT_TRY(add_checkpoint(members->checkpoints[i], lines));
    vt_text_append(lines, "set: %s\nrollout: %lld\nevery: %lld\nmembers: %lld\nmap_channel: %s\noptions:",
                   options->test ? "test" : "valid", (long long)options->rollout, (long long)options->every,
                   (long long)members->count, options->channel != NULL ? options->channel : "None");
    for (int i = 0; i < call->option_count; i++) vt_text_append(lines, " %s", call->options[i]);
    vt_text_append(lines, "\n");
    if (options->error_times >= 0) vt_text_append(lines, "error_times: %lld\n", (long long)options->error_times);
done:
    return status;
}

/* Everything before the ranks connect. */
static vt_status prepare(const vt_call *call, vt_evaluation_options *options)
{
    vt_status status = VT_OK;
    const vt_evaluate_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL, *list = flags->checkpoints;
    const int64_t members = flags->members > 0 ? flags->members : 0;
    VT_CHECK(named != NULL || list != NULL, "evaluate: no CHECKPOINT given; see `vitrain evaluate --help`");
    if (list == NULL)
        VT_TRY(vt_members_begin(named, call->option_count, call->options, call->launch.world_size, &options->members));
    const bool of_text = list == NULL && vt_forecaster_is_of_text(options->members.config);
    const bool of_cubes = list == NULL && vt_forecaster_is_of_cubes(options->members.config);
    const bool plain = members == 0 && options->channel == NULL && options->every == 1 && options->forecasts == NULL &&
                       options->error_times < 0;
    VT_CHECK(plain || !of_text,
             "evaluate: a language model has neither members nor maps; leave out --members, --every, --map_channel, "
             "--forecasts and --error_times");
    VT_CHECK((plain && !options->test) || !of_cubes,
             "evaluate: a U-Net has a validation set alone, and neither members nor maps; leave out --split, "
             "--members, --every, --map_channel, --forecasts and --error_times");
    if (of_text) {
        VT_TRY(vt_language_take_words(options->members.checkpoints[0], options->members.config));
    } else if (!of_cubes) {
        if (flags->forecasts != NULL)
            VT_TRY(vt_forecast_file_check_path("--forecasts", flags->forecasts, flags->force));
        VT_TRY(vt_members_configure(named, list, members, call->option_count, call->options, call->launch.world_size,
                                    &options->members));
        VT_TRY(vt_forecaster_check_rollout(options->members.config, options->rollout));
    }
    options->place.is_named = flags->output != NULL;
    options->place.replaces = flags->force;
    if (flags->output != NULL)
        options->place.directory = vt_text_copy(flags->output);
    else
        VT_TRY(default_output(options->members.checkpoints[0], options->test, options->members.count,
                              &options->place.directory));
    VT_TRY(describe(call, options, &options->place.made_from));
done:
    return status;
}

vt_status vt_command_evaluate(const vt_call *call)
{
    const vt_evaluate_flags *flags = call->flags;
    vt_evaluation_options options = {.forecasts = flags->forecasts,
                                     .command = call->line,
                                     .test = flags->split == VT_SPLIT_TEST,
                                     .rollout = flags->rollout,
                                     .every = flags->every,
                                     .channel = flags->map_channel,
                                     .error_times = flags->error_times};
    vt_status status = prepare(call, &options);
    if (status == VT_ERROR) vt_world_fail_early(&call->launch);
    if (status != VT_OK) goto done;
    if (vt_forecaster_is_of_text(options.members.config))
        status = vt_language_evaluate(options.members.config, options.members.checkpoints[0], options.test,
                                      &options.place, &call->launch);
    else if (vt_forecaster_is_of_cubes(options.members.config))
        status =
            vt_cubes_evaluate(options.members.config, options.members.checkpoints[0], &options.place, &call->launch);
    else
        status = vt_evaluate(&options, &call->launch);
done:
    vt_members_close(&options.members);
    vt_place_close(&options.place);
    return status;
}
