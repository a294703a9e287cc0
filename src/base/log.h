/* The log: lines "2025-11-13 21:35:55,423 - root - INFO - ..." (the format of Python's logging, which the tutorials'
 * log parsers expect) on standard output and, after vt_log_open, in the run's out.log. Control characters are escaped.
 */
#ifndef VT_BASE_LOG_H
#define VT_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

/* From here on lines also go to the file `path`, which is created, or continued if `append`. */
vt_status vt_log_open(const char *path, bool append);

/* Closes the file. Fails if a line could not be written (a full disk, say), to standard output or to the file. */
vt_status vt_log_close(void);

/* prepare(context) is called before each line, to clear what is drawn below the log on a terminal. NULL: nothing to
 * call. */
void vt_log_before_line(void (*prepare)(void *context), void *context);

/* Locks the log: a reader thread may log at any time, so code that draws below the log does so between these two calls.
 * prepare is called with the lock held. */
void vt_log_lock(void);
void vt_log_unlock(void);

/* What the log leaves out. */
typedef struct {
    bool muted;         /* lines go only to the file, if there is one: of several ranks only the first prints */
    bool hides_details; /* standard output doesn't get them: they are for the file and for programs that read the log */
    bool bare_scripts;  /* lines that scripts of PyTorch print as they are have no date and level before them */
} vt_log_filters;
extern vt_log_filters vt_log_filter;

/* A line to standard output and to the file, of one of these kinds; a failure, why the run ends, to the file alone: the
 * command prints it itself. Any thread. The macros are to be called. */
typedef enum { VT_LOG_INFO, VT_LOG_DETAIL, VT_LOG_SCRIPT, VT_LOG_WARNING, VT_LOG_FAILURE } vt_log_kind;
void vt_log_line(vt_log_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define vt_log_info(...) vt_log_line(VT_LOG_INFO, __VA_ARGS__)
#define vt_log_detail(...) vt_log_line(VT_LOG_DETAIL, __VA_ARGS__)
#define vt_log_script(...) vt_log_line(VT_LOG_SCRIPT, __VA_ARGS__)
#define vt_log_warning(...) vt_log_line(VT_LOG_WARNING, __VA_ARGS__)
#define vt_log_failure(...) vt_log_line(VT_LOG_FAILURE, __VA_ARGS__)

/* Each line of the text (NULL: none) as a line of the log; one that begins with '!' is a warning, without the mark. */
void vt_log_lines(const char *text);

#endif
