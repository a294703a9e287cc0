#include "parallel/launch.h"

#include <stdlib.h>
#include <string.h>

/* replaced by the launch branch */
vt_status vt_launch_detect(vt_launch *launch)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    *launch = (vt_launch){.launcher = rank ? VT_LAUNCHER_OPEN_MPI : VT_LAUNCHER_NONE, .rank = rank ? atoi(rank) : 0, .world_size = size ? atoi(size) : 1, .local_rank = -1, .local_size = -1, .port = 29500};
    return VT_OK;
}
const char *vt_launch_name(vt_launcher launcher)
{
    return launcher == VT_LAUNCHER_OPEN_MPI ? "Open MPI" : "nobody";
}
bool vt_launch_has_mpi(const vt_launch *launch)
{
    return launch->launcher == VT_LAUNCHER_OPEN_MPI;
}
