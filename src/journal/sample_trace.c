#include "journal/sample_trace.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "data/source.h"
#include "storage/output_file.h"

vt_status vt_sample_trace_open(const vt_world *world, const char *run_directory, int64_t steps, vt_rows **trace)
{
    vt_status status = VT_OK;
    if (world->coordinate[VT_AXIS_PIPELINE] != 0 || world->coordinate[VT_AXIS_TENSOR] != 0 ||
        world->coordinate[VT_AXIS_CONTEXT] != 0)
        return VT_OK;
    char *logs = vt_text_format("%s/logs", run_directory), name[32];
    snprintf(name, sizeof name, "samples-%d.csv", world->rank);
    VT_TRY(vt_output_make_directory(logs));
    VT_TRY(vt_rows_open(logs, name, "step,epoch,position,sample,place\n", VT_ROWS_SAMPLES, steps, trace));
done:
    free(logs);
    return status;
}

void vt_sample_trace_add(vt_rows *trace, int64_t step, int64_t epoch, const vt_batch *batch)
{
    vt_text rows = {0};
    if (trace == NULL || batch->samples == NULL || batch->sample_count == 0) return;
    vt_text_append(&rows, "%s", "");
    for (int64_t i = 0; i < batch->sample_count; i++) {
        char place[4096];
        if (batch->samples[i] < 0) continue;
        batch->source->kind->describe(batch->source, batch->samples[i], place, sizeof place);
        vt_text_append(&rows, "%ld,%ld,%ld,%ld,", step, epoch, batch->first_in_batch + i, batch->samples[i]);
        vt_csv_append(&rows, place);
        vt_text_append(&rows, "\n");
    }
    if (vt_rows_add(trace, "%s", rows.characters) != VT_OK) {
        vt_log_warning("%s; it ends in step %ld", vt_error_text(), step);
        vt_error_clear();
    }
    vt_text_close(&rows);
}
