#include "command/train.h"

#include <unistd.h>

#include "config/config.h"
#include "parallel/world.h"
#include "training/run.h"

/* What is noted, once for all ranks that failed alike, and to ranks that wait in vt_world_open. */
static void tell_others(const vt_launch *launch)
{
    enum { SECONDS = 2 };
    vt_world *world = NULL;
    if (launch->world_size > 1 && vt_launch_has_mpi(launch) && vt_engine_has_mpi()) {
        vt_world_open(NULL, launch, &world);
        vt_world_close(&world, true);
    } else if (launch->rank > 0) {
        sleep(SECONDS); /* the first one tells, and its end ends the others, if the mistake is not theirs alone */
    }
}

vt_status vt_command_train(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    vt_launch launch;
    VT_TRY(vt_launch_detect(&launch));
    status = vt_config_open(argument_count, arguments, launch.world_size, &config);
    if (status != VT_OK) tell_others(&launch);
    if (status != VT_OK) goto done;
    VT_TRY(vt_run_training(config, &launch));
done:
    vt_config_close(&config);
    return status;
}
