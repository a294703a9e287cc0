/* Writes the file of the option comm_trace: when each bucket was complete, began to be summed, and was waited for. */
#include "optimizer/gradient_sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

struct vt_sync_trace {
    FILE *file; /* NULL: no longer */
    char *path;
    int rank;
    int64_t step;
    double step_begin;
    vt_text rows; /* of the step */
};

vt_status vt_sync_trace_open(const char *path, int rank, vt_sync_trace **trace)
{
    vt_status status = VT_OK;
    FILE *file = fopen(path, "w");
    VT_CHECK(file != NULL, "can't write %s: %s", path, strerror(errno));
    fprintf(file, "step,what,index,bytes,begin,end\n");
    *trace = vt_allocate(1, sizeof **trace, "the communication's trace");
    **trace = (vt_sync_trace){.file = file, .path = vt_text_copy(path), .rank = rank, .step = -1};
done:
    return status;
}

/* Ranks other than 0 have no log. */
static void close_file(vt_sync_trace *trace, bool written)
{
    const bool whole = trace->file == NULL || vt_file_close(trace->file, written);
    const char *reason = strerror(errno);
    trace->file = NULL;
    if (whole) return;
    if (trace->rank == 0)
        vt_log_warning("can't write %s: %s; it ends in step %ld", trace->path, reason, trace->step);
    else
        fprintf(stderr, "vitrain: rank %d: can't write %s: %s; it ends in step %ld, the run goes on\n", trace->rank,
                trace->path, reason, trace->step);
}

void vt_sync_trace_close(vt_sync_trace **trace)
{
    if (*trace == NULL) return;
    close_file(*trace, true);
    free((*trace)->path);
    vt_text_close(&(*trace)->rows);
    free(*trace);
    *trace = NULL;
}

void vt_sync_trace_begin(vt_sync_trace *trace, int64_t step)
{
    if (trace == NULL || trace->step == step) return;
    trace->step = step;
    trace->step_begin = vt_clock_seconds();
}

void vt_sync_trace_note(vt_sync_trace *trace, const char *what, int64_t index, int64_t bytes, double begin)
{
    if (trace == NULL || trace->file == NULL) return;
    vt_text_append(&trace->rows, "%ld,%s,%ld,%ld,%.6f,%.6f\n", trace->step, what, index, bytes,
                   begin - trace->step_begin, vt_clock_seconds() - trace->step_begin);
}

void vt_sync_trace_end(vt_sync_trace *trace, double begin)
{
    vt_sync_trace_note(trace, "finished", 0, 0, begin);
    if (trace == NULL || trace->file == NULL) return;
    fputs(trace->rows.characters, trace->file);
    vt_text_close(&trace->rows);
    if (ferror(trace->file) || fflush(trace->file) != 0) close_file(trace, false);
}
