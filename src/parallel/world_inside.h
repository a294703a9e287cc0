/* The inside of a world, for the files of this room alone. */
#ifndef VT_PARALLEL_WORLD_INSIDE_H
#define VT_PARALLEL_WORLD_INSIDE_H

#include "parallel/world.h"

struct vt_world {
    vt_launch launch; /* with local_rank and local_size, also where the launcher did not say */
    vt_layout layout;
    vt_engine *engine;
    vt_engine *device_engine; /* for the back end's memory (NCCL); NULL: `engine`, through the host */
    int rank, ranks;
    int coordinate[VT_AXIS_COUNT];
    vt_group *host;    /* all ranks, over host memory: for figures and agreements */
    int *node_of;      /* [ranks]: which node each rank runs on, 0, 1, … in the order of their first ranks */
    int nodes;         /* how many there are */
    int threads;       /* cores for this rank: those that it may use, divided by the local ranks that share them */
    vt_group **groups; /* made by vt_world_group, kept to the end; the first is `host` */
    int group_count;
    bool agreed_failure; /* all ranks know of a failure, and end alike */
    int speaker;         /* the rank that tells the user */
};

/* world_groups.c. Collective. The group of all ranks, over host memory. */
vt_status vt_world_open_everyone(vt_world *world);

/* agree.c. Collective. Ranks with other options than rank 0's would wait for messages that never come, or each train a
 * model of its own. config NULL: this rank could not read its options, and has noted why. */
vt_status vt_world_check_same_options(const vt_config *config, vt_world *world);

#endif
