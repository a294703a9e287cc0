/* Where a run writes: <expdir>/<config>/<n>CPU/<run_num>, n being the ranks, or <n>GPU on GPUs; <m>MP in the place of
 * both when m > 1 ranks work on each sample. */
#ifndef VT_JOURNAL_RUN_DIRECTORY_H
#define VT_JOURNAL_RUN_DIRECTORY_H

#include "config/config.h"

/* Its path; malloc'd. */
char *vt_run_directory_path(const vt_config *config, bool on_gpu);

/* Makes it. If it exists, the older one is renamed to <run_num>.old-<time> first, and its event files to names that
 * TensorBoard does not look for. *renamed is the older one's new path, malloc'd, or NULL. */
vt_status vt_run_directory_make(const char *path, char **renamed);

/* An unused name beside `path`: path.old-20251113-213555, or with -1, -2, … behind it; malloc'd. */
char *vt_run_directory_name_for_old(const char *path);

/* Locks the directory `path` for this process until vt_run_directory_unlock: *lock is a descriptor, or -1 if there is
 * no such directory. If another run holds the lock: an error, or with `wait` waits for it. On file systems without
 * locks every call succeeds. */
vt_status vt_run_directory_lock(const char *path, bool wait, int *lock);
void vt_run_directory_unlock(int *lock);

/* Makes the directory above the run's and locks it, for the time in which the run's own is made or renamed. */
vt_status vt_run_directory_lock_above(const char *path, int *lock);

#endif
