/* The checkpoints of a run: <run directory>/checkpoints/step-NNNNNNNN/. One appears whole or not at all, and an older
 * one goes only after it; whenever the program or the machine dies, the last whole one is there. And the
 * saver, which writes them while a run trains. */
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

/* ---- for the saver, on rank 0 ---- */

/* An empty directory for the checkpoint of this step; *unfinished, its name until it is whole, is malloc'd. */
vt_status vt_checkpoint_store_begin(const vt_checkpoint_store *store, int64_t step, char **unfinished);

/* Gives the whole checkpoint its name, makes it `best` if it is, and removes the ones that are no longer kept. If
 * `best` can't be made, the log warns, and the best one is kept all the same. */
vt_status vt_checkpoint_store_settle(vt_checkpoint_store *store, const char *unfinished, int64_t step, bool is_best);

/* Removes those that are no longer kept; for a run that died before it could. Failures are logged. */
void vt_checkpoint_store_remove_old(const vt_checkpoint_store *store);

/* Removes one that will not be finished. Failure is only logged: it is no reason to end the run. */
void vt_checkpoint_remove(const char *unfinished);

/* Collective. Reads the checkpoint directory `chosen`, which is one of them, or when that is NULL the newest that is
 * not damaged, and says so in the log. Removes what an interrupted save left, and sets aside checkpoints that are newer
 * than the one read. */
vt_status vt_checkpoint_store_restore(vt_checkpoint_store *store, const char *chosen,
                                      const vt_checkpoint_subject *subject, vt_run_progress *progress);

/* If there is a checkpoint that is older than this step, as *older says, sets those aside that aren't: training from
 * them gives no finite numbers. On rank 0. */
vt_status vt_checkpoint_store_step_back(const vt_checkpoint_store *store, int64_t step, bool *older);

/* Logs that the run resumes from it; also for a checkpoint that was read without a store. */
void vt_checkpoint_log_resumed(const char *path, const vt_run_progress *progress);

/* ---- the saver (saver.c): writes at once, or with async_checkpoint from a copy, while training goes on. Then a thread
 * of each rank writes its shard; when all have, one of rank 0 writes the index and gives the checkpoint its name. One
 * is under way at a time. ---- */

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
