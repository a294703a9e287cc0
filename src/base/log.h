/* The log: lines "2025-11-13 21:35:55,423 - root - INFO - ..." (the format of Python's logging, which the tutorials'
 * log parsers expect) on standard output and, once vt_log_open was called, in the run's out.log. */
#ifndef VT_BASE_LOG_H
#define VT_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

/* From here on lines also go to the file `path`: made anew, or its end when `append`. */
vt_status vt_log_open(const char *path, bool append);

/* Closes the file. Fails when a line could not be written, standard output included (a full disk, say). */
vt_status vt_log_close(void);

/* Calls prepare(context) before each line: what stands below the log on a terminal must make way. NULL: nothing to
 * call. */
void vt_log_before_line(void (*prepare)(void *context), void *context);

/* A reader thread may log at any time: who draws below the log does so between these two, and so is prepare called. */
void vt_log_lock(void);
void vt_log_unlock(void);

/* From here on only the file gets lines, if there is one: of several ranks the first speaks. */
void vt_log_mute(void);

/* Lines of vt_log_detail are for the file and for programs that read the log; when this is called with true, standard
 * output does not get them. */
void vt_log_hide_details(bool hide);

/* Why the run ends, as an ERROR line in the file only: the command prints it itself. */
void vt_log_failure(const char *reason);

void vt_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vt_log_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vt_log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
