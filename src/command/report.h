/* `vitrain report DIR [DIR …]`: report.html of a run, or one page that compares several. */
#ifndef VT_COMMAND_REPORT_H
#define VT_COMMAND_REPORT_H

#include "base/status.h"

/* arguments: those after the word "report". */
vt_status vt_command_report(int argument_count, char *const *arguments);

#endif
