/* What a rank sends, as the groups of a world have counted it; over the dry engine, before anything runs. Bytes are
 * those that this rank hands to others, as a ring sends them (vt_volume in group.h). Nothing here communicates. */
#ifndef VT_PARALLEL_COMMUNICATION_H
#define VT_PARALLEL_COMMUNICATION_H

#include "parallel/world.h"

typedef enum {
    VT_TRAFFIC_TENSOR,    /* activations between the ranks of the tensor axis */
    VT_TRAFFIC_CONTEXT,   /* keys and values, and a sample's norms, between those of the context axis */
    VT_TRAFFIC_PIPELINE,  /* activations and their gradients between neighbouring stages */
    VT_TRAFFIC_GRADIENTS, /* gradients, and with ZeRO parameters */
    VT_TRAFFIC_FIGURES,   /* losses and norms: a few numbers */
    VT_TRAFFIC_COUNT
} vt_traffic;

const char *vt_traffic_name(vt_traffic traffic);

/* What a group of a world is for, by its name. */
vt_traffic vt_traffic_of(const char *group);

/* All that this rank's groups have counted since they were made: the difference over a step is the step's. */
void vt_communication_counted(const vt_world *world, vt_volume counted[VT_TRAFFIC_COUNT]);

#endif
