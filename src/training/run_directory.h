/* Where a run writes: <expdir>/<config>/<ranks>CPU/<run_num>. */
#ifndef VT_TRAINING_RUN_DIRECTORY_H
#define VT_TRAINING_RUN_DIRECTORY_H

#include "config/config.h"

/* Its path; malloc'd. */
char *vt_run_directory_path(const vt_config *config, int ranks);

/* Makes it; one that exists is renamed to <run_num>.old-<time> first, never overwritten. *path is malloc'd. *renamed is
 * the older one's new path, malloc'd, or NULL. */
vt_status vt_run_directory_make(const vt_config *config, int ranks, char **path, char **renamed);

#endif
