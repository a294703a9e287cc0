#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static int write_error;
vt_log_filters vt_log_filter;
static void (*before_line)(void *context);
static void *before_line_context;

void vt_log_line(vt_log_kind kind, const char *format, ...)
{
    static const char *const levels[] = {[VT_LOG_WARNING] = "WARNING", [VT_LOG_FAILURE] = "ERROR"};
    const bool to_output =
        kind != VT_LOG_FAILURE && !vt_log_filter.muted && !(kind == VT_LOG_DETAIL && vt_log_filter.hides_details);
    char stamp[32], text[4096], line[sizeof text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    vt_clock_stamp(stamp);
    vt_text_on_one_line(line, sizeof line, text);
    vt_log_lock();
    if (to_output && before_line != NULL) before_line(before_line_context);
    FILE *const targets[2] = {to_output ? stdout : NULL, file};
    for (int i = 0; i < 2; i++) {
        if (targets[i] == NULL) continue;
        const int written = kind == VT_LOG_SCRIPT && vt_log_filter.bare_scripts
                                ? fprintf(targets[i], "%s\n", line)
                                : fprintf(targets[i], "%s - root - %s - %s\n", stamp,
                                          kind < VT_LOG_WARNING ? "INFO" : levels[kind], line);
        if (written < 0 || fflush(targets[i]) != 0) write_error = errno;
    }
    vt_log_unlock();
}

void vt_log_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void vt_log_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

void vt_log_before_line(void (*prepare)(void *context), void *context)
{
    vt_log_lock();
    before_line = prepare;
    before_line_context = context;
    vt_log_unlock();
}

vt_status vt_log_open(const char *path, bool append)
{
    vt_status status = VT_OK;
    FILE *opened = fopen(path, append ? "a" : "w");
    VT_CHECK(opened != NULL, "can't write the log %s: %s", path, strerror(errno));
    if (file != NULL) fclose(file);
    file = opened;
    write_error = 0;
done:
    return status;
}

vt_status vt_log_close(void)
{
    vt_status status = VT_OK;
    if (file != NULL && fclose(file) != 0) write_error = errno;
    file = NULL;
    VT_CHECK(write_error == 0, "the log could not be written in full: %s", strerror(write_error));
done:
    write_error = 0;
    return status;
}

void vt_log_lines(const char *text)
{
    for (int length; text != NULL && text[0] != '\0'; text += length + (text[length] == '\n')) {
        length = (int)strcspn(text, "\n");
        if (text[0] == '!')
            vt_log_warning("%.*s", length - 1, text + 1);
        else
            vt_log_info("%.*s", length, text);
    }
}
