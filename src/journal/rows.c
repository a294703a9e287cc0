#include "journal/rows.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "journal/run_directory.h"

struct vt_rows {
    FILE *file; /* NULL after a failure */
    char *path;
};

/* Where the last whole row of a step <= steps ends. 0: the file does not begin with these names. -1: it can't be
 * read. */
static long find_end(FILE *file, const char *names, int64_t steps)
{
    char *line = NULL;
    size_t size = 0;
    long end = 0;
    long long step = 0;
    while (vt_file_line(file, &line, &size) > 0 && strchr(line, '\n') != NULL) {
        bool wanted = end == 0 ? strcmp(line, names) == 0 : sscanf(line, "%lld,", &step) == 1 && step <= steps;
        if (!wanted) break;
        end = ftell(file);
    }
    free(line);
    return ferror(file) ? -1 : end;
}

static vt_status set_aside(const char *path, const char *names)
{
    vt_status status = VT_OK;
    char *old = vt_run_directory_name_for_old(path);
    VT_CHECK(rename(path, old) == 0, "can't rename %s to %s: %s", path, old, strerror(errno));
    vt_log_warning("%s does not begin with the line '%.*s', so it cannot be continued; it was renamed to %s", path,
                   (int)strcspn(names, "\n"), names, old);
done:
    free(old);
    return status;
}

/* Cuts the file back to that step; leaves *result alone if there is no file with these names. */
static vt_status open_earlier(const char *path, const char *names, int64_t steps, FILE **result)
{
    vt_status status = VT_OK;
    struct stat info;
    FILE *file = fopen(path, "r+");
    VT_CHECK(file != NULL || errno == ENOENT, "can't open %s: %s", path, strerror(errno));
    if (file == NULL) return VT_OK;
    const long end = find_end(file, names, steps);
    VT_CHECK(end >= 0 && fstat(fileno(file), &info) == 0, "can't read %s: %s", path, strerror(errno));
    if (end == 0) {
        if (info.st_size > 0) VT_TRY(set_aside(path, names));
        goto done;
    }
    VT_CHECK(ftruncate(fileno(file), end) == 0 && fseek(file, end, SEEK_SET) == 0, "can't cut %s back to step %lld: %s",
             path, (long long)steps, strerror(errno));
    *result = file;
    file = NULL;
done:
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_rows_open(const char *path, const char *names, int64_t steps, vt_rows **result)
{
    vt_status status = VT_OK;
    vt_rows *rows = vt_allocate(1, sizeof *rows, "a file of a run");
    rows->path = vt_text_copy(path);
    if (steps > 0) VT_TRY(open_earlier(path, names, steps, &rows->file));
    if (rows->file == NULL) {
        rows->file = fopen(path, "w");
        VT_CHECK(rows->file != NULL, "can't write %s: %s", path, strerror(errno));
        VT_TRY(vt_rows_add(rows, "%s", names));
    }
done:
    if (status != VT_OK) vt_rows_close(&rows);
    *result = rows;
    return status;
}

vt_status vt_rows_add(vt_rows *rows, const char *format, ...)
{
    vt_status status = VT_OK;
    if (rows == NULL || rows->file == NULL) return VT_OK;
    va_list arguments;
    va_start(arguments, format);
    const bool written = vfprintf(rows->file, format, arguments) >= 0 && fflush(rows->file) == 0;
    va_end(arguments);
    VT_CHECK(written, "can't write %s: %s", rows->path, strerror(errno));
done:
    if (status != VT_OK) {
        fclose(rows->file);
        rows->file = NULL;
    }
    return status;
}

vt_status vt_rows_synchronise(vt_rows *rows)
{
    vt_status status = VT_OK;
    if (rows == NULL || rows->file == NULL) return VT_OK;
    /* what can't be synchronised (a pipe) says EINVAL */
    VT_CHECK(fsync(fileno(rows->file)) == 0 || errno == EINVAL, "can't write %s to the disk: %s", rows->path,
             strerror(errno));
done:
    return status;
}

void vt_rows_close(vt_rows **rows)
{
    if (*rows == NULL) return;
    if ((*rows)->file != NULL) fclose((*rows)->file);
    free((*rows)->path);
    free(*rows);
    *rows = NULL;
}
