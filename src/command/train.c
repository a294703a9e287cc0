#include "command/command.h"

#include <unistd.h>

#include "base/log.h"
#include "parallel/world.h"
#include "report/progress.h"
#include "source/sources.h"
#include "training/run.h"

vt_status vt_command_train(const vt_call *call)
{
    vt_config *config = NULL;
    vt_status status = vt_config_open(call->option_count, call->options, call->launch.world_size, &config);
    if (status == VT_OK) status = vt_source_complete(config);
    if (status == VT_OK) {
        vt_log_hide_details(vt_progress_is_seen(STDOUT_FILENO) && !config->verbose);
        status = vt_run_training(config, &call->launch);
    } else {
        vt_world_fail_early(&call->launch);
    }
    vt_config_close(&config);
    return status;
}
