/* --enable_benchy: how fast the reader is alone, the steps are on one batch, and both are together; lines and JSON as
 * NERSC's benchy writes them. */
#ifndef VT_TRAINING_BENCHY_H
#define VT_TRAINING_BENCHY_H

#include "training/trainer.h"

/* Collective. Trains the model on the way. The JSON file goes to BENCHY_OUTPUT, else into the run directory; rank 0
 * writes it. *trains_on: the configuration wants the run to go on (exit_after_tests: False). */
vt_status vt_benchy_run(vt_trainer *trainer, vt_loader *loader, const char *run_directory, bool *trains_on);

#endif
