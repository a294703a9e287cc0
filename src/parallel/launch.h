/* Who started this process, and as which of how many ranks: read from the launcher's environment, before MPI or NCCL is
 * used. */
#ifndef VT_PARALLEL_LAUNCH_H
#define VT_PARALLEL_LAUNCH_H

#include <stdbool.h>

#include "base/status.h"

typedef enum {
    VT_LAUNCHER_NONE,     /* one rank, started by hand */
    VT_LAUNCHER_TORCHRUN, /* RANK, LOCAL_RANK, WORLD_SIZE */
    VT_LAUNCHER_OPEN_MPI, /* OMPI_COMM_WORLD_RANK, _LOCAL_RANK, _SIZE */
    VT_LAUNCHER_SLURM,    /* SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS */
    VT_LAUNCHER_PMI       /* PMI_RANK (MPICH's Hydra) or PMIX_RANK, and PMI_SIZE */
} vt_launcher;

typedef struct {
    vt_launcher launcher;
    int rank, world_size;
    int local_rank, local_size; /* among the ranks of this host; local_size -1: the launcher did not say */
    char address[256];          /* MASTER_ADDR, else Slurm's first node, else "localhost" */
    int port;                   /* MASTER_PORT, else 29500 */
    bool mpi_too;               /* torchrun's variables, set from those of an MPI launcher that is present too */
    bool *used;                 /* becomes true when a world is opened for it; or NULL */
} vt_launch;

/* local_rank, if the launcher did not say: rank modulo local_size, or the rank if local_size is unknown, too. An empty
 * variable counts as not set. Errors: a variable that is not a number, a rank outside its world, half a set, RANK and
 * WORLD_SIZE that contradict another launcher; the message names the variables. */
vt_status vt_launch_detect(vt_launch *launch);

/* "Slurm (SLURM_PROCID)": for messages. */
const char *vt_launch_name(vt_launcher launcher);

/* Could an MPI library join the other ranks? True for Open MPI, Slurm and PMI; for torchrun's variables if one of these
 * agrees with them (mpi_too). */
bool vt_launch_has_mpi(const vt_launch *launch);

#endif
