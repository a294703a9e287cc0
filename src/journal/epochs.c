#include "journal/epochs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* "rmse_u10" … "persistence_rmse_u10" … */
static char *line_of_names(const vt_score_names *scores)
{
    vt_text names = {0};
    vt_text_append(&names,
                   "step,epoch,train_loss,valid_loss,%s_loss,seconds,samples,valid_seconds,data_seconds,"
                   "forward_seconds,backward_seconds,optimizer_seconds,communication_seconds,resident_bytes,peak_bytes",
                   scores->baseline);
    for (int64_t i = 0; i < 2 * scores->count; i++) {
        const bool of_baseline = i >= scores->count;
        char *name = vt_text_format("%s%s%s_%s", of_baseline ? scores->baseline : "", of_baseline ? "_" : "",
                                    scores->column, scores->names[i % scores->count]);
        vt_text_append(&names, ",");
        vt_csv_append(&names, name);
        free(name);
    }
    vt_text_append(&names, "\n");
    return names.characters;
}

static vt_status write_plan(const vt_record_options *options)
{
    vt_rows *plan = NULL;
    vt_text row = {0};
    char *path = vt_text_format("%s/plan.csv", options->run_directory);
    vt_text_append(&row, "%lld,%lld,%lld,%lld,%lld,%.9g", (long long)options->config->ranks, (long long)options->epochs,
                   (long long)options->steps_per_epoch, (long long)options->config->global_batch_size,
                   (long long)options->parameters, options->step_flops);
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) vt_text_append(&row, ",%.0f", options->bytes[i]);
    vt_status status = vt_rows_open(path,
                                    "ranks,epochs,steps_per_epoch,global_batch_size,model_parameters,step_flops,"
                                    "parameters,gradients,optimizer,activations,data,workspace\n",
                                    VT_ROWS_STEPS, 0, &plan);
    if (status == VT_OK) status = vt_rows_add(plan, "%s\n", row.characters);
    vt_rows_close(&plan);
    vt_text_close(&row);
    free(path);
    return status;
}

vt_status vt_epochs_open(const vt_record_options *options, vt_rows **epochs)
{
    vt_status status = VT_OK;
    char *names = line_of_names(options->scores), *path = vt_text_format("%s/epochs.csv", options->run_directory);
    VT_TRY(write_plan(options));
    VT_TRY(vt_rows_open(path, names, VT_ROWS_EPOCHS, options->epochs_done, epochs));
done:
    free(names);
    free(path);
    return status;
}

/* A comma, and the number unless it is NaN. */
static void append_number(vt_text *line, double value)
{
    vt_text_append(line, isnan(value) ? "," : ",%.9g", value);
}

vt_status vt_epochs_add(vt_rows *epochs, const vt_record_epoch_figures *epoch, const vt_evaluation *validation)
{
    vt_text line = {0};
    const vt_step_times *times = &epoch->times;
    const double numbers[] = {epoch->mean_loss, validation->loss,       validation->baseline_loss,
                              epoch->seconds,   (double)epoch->samples, validation->seconds,
                              epoch->waited,    times->forward,         times->backward,
                              times->optimizer, times->communication,   vt_memory_resident(),
                              vt_memory_peak()};
    vt_text_append(&line, "%lld,%lld", (long long)epoch->step, (long long)epoch->epoch);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) append_number(&line, numbers[i]);
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->model.values[i]);
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->baseline.values[i]);
    vt_status status = vt_rows_add(epochs, "%s\n", line.characters);
    vt_text_close(&line);
    return status;
}
