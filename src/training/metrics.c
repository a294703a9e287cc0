#include "training/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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

vt_status vt_metrics_open(const char *path, vt_metrics **result)
{
    vt_status status = VT_OK;
    vt_metrics *metrics = calloc(1, sizeof *metrics);
    VT_ASSERT(metrics != NULL);
    metrics->path = vt_text_copy(path);
    metrics->file = fopen(path, "w");
    VT_CHECK(metrics->file != NULL, "can't write %s: %s", path, strerror(errno));
    VT_TRY(write_through(metrics, fprintf(metrics->file, "step,epoch,loss,learning_rate,grad_norm,samples_per_sec,"
                                                         "data_wait_fraction\n")));
done:
    if (status != VT_OK) vt_metrics_close(&metrics);
    *result = metrics;
    return status;
}

vt_status vt_metrics_add(vt_metrics *metrics, const vt_metrics_row *row)
{
    int written =
        fprintf(metrics->file, "%lld,%lld,%.9g,%.9g,%.9g,%.9g,%.9g\n", (long long)row->step, (long long)row->epoch,
                row->loss, row->learning_rate, row->gradient_norm, row->samples_per_sec, row->data_wait_fraction);
    return write_through(metrics, written);
}

void vt_metrics_close(vt_metrics **metrics)
{
    if (*metrics == NULL) return;
    if ((*metrics)->file != NULL) fclose((*metrics)->file);
    free((*metrics)->path);
    free(*metrics);
    *metrics = NULL;
}
