/* One pass over a data set without training. */
#ifndef VT_TRAINING_VALIDATE_H
#define VT_TRAINING_VALIDATE_H

#include "training/step.h"

/* Collective. Means over all samples of the set, each counted once, in order. *validation is to be closed, also after a
 * failure. Ends with VT_STOPPED between two batches when the run is to stop, on any rank (stop.h). */
vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_baseline, vt_evaluation *validation);

#endif
