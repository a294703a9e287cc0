#include "base/version.h"
#include "base/text.h"
#include "command/command.h"
#include "parallel/group.h"
#include "storage/store.h"

vt_status vt_command_version(const vt_call *call)
{
    (void)call;
    char mpi[VT_ENGINE_NAME] = "", hdf5[VT_HDF5_NAME];
    vt_engine_mpi_name(mpi);
    vt_print("vitrain %s\n%s\n%s%s%s\n", vt_version, vt_built, vt_hdf5_name(hdf5), mpi[0] != '\0' ? ", " : "", mpi);
    return VT_OK;
}
