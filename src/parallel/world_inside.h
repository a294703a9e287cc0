/* What the files of this room call of one another. */
#ifndef VT_PARALLEL_WORLD_INSIDE_H
#define VT_PARALLEL_WORLD_INSIDE_H

#include "parallel/world.h"

/* world_groups.c. Collective. The group of all ranks, over host memory. */
vt_status vt_world_open_everyone(vt_world *world);

/* agree.c. Collective. Ranks with other options than rank 0's would wait for messages that never come, or each train a
 * model of its own. config NULL: this rank could not read its options, and has noted why. */
vt_status vt_world_check_same_options(const vt_config *config, vt_world *world);

#endif
