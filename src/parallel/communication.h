/* What an optimizer step sends: by formula, from the configuration alone, and as the groups of a world have counted it.
 * docs/parallelism.md derives the formulas; tests hold what is counted to them. Bytes are those that one rank hands to
 * others, as a ring sends them (vt_volume in group.h). Nothing here communicates. */
#ifndef VT_PARALLEL_COMMUNICATION_H
#define VT_PARALLEL_COMMUNICATION_H

#include "parallel/world.h"

typedef enum {
    VT_TRAFFIC_TENSOR,    /* activations between the ranks of the tensor axis */
    VT_TRAFFIC_CONTEXT,   /* keys and values, and a sample's norms, between those of the context axis */
    VT_TRAFFIC_GRADIENTS, /* gradients, and with ZeRO parameters */
    VT_TRAFFIC_FIGURES,   /* losses and norms: a few numbers */
    VT_TRAFFIC_COUNT
} vt_traffic;

const char *vt_traffic_name(vt_traffic traffic);

/* What a group of a world is for. */
vt_traffic vt_traffic_of(const vt_group *group);

/* Of one step of rank vt_world_rank(world) (also of a dry world). Of the gradients `operations` is 0: how many there
 * are depends on bucket_cap_mb; and buckets are padded, by less than 64 bytes a tensor and a shard, which is not
 * counted here. */
void vt_communication_expected(const vt_config *config, const vt_world *world, vt_volume expected[VT_TRAFFIC_COUNT]);

/* All that this rank's groups have counted since they were made: the difference over a step is the step's. */
void vt_communication_counted(const vt_world *world, vt_volume counted[VT_TRAFFIC_COUNT]);

#endif
