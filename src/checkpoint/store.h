/* The checkpoints of a run: <run directory>/checkpoints/step-NNNNNNNN/. One appears whole or not at all, and an older
 * one goes only after it; whenever the program or the machine dies, the last whole one is there. */
#ifndef VT_CHECKPOINT_STORE_H
#define VT_CHECKPOINT_STORE_H

#include "checkpoint/checkpoint.h"

typedef struct vt_checkpoint_store vt_checkpoint_store;

/* Touches nothing. keep_last: how many of the newest stay, besides the best. */
vt_status vt_checkpoint_store_open(const char *run_directory, int64_t keep_last, vt_checkpoint_store **store);
void vt_checkpoint_store_close(vt_checkpoint_store **store);

/* Is there any? A directory that can't be read is an error. */
vt_status vt_checkpoint_store_has_any(const vt_checkpoint_store *store, bool *any);

/* Is the directory `path` one of them (also one that was set aside, or by way of a link)? */
bool vt_checkpoint_store_owns(const vt_checkpoint_store *store, const char *path);

/* ---- for the saver (saver.h), on rank 0 ---- */

/* An empty directory for the checkpoint of this step; *unfinished, its name until it is whole, is malloc'd. */
vt_status vt_checkpoint_store_begin(const vt_checkpoint_store *store, int64_t step, char **unfinished);

/* Gives the whole checkpoint its name, makes it `best` if it is, and removes the ones that are no longer kept. If
 * `best` can't be made, the log warns, and the best one is kept all the same. */
vt_status vt_checkpoint_store_settle(vt_checkpoint_store *store, const char *unfinished, int64_t step, bool is_best);

/* Removes those that are no longer kept; for a run that died before it could. Failures are logged. */
void vt_checkpoint_store_remove_old(const vt_checkpoint_store *store);

/* Removes one that will not be finished. */
void vt_checkpoint_store_discard(const char *unfinished);

/* Collective. Reads the checkpoint directory `chosen`, which is one of them, or when that is NULL the newest that is
 * not damaged, and says so in the log. Removes what an interrupted save left, and sets aside checkpoints that are newer
 * than the one read. */
vt_status vt_checkpoint_store_restore(vt_checkpoint_store *store, const char *chosen,
                                      const vt_checkpoint_subject *subject, vt_run_progress *progress);

/* Collective. If there is a checkpoint that is older than this step, as *older says, sets those aside that aren't:
 * training from them gives no finite numbers. */
vt_status vt_checkpoint_store_step_back(const vt_checkpoint_store *store, vt_world *world, int64_t step, bool *older);

/* Logs that the run resumes from it; also for a checkpoint that was read without a store. */
void vt_checkpoint_log_resumed(const char *path, const vt_run_progress *progress);

#endif
