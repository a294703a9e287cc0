#include "command/command.h"

#include <unistd.h>

#include "base/log.h"
#include "report/progress.h"
#include "source/sources.h"
#include "training/run.h"

vt_status vt_command_train(const vt_call *call)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    VT_TRY(vt_config_open(call->option_count, call->options, call->launch.world_size, &config));
    VT_TRY(vt_source_complete(config));
    vt_log_filter.hides_details = vt_progress_is_seen(STDOUT_FILENO) && !config->verbose;
    VT_TRY(vt_run_training(config, &call->launch));
done:
    vt_config_close(&config);
    return status;
}
