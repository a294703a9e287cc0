#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/text.h"

static _Thread_local vt_error noted;

/* Wherever the system refused to open one more file: how many may be open, and what raises that. */
static void explain_open_files(char *text, size_t size)
{
    struct rlimit limit;
    const size_t length = strlen(text);
    if (strstr(text, strerror(ENFILE)) != NULL) /* first, as it begins like the other one */
        snprintf(text + length, size - length,
                 "; all programs of this machine together have as many open as its limit allows (fs.file-max)");
    else if (strstr(text, strerror(EMFILE)) != NULL && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(text + length, size - length,
                 "; this process may have %llu open files: `ulimit -n NUMBER` before its start raises that%s",
                 (unsigned long long)limit.rlim_cur,
                 limit.rlim_cur < limit.rlim_max ? "" : ", but here only the administrator may raise it (hard limit)");
}

vt_status vt_error_note(const char *file, int line, const char *format, ...)
{
    if (noted.text[0] != '\0') return VT_ERROR;
    char text[sizeof noted.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    explain_open_files(text, sizeof text);
    vt_text_on_one_line(noted.text, sizeof noted.text, text);
    snprintf(noted.place, sizeof noted.place, "%s:%d", file, line);
    return VT_ERROR;
}

vt_status vt_error_context(const char *format, ...)
{
    char context[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    char joined[sizeof noted.text];
    int written = snprintf(joined, sizeof joined, "%s: %s", context, noted.text);
    if (written > 0) vt_text_on_one_line(noted.text, sizeof noted.text, joined);
    return VT_ERROR;
}

const char *vt_error_text(void)
{
    return noted.text;
}

const char *vt_error_place(void)
{
    return noted.place;
}

void vt_error_clear(void)
{
    noted.text[0] = '\0';
    noted.place[0] = '\0';
}

void vt_error_move_out(vt_error *error)
{
    *error = noted;
    vt_error_clear();
}

void vt_error_move_in(const vt_error *error)
{
    noted = *error;
}

void vt_assertion_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "vitrain: this is a bug, please report it: %s:%d: %s\n", file, line, condition);
    abort();
}
