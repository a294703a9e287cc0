#include "forecast/training_errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "storage/scratch.h"
#include "storage/store.h"
#include "storage/tensor_file.h"

/* ---- the training set ---- */

/* Are the grid, the channels and the step of data those of the dataset? */
static vt_status compare(const vt_config *config, const vt_dataset *dataset, const vt_fields_about *about,
                         const char *name)
{
    const vt_fields_rules rules = {.use = VT_SETS_OF_A_RUN, .accepted = config->accept};
    const vt_fields_side sides[] = {{vt_dataset_about(dataset), vt_dataset_source(dataset)->path}, {about, name}};
    vt_text remarks = {0};
    const vt_status status = vt_fields_compare(&rules, &sides[0], &sides[1], &remarks);
    vt_text_close(&remarks);
    return status;
}

/* Points of all channels. */
static int64_t size_of(const vt_evaluated *e)
{
    return e->options->config->n_out_channels * e->plane;
}

/* Of `errors`: for each lead time, and behind the last one for the climatology, of each point the sum of the squares
 * and how many there are. In the end its beginning becomes the float32 roots of their means. */
static size_t bytes_of(const vt_evaluated *e)
{
    return (size_t)((e->options->rollout + 1) * size_of(e)) * 2 * sizeof(double);
}

vt_status vt_training_errors_open(vt_evaluated *t, vt_status (*find_starts)(vt_evaluated *e, int64_t every))
{
    vt_status status = VT_OK;
    const vt_config *config = t->options->config;
    const vt_dataset *scored = t->dataset;
    const double golden = 0.6180339887498949;
    const int64_t most = t->options->error_times > 0 ? t->options->error_times : t->start_count;
    t->dataset = NULL;
    t->starts = NULL;
    t->start_count = 0;
    t->data = vt_fields_options(config, VT_SET_TRAINING);
    t->data.sample_limit = config->limit_nsamples;
    VT_TRY(vt_forecaster_open_data(config, t->options->checkpoint, &t->data, &t->dataset));
    VT_TRY(compare(config, scored, vt_dataset_about(t->dataset), t->data.directory));
    VT_TRY(find_starts(t, 1));
    /* one of each of `most` equal parts, at a place that differs from part to part, so that all times of day occur */
    const double part = fmax(1, (double)t->start_count / (double)most);
    for (int64_t i = 0; i < most && part > 1; i++)
        t->starts[i] = t->starts[(int64_t)(((double)i + fmod((double)i * golden, 1)) * part)];
    if (part > 1) t->start_count = most;
    VT_TRY(vt_scratch_open(t->options->place.directory, bytes_of(t), &t->errors));
done:
    return status;
}

void vt_training_errors_close(vt_evaluated *e)
{
    vt_scratch_close(&e->errors, bytes_of(e));
}

/* ---- the errors ---- */

vt_status vt_training_errors_add(vt_evaluated *t, int64_t index, int64_t i, int64_t lead, vt_score_fields *fields)
{
    const float *climatology = t->climatologies.seasonal != NULL ? fields->seasonal : t->climatologies.mean;
    const int64_t size = size_of(t);
    (void)index, (void)i;
    for (int k = 0; k < 2; k++) {
        const float *guess = k == 0 ? fields->forecast : climatology;
        double *sums = (double *)t->errors + (k == 0 ? lead : t->options->rollout) * size * 2;
#pragma omp parallel for schedule(static)
        for (int64_t point = 0; point < size; point++) {
            const double error = guess != NULL ? (double)guess[point] - (double)fields->target[point] : (double)NAN;
            if (isnan(error)) continue;
            sums[2 * point] += error * error;
            sums[2 * point + 1] += 1;
        }
    }
    return VT_OK;
}

const float *vt_training_errors_stds(const vt_evaluated *e, int64_t lead)
{
    return (const float *)e->errors + lead * size_of(e);
}

static vt_status write_file(const vt_evaluated *t)
{
    vt_status status = VT_OK;
    const vt_evaluation_options *options = t->options;
    vt_forecast_file *file = NULL;
    char *path = vt_text_format("%s/error_stds.nc", options->place.directory);
    const vt_result_options result = {.path = path,
                                      .command = options->command,
                                      .checkpoint = options->checkpoint,
                                      .members = &options->members,
                                      .config = options->config,
                                      .dataset = t->dataset,
                                      .about = vt_dataset_about(t->dataset),
                                      .starts = t->starts,
                                      .steps = options->rollout,
                                      .archive = true,
                                      .has_stds = true};
    VT_TRY(vt_result_open(&result, &file));
    for (int64_t lead = 0; lead < options->rollout; lead++)
        VT_TRY(vt_forecast_file_write(file, 0, VT_FORECAST_STD, lead, vt_training_errors_stds(t, lead)));
    VT_TRY(vt_forecast_file_finish(&file));
done:
    vt_forecast_file_close(&file);
    free(path);
    return status;
}

vt_status vt_training_errors_finish(vt_evaluated *t)
{
    const int64_t size = size_of(t), leads = t->options->rollout + 1;
    double *sums = t->errors;
    for (int64_t lead = 0; lead < leads; lead++) vt_world_sum(t->world, sums + lead * size * 2, size * 2);
    for (int64_t i = 0; i < leads * size; i++) {
        const float std = (float)sqrt(sums[2 * i] / sums[2 * i + 1]); /* NaN if there are none */
        memcpy((char *)t->errors + (size_t)i * sizeof std, &std, sizeof std);
    }
    return vt_world_agree(t->world, vt_world_rank(t->world) == 0 ? write_file(t) : VT_OK);
}

/* ---- the file ---- */

/* Does the file go with the checkpoint and the data? */
static vt_status check_file(const char *path, const char *checkpoint, const vt_dataset *dataset,
                            const vt_config *config)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    vt_fields_about *about = NULL;
    char *own = NULL, *made = NULL, *text = NULL;
    VT_TRY(vt_tensor_files_try(path));
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(vt_tensor_file_get_text(file, "checkpoint", &made));
    VT_TRY(vt_tensor_file_get_text(file, "about", &text));
    VT_TRY(vt_result_identity(checkpoint, (vt_weights)config->weights, &own));
    VT_CHECK(strcmp(own, made) == 0, "it is of the checkpoint '%s', but %s is '%s'", made, checkpoint, own);
    VT_TRY(vt_fields_about_parse(text, path, &about));
    VT_TRY(compare(config, dataset, about, path));
done:
    vt_tensor_file_close(&file);
    vt_fields_about_close(&about);
    free(own);
    free(made);
    free(text);
    return status;
}

static vt_status read_channel(const vt_store *store, const char *name, const int64_t size[2], int64_t lead, float *stds)
{
    vt_status status = VT_OK;
    vt_array *array = NULL;
    VT_TRY(vt_array_find(store, name, &array));
    VT_CHECK(store->kind->has_array(store, "prediction_timedelta") && array->rank == 3 && array->extent[1] == size[0] &&
                 array->extent[2] == size[1] && array->element_size == sizeof *stds,
             "'%s' is not [prediction_timedelta, %lld, %lld]", name, (long long)size[0], (long long)size[1]);
    VT_CHECK(lead < array->extent[0], "it has %lld lead times, but the forecast %lld", (long long)array->extent[0],
             (long long)lead + 1);
    VT_TRY(
        store->kind->read(array, (const int64_t[]){lead, 0, 0}, (const int64_t[]){1, size[0], size[1]}, false, stds));
done:
    vt_array_close(&array);
    return status;
}

vt_status vt_error_stds_read(const char *path, const char *checkpoint, const vt_dataset *dataset,
                             const vt_config *config, int64_t lead, float *stds)
{
    vt_status status = VT_OK;
    vt_store *store = NULL;
    const char *const *names = vt_dataset_channel_names(dataset);
    VT_TRY(check_file(path, checkpoint, dataset, config));
    VT_TRY(vt_store_open(path, &store));
    for (int64_t c = 0; c < config->n_out_channels && status == VT_OK; c++) {
        char *name = vt_forecast_file_variable(names != NULL ? names[c] : NULL, c, "_error_std");
        status =
            read_channel(store, name, config->img_size, lead, stds + c * config->img_size[0] * config->img_size[1]);
        free(name);
    }
done:
    vt_store_close(&store);
    if (status != VT_OK)
        vt_error_context("--error_stds=%s (`vitrain evaluate %s --rollout=N --error_times=N` makes such a file)", path,
                         checkpoint);
    return status;
}
