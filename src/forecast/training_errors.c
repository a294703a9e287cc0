#include "forecast/training_errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forecast/forecast_file.h"
#include "storage/store.h"
#include "storage/tensor_file.h"

/* ---- the errors ---- */

/* In the memory are first, of each number, the sum of its squared errors and how many there are. In the end its
 * beginning holds the roots of their means, as float32. */
void vt_training_errors_add(vt_training_errors *errors, int64_t lead, const float *forecast, const float *target)
{
    double *sums = (double *)errors->memory + lead * errors->size * 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < errors->size; i++) {
        const double error = (double)forecast[i] - (double)target[i];
        if (isnan(error)) continue;
        sums[2 * i] += error * error;
        sums[2 * i + 1] += 1;
    }
}

void vt_training_errors_finish(vt_training_errors *errors, vt_world *world)
{
    double *sums = errors->memory;
    for (int64_t lead = 0; lead <= errors->leads; lead++)
        vt_world_sum(world, sums + lead * errors->size * 2, errors->size * 2);
    for (int64_t i = 0; i < (errors->leads + 1) * errors->size; i++) {
        const float std = (float)sqrt(sums[2 * i] / sums[2 * i + 1]); /* NaN if there are none */
        memcpy((char *)errors->memory + (size_t)i * sizeof std, &std, sizeof std);
    }
}

const float *vt_training_errors_stds(const vt_training_errors *errors, int64_t lead)
{
    return errors->memory != NULL ? (const float *)errors->memory + lead * errors->size : NULL;
}

/* ---- the file ---- */

vt_status vt_error_stds_read(const char *path, const vt_forecaster *f, int64_t lead)
{
    vt_status status = VT_OK;
    const vt_trained *model = f->members->models;
    const vt_config *config = model->config;
    const int64_t height = config->img_size[0], width = config->img_size[1];
    const int64_t first[] = {lead, 0, 0}, count[] = {1, height, width};
    const char *const *names = vt_dataset_channel_names(f->from.dataset);
    char own[32], *made = NULL, *text = NULL, *name = NULL;
    vt_tensor_file *file = NULL;
    vt_fields_about *about = NULL;
    vt_store *store = NULL;
    vt_array *array = NULL;
    VT_TRY(vt_tensor_files_try(path));
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(vt_tensor_file_get_text(file, "checkpoint", &made));
    snprintf(own, sizeof own, "crc32c %08x", (unsigned)model->checksum);
    VT_CHECK(strstr(made, own) != NULL, "it is of the checkpoint '%s', but %s is '%s'", made, model->checkpoint, own);
    VT_TRY(vt_tensor_file_get_text(file, "about", &text));
    VT_TRY(vt_fields_about_parse(text, path, &about));
    VT_TRY(vt_forecaster_compare(VT_SETS_OF_A_RUN, config, f->from.dataset, about, path));
    VT_TRY(vt_store_open(path, &store));
    for (int64_t c = 0; c < config->n_out_channels; c++) {
        free(name);
        vt_array_close(&array);
        name = vt_forecast_file_variable(names != NULL ? names[c] : NULL, c, "_error_std");
        VT_TRY(vt_array_find(store, name, &array));
        const int64_t *extent = array->extent;
        VT_CHECK(array->rank == 3 && array->element_size == sizeof(float) && lead < extent[0] && extent[1] == height &&
                     extent[2] == width,
                 "'%s' has %lld lead times of [%lld, %lld], but the forecast %lld of [%lld, %lld]", name,
                 (long long)extent[0], (long long)extent[1], (long long)extent[2], (long long)lead + 1,
                 (long long)height, (long long)width);
        VT_TRY(store->kind->read(array, first, count, false, f->mean + c * height * width));
    }
done:
    vt_array_close(&array);
    vt_store_close(&store);
    vt_fields_about_close(&about);
    vt_tensor_file_close(&file);
    free(made);
    free(text);
    free(name);
    if (status != VT_OK)
        vt_error_context("--error_stds=%s (`vitrain evaluate %s --rollout=N --error_times=N` makes such a file)", path,
                         model->checkpoint);
    return status;
}
