#include "command/command.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "forecast/evaluation.h"
#include "forecast/forecast_file.h"
#include "forecast/language.h"

/* In the directory of the run that owns the checkpoint, or in the current one; an ensemble has its own. */
static char *default_output(const vt_trained *model, bool test, int64_t members)
{
    char ensemble[48] = "";
    const char *checkpoint = model->checkpoint, *run_end = strstr(checkpoint, "/checkpoints/");
    for (const char *next = run_end; next != NULL; next = strstr(next + 1, "/checkpoints/")) run_end = next;
    if (members > 0) snprintf(ensemble, sizeof ensemble, "-%ld-member%s", members, members == 1 ? "" : "s");
    return vt_text_format("%.*s%sevaluation/step-%08ld-%s%s", run_end != NULL ? (int)(run_end - checkpoint) : 0,
                          checkpoint, run_end != NULL ? "/" : "", model->step, test ? "test" : "valid", ensemble);
}

/* All that the evaluation is made from, except its data. */
static void describe(const vt_call *call, const vt_evaluation_options *options, vt_text *lines)
{
    const vt_members *members = &options->members;
    for (const vt_trained *model = members->models; model < members->models + members->model_count; model++)
        vt_text_append(lines, "checkpoint: %s, crc32c %08x\n", vt_file_name(model->checkpoint),
                       (unsigned)model->checksum);
    vt_text_append(lines, "set: %s\nrollout: %ld\nevery: %ld\nmembers: %ld\nmap_channel: %s\noptions:",
                   options->test ? "test" : "valid", options->rollout, options->every, members->count,
                   options->channel != NULL ? options->channel : "None");
    for (int i = 0; i < call->option_count; i++) vt_text_append(lines, " %s", call->options[i]);
    vt_text_append(lines, "\n");
    if (options->error_times >= 0) vt_text_append(lines, "error_times: %ld\n", options->error_times);
}

/* The checkpoints, and where the files go. */
static vt_status prepare(const vt_call *call, vt_evaluation_options *options)
{
    vt_status status = VT_OK;
    const vt_evaluate_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL, *list = flags->checkpoints;
    VT_CHECK(named != NULL || list != NULL, "evaluate: no CHECKPOINT given; see `vitrain evaluate --help`");
    if (list == NULL)
        VT_TRY(vt_members_add(named, call->option_count, call->options, call->launch.world_size, &options->members));
    const bool of_text = list == NULL && vt_trained_on_text(options->members.config);
    const bool of_cubes = list == NULL && vt_trained_on_cubes(options->members.config);
    const bool plain = flags->members < 1 && options->channel == NULL && options->every == 1 &&
                       options->forecasts == NULL && options->error_times < 0;
    VT_CHECK(plain || !of_text,
             "evaluate: a language model has neither members nor maps; leave out --members, --every, --map_channel, "
             "--forecasts and --error_times");
    VT_CHECK((plain && !options->test) || !of_cubes,
             "evaluate: a U-Net has a validation set alone, and neither members nor maps; leave out --split, "
             "--members, --every, --map_channel, --forecasts and --error_times");
    if (!of_text && !of_cubes) {
        if (flags->forecasts != NULL)
            VT_TRY(vt_forecast_file_check_path("--forecasts", flags->forecasts, flags->force));
        VT_TRY(vt_members_configure(named, list, flags->members, options->rollout, call->option_count, call->options,
                                    call->launch.world_size, &options->members));
    }
    options->place.is_named = flags->output != NULL;
    options->place.replaces = flags->force;
    options->place.directory = flags->output != NULL
                                   ? vt_text_copy(flags->output)
                                   : default_output(options->members.models, options->test, options->members.count);
    describe(call, options, &options->place.made_from);
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
    if (status != VT_OK) goto done;
    if (vt_trained_on_text(options.members.config))
        status = vt_language_evaluate(options.members.models, options.test, &options.place, &call->launch);
    else if (vt_trained_on_cubes(options.members.config))
        status = vt_cubes_evaluate(options.members.models, &options.place, &call->launch);
    else
        status = vt_evaluate(&options, &call->launch);
done:
    vt_members_close(&options.members);
    vt_place_close(&options.place);
    return status;
}
