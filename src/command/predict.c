#include "command/command.h"

#include "forecast/forecast_file.h"
#include "forecast/prediction.h"

vt_status vt_command_predict(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_predict_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL;
    vt_prediction_options options = {.set = (vt_set)flags->split,
                                     .time = flags->time,
                                     .steps = flags->rollout,
                                     .forcing_path = flags->forcing_path,
                                     .error_stds = flags->error_stds,
                                     .output = flags->output,
                                     .command = call->line};
    VT_CHECK((named != NULL || flags->checkpoints != NULL) && options.time != NULL && options.output != NULL,
             "predict: a CHECKPOINT, --time=DATE and --output=FILE.nc are needed; see `vitrain predict --help`");
    VT_TRY(vt_forecast_file_check_path("--output", options.output, flags->force));
    VT_TRY(vt_members_configure(named, flags->checkpoints, flags->members, options.steps, call->option_count,
                                call->options, call->launch.world_size, &options.members));
    VT_CHECK(
        options.members.config->data_parallel == 1,
        "predict forecasts from one initial time, which the %ld ranks can only share as stages of the model: start "
        "one rank, or give --pipeline_parallel=%ld",
        options.members.config->ranks, options.members.config->ranks);
    VT_TRY(vt_predict(&options, &call->launch));
done:
    vt_members_close(&options.members);
    return status;
}
