/* report.html of a run, and the page that compares several runs: made only from the files of their directories. */
#ifndef VT_REPORT_RUN_REPORT_H
#define VT_REPORT_RUN_REPORT_H

#include "base/status.h"

/* path NULL: <directory>/report.html */
vt_status vt_run_report_write(const char *directory, const char *path);

/* One page over several runs: their curves together, what differs in their configurations, and their figures. */
vt_status vt_run_report_compare(const char *const *directories, int count, const char *path);

#endif
