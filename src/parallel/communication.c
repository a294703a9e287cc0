#include "parallel/communication.h"

#include <string.h>

#include "parallel/world_inside.h"

/* By the names that vt_world_group gives. */
vt_traffic vt_traffic_of(const char *group)
{
    if (strcmp(group, "tp") == 0) return VT_TRAFFIC_TENSOR;
    if (strcmp(group, "cp") == 0) return VT_TRAFFIC_CONTEXT;
    if (strcmp(group, "pp") == 0 || strncmp(group, "pp ", 3) == 0) return VT_TRAFFIC_PIPELINE;
    return strstr(group, " of gradients") != NULL ? VT_TRAFFIC_GRADIENTS : VT_TRAFFIC_FIGURES;
}

void vt_communication_counted(const vt_world *world, vt_volume counted[VT_TRAFFIC_COUNT])
{
    memset(counted, 0, VT_TRAFFIC_COUNT * sizeof *counted);
    for (int i = 0; i < world->group_count; i++)
        vt_volume_add(&counted[vt_traffic_of(world->groups[i]->name)], &world->groups[i]->volume, 1);
}

const char *vt_traffic_name(vt_traffic traffic)
{
    static const char *const names[VT_TRAFFIC_COUNT] = {"tp", "cp", "pp", "gradients", "figures"};
    return names[traffic];
}
