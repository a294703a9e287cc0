/* Where a run writes: <expdir>/<config>/<n>CPU/<run_num>, n being the ranks, or <n>GPU on GPUs; <m>MP in the place of
 * both when m > 1 ranks work on each sample. */
#ifndef VT_JOURNAL_RUN_DIRECTORY_H
#define VT_JOURNAL_RUN_DIRECTORY_H

#include "config/config.h"

/* Its path; malloc'd. */
char *vt_run_directory_path(const vt_config *config, bool on_gpu);

/* Makes it; one that exists is renamed to <run_num>.old-<time> first, never overwritten, and its event files to names
 * that TensorBoard does not look for. *path is malloc'd. *renamed is the older one's new path, malloc'd, or NULL. */
vt_status vt_run_directory_make(const vt_config *config, bool on_gpu, char **path, char **renamed);

/* A name beside `path` that nothing has yet: path.old-20251113-213555, then -1, -2, … behind it; malloc'd. */
char *vt_run_directory_name_for_old(const char *path);

/* Locks the directory `path` for this process until vt_run_directory_unlock: *lock is a descriptor, or -1 where there
 * is no such directory. Another run that holds it is an error, or waited for when `wait`. File systems without locks
 * grant them all. */
vt_status vt_run_directory_lock(const char *path, bool wait, int *lock);
void vt_run_directory_unlock(int *lock);

/* Makes the directory above the run's and locks it: while the run's own changes its name or comes to be. */
vt_status vt_run_directory_lock_above(const vt_config *config, bool on_gpu, int *lock);

#endif
