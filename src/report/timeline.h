/* A step's pipeline as a picture: a bar for each stage with its forwards, its backwards, and the waiting between them,
 * drawn from the files that comm_trace writes. */
#ifndef VT_REPORT_TIMELINE_H
#define VT_REPORT_TIMELINE_H

#include "base/text.h"
#include "report/run_files.h"

/* Appends a section; nothing for a run without stages, or without traces of all its ranks. */
void vt_timeline_append(vt_text *html, const vt_run_files *run);

#endif
