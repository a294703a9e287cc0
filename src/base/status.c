#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local vt_error noted;

vt_status vt_error_note(const char *file, int line, const char *format, ...)
{
    if (noted.text[0] != '\0') return VT_ERROR;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(noted.text, sizeof noted.text, format, arguments);
    va_end(arguments);
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
    if (written > 0) memcpy(noted.text, joined, sizeof joined);
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
