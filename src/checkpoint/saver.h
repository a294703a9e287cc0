/* Saves a run's checkpoints: at once, or with async_checkpoint from a copy, while training goes on. Then a thread of
 * each rank writes its shard; when all have, one of rank 0 writes the index and gives the checkpoint its name. One is
 * under way at a time. */
#ifndef VT_CHECKPOINT_SAVER_H
#define VT_CHECKPOINT_SAVER_H

#include "checkpoint/store.h"

typedef struct vt_checkpoint_saver vt_checkpoint_saver;

/* Takes the copy's memory, if there is to be one. Subject and store outlive the saver. */
vt_status vt_checkpoint_saver_open(const vt_checkpoint_subject *subject, vt_checkpoint_store *store,
                                   vt_checkpoint_saver **saver);

/* Waits for this rank's thread. A checkpoint that is not whole on all ranks stays an unfinished step-N.tmp. */
void vt_checkpoint_saver_close(vt_checkpoint_saver **saver);

/* Collective. Saves the subject as step-<progress->step>, which is `best` when its validation is the best so far (as
 * progress->best_loss then says). With a copy it is whole only after _look or _wait, and one that is still under way is
 * waited for first. begin: when (vt_clock_seconds) training stopped for it, for the log. */
vt_status vt_checkpoint_saver_save(vt_checkpoint_saver *saver, vt_run_progress *progress, double begin);

/* Collective, behind each step: goes on with the one under way where all ranks have come so far, waits for nothing.
 * Errors: those of its writing, on all ranks. */
vt_status vt_checkpoint_saver_look(vt_checkpoint_saver *saver);

/* Collective. Until none is under way. */
vt_status vt_checkpoint_saver_wait(vt_checkpoint_saver *saver);

/* The step of the one under way; -1: none is. The same on all ranks. */
int64_t vt_checkpoint_saver_busy(const vt_checkpoint_saver *saver);

#endif
