#include "journal/metrics.h"

#include <errno.h>
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

struct vt_metrics {
    FILE *file;
    char *path;
};

static vt_status write_through(vt_metrics *metrics, int written)
{
    vt_status status = VT_OK;
    VT_CHECK(written > 0 && fflush(metrics->file) == 0, "can't write %s: %s", metrics->path, strerror(errno));
done:
    return status;
}

static const char header[] = "step,epoch,loss,learning_rate,grad_norm,samples_per_sec,data_wait_fraction\n";

/* Where the last row of a step <= steps ends: all before are whole lines. 0 when there is no such header. -1: the file
 * can't be read. */
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

/* Cuts the file back to that step; leaves *result alone where there is no file with these names. */
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

vt_status vt_rows_open(const char *path, const char *names, int64_t steps, FILE **result)
{
    vt_status status = VT_OK;
    FILE *file = NULL;
    if (steps > 0) VT_TRY(open_earlier(path, names, steps, &file));
    if (file == NULL) {
        file = fopen(path, "w");
        VT_CHECK(file != NULL && fputs(names, file) >= 0 && fflush(file) == 0, "can't write %s: %s", path,
                 strerror(errno));
    }
    *result = file;
    file = NULL;
done:
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_metrics_open(const char *path, int64_t steps, vt_metrics **result)
{
    vt_metrics *metrics = vt_allocate(1, sizeof *metrics, "metrics.csv");
    metrics->path = vt_text_copy(path);
    vt_status status = vt_rows_open(path, header, steps, &metrics->file);
    if (status != VT_OK) vt_metrics_close(&metrics);
    *result = metrics;
    return status;
}

vt_status vt_metrics_add(vt_metrics *metrics, const vt_metrics_row *row)
{
    if (metrics == NULL) return VT_OK;
    int written =
        fprintf(metrics->file, "%lld,%lld,%.9g,%.9g,%.9g,%.9g,%.9g\n", (long long)row->step, (long long)row->epoch,
                row->loss, row->learning_rate, row->gradient_norm, row->samples_per_sec, row->data_wait_fraction);
    return write_through(metrics, written);
}

vt_status vt_metrics_synchronise(vt_metrics *metrics)
{
    vt_status status = VT_OK;
    if (metrics == NULL) return VT_OK;
    /* what can't be synchronised (a pipe) says EINVAL */
    VT_CHECK(fsync(fileno(metrics->file)) == 0 || errno == EINVAL, "can't write %s to the disk: %s", metrics->path,
             strerror(errno));
done:
    return status;
}

void vt_metrics_close(vt_metrics **metrics)
{
    if (*metrics == NULL) return;
    if ((*metrics)->file != NULL) fclose((*metrics)->file);
    free((*metrics)->path);
    free(*metrics);
    *metrics = NULL;
}
