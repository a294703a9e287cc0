#include "command/train.h"

#include <unistd.h>

#include "config/config.h"
#include "parallel/launch.h"
#include "training/run.h"

/* A mistake in the options is every rank's: the first one tells of it, and its end ends the others, which only wait so
 * long in case the mistake is theirs alone. */
static void let_first_rank_speak(const vt_launch *launch)
{
    enum { SECONDS = 2 };
    if (launch->rank > 0) sleep(SECONDS);
}

vt_status vt_command_train(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    vt_launch launch;
    VT_TRY(vt_launch_detect(&launch));
    status = vt_config_open(argument_count, arguments, launch.world_size, &config);
    if (status != VT_OK) let_first_rank_speak(&launch);
    if (status != VT_OK) goto done;
    VT_TRY(vt_run_training(config, &launch));
done:
    vt_config_close(&config);
    return status;
}
