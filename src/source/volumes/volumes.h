/* The source `volumes`: cubes cut at random out of a box of N-body fields (the input) and hydrodynamic fields (the
 * target) at the same place, each turned in one of 24 ways. Tensors are [side³, channels], the last axis of the box
 * fastest. */
#ifndef VT_SOURCE_VOLUMES_VOLUMES_H
#define VT_SOURCE_VOLUMES_VOLUMES_H

#include "data/source.h"
#include "source/volumes/turn.h"

/* A random cube without fields. It depends only on these arguments: the sample `index` of an epoch, and the points
 * along each axis of the box and of the cube. */
vt_cube vt_volume_draw(uint64_t seed, vt_set set, int64_t epoch, int64_t index, int64_t box, int64_t side);

extern const vt_source_kind vt_source_volumes;

#endif
