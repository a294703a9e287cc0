#include "journal/epochs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/process_memory.h"
#include "base/text.h"
#include "journal/metrics.h"

struct vt_epochs {
    FILE *file;
    char *path;
};

/* "rmse_u10" … "persistence_rmse_u10" …; a name that CSV can't hold bare is replaced by the score's number. */
static char *line_of_names(const vt_score_names *scores)
{
    vt_text names = {0};
    vt_text_append(&names, "step,epoch,train_loss,valid_loss,persistence_loss,seconds,samples,valid_seconds,"
                           "data_seconds,forward_seconds,backward_seconds,optimizer_seconds,communication_seconds,"
                           "resident_bytes,peak_bytes");
    for (int of_baseline = 0; of_baseline < 2; of_baseline++) {
        for (int64_t i = 0; i < scores->count; i++) {
            vt_text_append(&names, of_baseline ? ",persistence_%s_" : ",%s_", scores->column);
            if (strpbrk(scores->names[i], ",\"\n") == NULL)
                vt_text_append(&names, "%s", scores->names[i]);
            else
                vt_text_append(&names, "%lld", (long long)i);
        }
    }
    vt_text_append(&names, "\n");
    return names.characters;
}

static vt_status write_plan(const vt_record_options *options)
{
    vt_status status = VT_OK;
    char *path = vt_text_format("%s/plan.csv", options->run_directory);
    FILE *file = fopen(path, "we");
    VT_CHECK(file != NULL, "can't write %s: %s", path, strerror(errno));
    fprintf(file,
            "ranks,epochs,steps_per_epoch,global_batch_size,model_parameters,step_flops,parameters,gradients,"
            "optimizer,activations,data,workspace\n%lld,%lld,%lld,%lld,%lld,%.9g",
            (long long)options->config->ranks, (long long)options->epochs, (long long)options->steps_per_epoch,
            (long long)options->config->global_batch_size, (long long)options->parameters, options->step_flops);
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) fprintf(file, ",%.0f", options->bytes[i]);
    fprintf(file, "\n");
    VT_CHECK(vt_file_close(file, true), "can't write %s: %s", path, strerror(errno));
done:
    free(path);
    return status;
}

vt_status vt_epochs_open(const vt_record_options *options, vt_epochs **result)
{
    vt_status status = VT_OK;
    char *names = line_of_names(options->scores);
    vt_epochs *epochs = vt_allocate(1, sizeof *epochs, "epochs.csv");
    epochs->path = vt_text_format("%s/epochs.csv", options->run_directory);
    VT_TRY(write_plan(options));
    VT_TRY(vt_rows_open(epochs->path, names, options->epoch_begin, &epochs->file));
done:
    free(names);
    if (status != VT_OK) vt_epochs_close(&epochs);
    *result = epochs;
    return status;
}

void vt_epochs_close(vt_epochs **epochs)
{
    if (*epochs == NULL) return;
    if ((*epochs)->file != NULL) fclose((*epochs)->file);
    free((*epochs)->path);
    free(*epochs);
    *epochs = NULL;
}

/* Nothing stands behind the comma where there is no number. */
static void append_number(vt_text *line, double value)
{
    if (isnan(value))
        vt_text_append(line, ",");
    else
        vt_text_append(line, ",%.9g", value);
}

vt_status vt_epochs_add(vt_epochs *epochs, const vt_epochs_row *row, const vt_evaluation *validation)
{
    vt_status status = VT_OK;
    vt_text line = {0};
    const vt_step_times *times = &row->times;
    const double numbers[] = {row->train_loss,  validation->loss,     validation->baseline_loss,
                              row->seconds,     (double)row->samples, validation->seconds,
                              row->waited,      times->forward,       times->backward,
                              times->optimizer, times->communication, vt_memory_resident(),
                              vt_memory_peak()};
    vt_text_append(&line, "%lld,%lld", (long long)row->step, (long long)row->epoch);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) append_number(&line, numbers[i]);
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->model.values[i]);
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->baseline.values[i]);
    vt_text_append(&line, "\n");
    VT_CHECK(fputs(line.characters, epochs->file) >= 0 && fflush(epochs->file) == 0, "can't write %s: %s", epochs->path,
             strerror(errno));
done:
    vt_text_close(&line);
    return status;
}
