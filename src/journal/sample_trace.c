#include "journal/sample_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/source.h"
#include "journal/metrics.h"
#include "storage/output_file.h"

struct vt_sample_trace {
    FILE *file; /* NULL: it ended */
    char *path;
};

vt_status vt_sample_trace_open(const vt_world *world, const char *run_directory, int64_t steps,
                               vt_sample_trace **result)
{
    vt_status status = VT_OK;
    if (vt_world_coordinate(world, VT_AXIS_TENSOR) != 0 || vt_world_coordinate(world, VT_AXIS_CONTEXT) != 0)
        return VT_OK;
    char *logs = vt_text_format("%s/logs", run_directory);
    vt_sample_trace *trace = vt_allocate(1, sizeof *trace, "the trace of samples");
    trace->path = vt_text_format("%s/samples-%d.csv", logs, vt_world_rank(world));
    VT_TRY(vt_output_make_directory(logs));
    VT_TRY(vt_rows_open(trace->path, "step,epoch,position,sample,place\n", steps, &trace->file));
    *result = trace;
    trace = NULL;
done:
    vt_sample_trace_close(&trace);
    free(logs);
    return status;
}

/* Ranks other than 0 have no log. */
static void end(vt_sample_trace *trace, bool written, int64_t step)
{
    const bool whole = vt_file_close(trace->file, written);
    const int reason = errno;
    trace->file = NULL;
    if (whole) return;
    vt_log_warning("can't write %s: %s; it ends in step %lld", trace->path, strerror(reason), (long long)step);
}

/* A field of a .csv file: in quotes, and quotes in it doubled. */
static void print_quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputs("\"\n", file);
}

void vt_sample_trace_add(vt_sample_trace *trace, int64_t step, int64_t epoch, const vt_batch *batch)
{
    if (trace == NULL || trace->file == NULL || batch->samples == NULL) return;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        char place[4096];
        vt_source_describe(batch->source, batch->samples[i], place, sizeof place);
        fprintf(trace->file, "%lld,%lld,%lld,%lld,", (long long)step, (long long)epoch,
                (long long)(batch->first_in_batch + i), (long long)batch->samples[i]);
        print_quoted(trace->file, place);
    }
    if (ferror(trace->file) || fflush(trace->file) != 0) end(trace, false, step);
}

void vt_sample_trace_close(vt_sample_trace **trace)
{
    if (*trace == NULL) return;
    if ((*trace)->file != NULL) fclose((*trace)->file);
    free((*trace)->path);
    free(*trace);
    *trace = NULL;
}
