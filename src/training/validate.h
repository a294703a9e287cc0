/* One pass over the validation set. */
#ifndef VT_TRAINING_VALIDATE_H
#define VT_TRAINING_VALIDATE_H

#include "training/step.h"

/* Means over all samples, every one once, in order. */
typedef struct {
    double loss;
    double persistence_loss; /* NAN when it was not asked for, or can't be scored */
    double seconds;
    double *rmse;             /* [n_out_channels], latitude-weighted, normalised units */
    double *persistence_rmse; /* likewise, NAN when it was not asked for; NULL: not wanted */
} vt_validation;

/* Collective. rmse must have room for n_out_channels. VT_STOPPED between two batches when that is wished on any rank
 * (stop.h). */
vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_persistence, vt_validation *validation);

#endif
