/* The test set of a run: opened before the first step, gone through once after the last. */
#ifndef VT_TRAINING_TEST_SET_H
#define VT_TRAINING_TEST_SET_H

#include "data/source.h"
#include "training/trainer.h"

typedef struct vt_test_set vt_test_set;

/* Collective. *set is NULL if there is no test set. Unless the source needs it (vt_source_kind.needs_test_set), the run
 * goes on if the test set can't be used, or doesn't go with `training`. */
vt_status vt_test_set_open(const vt_config *config, vt_world *world, const vt_source *training, vt_test_set **set);
void vt_test_set_close(vt_test_set **set);

/* NULL: there is none that can be used. */
const vt_source *vt_test_set_source(const vt_test_set *set);

/* Warns if it can't be used, or shares times with the other sets. set may be NULL, here and below. */
void vt_test_set_log(const vt_test_set *set, const vt_source *training, const vt_source *validation);

/* Collective. Logs the loss over it, in the words of the courses. A request to stop ends this pass only. run_directory
 * is named to the user. Where the task also tells of the best checkpoint, this one's parameters are read, unless
 * last_is_best. */
vt_status vt_test_set_score(vt_test_set *set, vt_trainer *trainer, const char *run_directory, bool last_is_best);

#endif
