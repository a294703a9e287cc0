/* A U-Net's predictions scored against the boxes: `vitrain evaluate` of a run on the task cosmology. */
#ifndef VT_FORECAST_CUBES_H
#define VT_FORECAST_CUBES_H

#include "config/config.h"
#include "forecast/place.h"
#include "parallel/launch.h"

/* Collective. Goes once through the validation samples. Prints the loss and the L1 of each channel beside those of
 * copying, and the power spectra of the density; writes l1.csv and spectrum.csv. */
vt_status vt_cubes_evaluate(const vt_config *config, const char *checkpoint, vt_place *place, const vt_launch *launch);

#endif
