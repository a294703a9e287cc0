/* Measures this machine, as the ranks of a launcher find it: the rates that vitrain's own operations reach at a
 * configuration's sizes, and what messages between the ranks take. */
#ifndef VT_PLANNING_CALIBRATE_H
#define VT_PLANNING_CALIBRATE_H

#include "parallel/world.h"
#include "planning/hardware.h"

/* Collective; all ranks measure at the same time, since they share cores and memory, and come to the same table: the
 * slowest rank's times. `samples` a rank are worked on at once. Rates of products and attention in every
 * precision; what memory bounds in the configuration's. Messages to ranks that aren't
 * there are guessed. */
vt_status vt_calibrate(const vt_config *config, int64_t samples, vt_world *world, vt_backend *backend,
                       vt_hardware *hardware);

#endif
