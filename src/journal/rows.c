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
#include "storage/output_file.h"

struct vt_rows {
    FILE *file; /* NULL after a failure */
    char *path;
};

/* Lines or rows, for a message: "13, 15 to 20"; of many only the first ones. */
typedef struct {
    vt_text text;
    int64_t count;
} places;

static void add_places(places *all, int64_t first, int64_t last)
{
    enum { LONGEST = 200 };
    const char *comma = all->count > 0 ? ", " : "";
    all->count += last - first + 1;
    if (all->text.length > LONGEST) return;
    vt_text_append(&all->text, first < last ? "%s%ld to %ld" : "%s%ld", comma, first, last);
    if (all->text.length > LONGEST) vt_text_append(&all->text, ", …");
}

/* What there is in a file for a run that goes on behind `last`. */
typedef struct {
    long end;       /* of the last row that stays; 0: the file does not begin with its names */
    places damaged; /* lines, from 1; what follows the row of `last` does not count */
    places missing; /* steps or epochs */
} contents;

static void close_contents(contents *of)
{
    vt_text_close(&of->damaged.text);
    vt_text_close(&of->missing.text);
}

/* The step or epoch of a line; -1 if it is damaged: has not as many cells as names, or not only numbers, or no end. */
static int64_t number_of(const char *line, size_t length, const char *names, vt_rows_kind kind)
{
    int cells = 0;
    bool is_quoted = false;
    int64_t number = -1;
    for (; *names != '\0'; names++) cells += *names == ',';
    for (const char *c = line; *c != '\0'; c++) {
        if (*c == '"') is_quoted = !is_quoted;
        if (is_quoted) continue;
        if (strchr("0123456789+-.,einfa\"\n", *c) == NULL) return -1;
        cells -= *c == ',';
    }
    if (cells != 0 || strlen(line) != length || line[length - 1] != '\n') return -1;
    sscanf(kind == VT_ROWS_EPOCHS ? strchr(line, ',') + 1 : line, "%ld", &number);
    return number;
}

/* Goes once through the file, and copies what stays, if there is a `copy`. False: it can't be read. */
static bool look_through(FILE *file, const char *names, vt_rows_kind kind, int64_t last, FILE *copy, contents *found)
{
    char *line = NULL;
    size_t size = 0, length = 0;
    const bool is_dense = kind != VT_ROWS_SAMPLES;
    /* of the lines that were dropped since the last one that stays: all, and those up to the last damaged one */
    int64_t dropped = 0, damaged = 0, place = 0, before = 0;
    *found = (contents){0};
    while ((length = vt_file_line(file, &line, &size)) > 0) {
        const bool is_first = ++place == 1;
        if (is_first && strcmp(line, names) != 0) break;
        const int64_t number = is_first ? 0 : number_of(line, length, names, kind);
        if (!is_first && (number > last || number < 1 || number < before + is_dense)) {
            dropped++;
            if (number <= last) damaged = dropped;
            continue;
        }
        if (dropped > 0) add_places(&found->damaged, place - dropped, place - 1);
        if (is_dense && before > 0 && number > before + 1) add_places(&found->missing, before + 1, number - 1);
        before = number;
        dropped = damaged = 0;
        found->end = ftell(file);
        if (copy != NULL) fputs(line, copy);
    }
    if (damaged > 0 && before < last) add_places(&found->damaged, place - dropped + 1, place - dropped + damaged);
    if (is_dense && before < last) add_places(&found->missing, before + 1, last);
    free(line);
    return !ferror(file);
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

/* Replaces the file by one of the rows that stay, and keeps it under another name. */
static vt_status leave_out_damaged(const char *path, const char *names, vt_rows_kind kind, int64_t last, FILE *file)
{
    vt_status status = VT_OK;
    FILE *copy = NULL;
    contents found = {0};
    char *old = vt_run_directory_name_for_old(path);
    rewind(file);
    VT_TRY(vt_output_open(path, &copy));
    VT_CHECK(look_through(file, names, kind, last, copy, &found), "can't read %s: %s", path, strerror(errno));
    VT_CHECK(link(path, old) == 0 || rename(path, old) == 0, "can't rename %s to %s: %s", path, old, strerror(errno));
    status = vt_output_close(copy, path);
    copy = NULL;
    if (status != VT_OK) goto done;
    vt_log_warning("%s: %ld damaged line%s left out (line %s); the original is kept as %s", path, found.damaged.count,
                   found.damaged.count == 1 ? " was" : "s were", found.damaged.text.characters, old);
done:
    if (copy != NULL) fclose(copy);
    close_contents(&found);
    free(old);
    return status;
}

/* Cuts the file back to `last`; leaves *result alone if there is no file with these names. */
static vt_status open_earlier(const char *path, const char *names, vt_rows_kind kind, int64_t last, FILE **result)
{
    vt_status status = VT_OK;
    struct stat info;
    contents found = {0};
    FILE *file = fopen(path, "r+");
    VT_CHECK(file != NULL || errno == ENOENT, "can't open %s: %s", path, strerror(errno));
    if (file == NULL) {
        if (kind != VT_ROWS_SAMPLES) add_places(&found.missing, 1, last);
        goto done;
    }
    VT_CHECK(fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode), "%s is no regular file", path);
    VT_CHECK(look_through(file, names, kind, last, NULL, &found), "can't read %s: %s", path, strerror(errno));
    if (found.end == 0 && info.st_size > 0) {
        VT_TRY(set_aside(path, names));
        found.missing.count = 0; /* the renamed file has them */
    }
    if (found.end == 0) goto done;
    if (found.damaged.count > 0) {
        VT_TRY(leave_out_damaged(path, names, kind, last, file));
        fclose(file);
        file = fopen(path, "r+");
        VT_CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0, "can't open %s: %s", path, strerror(errno));
    } else {
        VT_CHECK(ftruncate(fileno(file), found.end) == 0 && fseek(file, found.end, SEEK_SET) == 0,
                 "can't cut %s back to %ld: %s", path, last, strerror(errno));
    }
    *result = file;
    file = NULL;
done:
    if (status == VT_OK && found.missing.count > 0)
        vt_log_warning("%s: %ld row%s missing (of %s %s): damaged, or not yet on the disk when the machine stopped",
                       path, found.missing.count, found.missing.count == 1 ? " is" : "s are",
                       kind == VT_ROWS_EPOCHS ? "epoch" : "step", found.missing.text.characters);
    close_contents(&found);
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_rows_open(const char *directory, const char *name, const char *names, vt_rows_kind kind, int64_t last,
                       vt_rows **result)
{
    vt_status status = VT_OK;
    vt_rows *rows = vt_allocate(1, sizeof *rows, "a file of a run");
    const char *path = rows->path = vt_text_format("%s/%s", directory, name);
    if (last > 0) VT_TRY(open_earlier(path, names, kind, last, &rows->file));
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
    VT_CHECK(fdatasync(fileno(rows->file)) == 0 || errno == EINVAL, "can't write %s to the disk: %s", rows->path,
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
