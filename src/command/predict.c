#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/version.h"
#include "forecast/forecaster.h"
#include "forecast/prediction.h"
#include "storage/output_file.h"

/* Everything before the ranks connect. */
static vt_status prepare(const vt_call *call, vt_prediction_options *options)
{
    vt_status status = VT_OK;
    const vt_predict_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL;
    VT_CHECK((named != NULL || flags->checkpoints != NULL) && options->time != NULL && options->output != NULL,
             "predict: a CHECKPOINT, --time=DATE and --output=FILE.nc are needed; see `vitrain predict --help`");
    VT_TRY(vt_output_check_file("--output", options->output));
    VT_CHECK(flags->force || !vt_output_exists(options->output),
             "predict: %s exists already; give --force to replace it", options->output);
    const size_t length = strlen(options->output);
    VT_CHECK(length > 3 && strcmp(options->output + length - 3, ".nc") == 0,
             "predict: --output=%s: expected a name that ends in .nc, as it is a NetCDF file", options->output);
    VT_TRY(vt_members_configure(named, flags->checkpoints, flags->members > 0 ? flags->members : 0, call->option_count,
                                call->options, call->launch.world_size, &options->members, &options->checkpoint,
                                &options->config));
    VT_CHECK(
        options->config->data_parallel == 1,
        "predict forecasts from one initial time, which the %lld ranks can only share as stages of the model: start "
        "one rank, or give --pipeline_parallel=%lld",
        (long long)options->config->ranks, (long long)options->config->ranks);
    VT_TRY(vt_forecaster_check_rollout(options->config, options->steps));
done:
    return status;
}

/* "vitrain 1.0.0 predict RUN --time=2003-01-05T06:00 --rollout=20 …": the same forecast again. */
static void describe(const vt_call *call, vt_text *text)
{
    const vt_predict_flags *flags = call->flags;
    vt_text_append(text, "vitrain %s predict", vt_version());
    if (call->operand_count > 0) vt_text_append(text, " %s", call->operands[0]);
    if (flags->checkpoints != NULL) vt_text_append(text, " --checkpoints=%s", flags->checkpoints);
    vt_text_append(text, " --time=%s --rollout=%lld --output=%s", flags->time, (long long)flags->rollout,
                   flags->output);
    if (flags->members > 0) vt_text_append(text, " --members=%lld", (long long)flags->members);
    if ((vt_set)flags->split == VT_SET_TEST) vt_text_append(text, " --split=test");
    if ((vt_set)flags->split == VT_SET_TRAINING) vt_text_append(text, " --split=train");
    for (int i = 0; i < call->option_count; i++) vt_text_append(text, " %s", call->options[i]);
}

vt_status vt_command_predict(const vt_call *call)
{
    const vt_predict_flags *flags = call->flags;
    vt_prediction_options options = {
        .set = (vt_set)flags->split, .time = flags->time, .steps = flags->rollout, .output = flags->output};
    vt_text command = {0};
    vt_status status = prepare(call, &options);
    if (status == VT_OK) describe(call, &command);
    options.command = command.characters;
    if (status == VT_ERROR) vt_world_fail_early(&call->launch);
    if (status == VT_OK) status = vt_predict(&options, &call->launch);
    vt_config_close(&options.config);
    vt_members_close(&options.members);
    free(options.checkpoint);
    vt_text_close(&command);
    return status;
}
