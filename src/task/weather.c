#include "task/weather.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/roles.h"
#include "config/stages.h"
#include "source/fields/dataset.h"
#include "source/fields/statistics.h"
#include "task/loss_weights.h"
#include "task/weather/calendar.h"
#include "task/weather/channels.h"
#include "task/weather/scores.h"

typedef struct {
    vt_task task;
    const vt_source *training;        /* or NULL */
    const char *const *channel_names; /* of the validation set, or NULL */
    float *means, *stds; /* [task.field_count]; with the next two in one block of memory, which `means` owns */
    float *change_stds;  /* of the channels' changes over dt; read only if they are needed */
    float *changes;      /* the same in units of the channel's own std */
    double *weights;     /* [height], of rows: mean 1 */
    double weight_sum;   /* of all points; each weight is rounded to float32, the sum is not */
    const vt_model *model;
    const vt_transform *transforms; /* of the data's channels, or NULL */
    /* Of loss crps: the sides of its blocks, and the change_stds of their means. */
    int64_t sides[VT_MOST_SCALES];
    int side_count;
    double *block_stds[VT_MOST_SCALES]; /* [task.field_count] */
    bool unread;                        /* they are not from files: a checkpoint will say them */
    vt_span rows;                       /* this rank's */
    float *row_weights;                 /* of these rows, on the back end */
    double *channel_squares;            /* [batch, n_out_channels, 2], on the back end */
    double *host_squares;               /* the same on the host */
} weather;

/* ---- what the data say ---- */

/* The name of a channel, or NULL. */
static const char *channel_name(const weather *w, int64_t channel)
{
    const char *name = w->channel_names != NULL ? w->channel_names[channel] : NULL;
    return name != NULL && name[0] != '\0' ? name : NULL;
}

static void name_scores(weather *w)
{
    vt_score_names *scores = &w->task.scores;
    const char *first = channel_name(w, 0);
    /* the tag of the tutorials' dashboards for their data set, whose files have no names */
    const bool is_wind = first == NULL || strcmp(first, "u10") == 0 || strcmp(first, "u10m") == 0;
    *scores =
        (vt_score_names){.title = "RMSE by channel",
                         .column = "rmse",
                         .baseline = "persistence",
                         .baseline_is = w->task.config->normalise == VT_NORMALISE_CLIMATOLOGY ? "no departure changes"
                                                                                              : "nothing changes",
                         .count = w->task.config->n_out_channels};
    scores->curve = vt_text_format("RMSE(%s)/valid", is_wind ? "u10m" : first);
    scores->names = vt_allocate((size_t)scores->count, sizeof *scores->names, "the scores' names");
    for (int64_t c = 0; c < scores->count; c++) {
        const char *name = channel_name(w, c);
        scores->names[c] = name != NULL ? vt_text_copy(name) : vt_text_format("%ld", c);
    }
}

static void weigh_rows(weather *w, const double *latitudes)
{
    const int64_t height = w->task.config->img_size[0], width = w->task.config->img_size[1];
    w->weights = vt_row_weights(latitudes, height);
    for (int64_t row = 0; row < height; row++) w->weight_sum += (double)(float)w->weights[row] * (double)width;
}

static void weather_close(vt_task *task)
{
    weather *w = (weather *)task;
    if (task->backend != NULL) task->backend->release(task->backend, w->row_weights);
    if (task->backend != NULL) task->backend->release(task->backend, w->channel_squares);
    for (int i = 0; i < VT_MOST_SCALES; i++) free(w->block_stds[i]);
    free(w->means);
    free(w->weights);
    free(w->host_squares);
    vt_fields_about_close(&task->about);
}

/* ---- normalisation ---- */

static bool needs_changes(const vt_config *config)
{
    return vt_channel_weights_are_automatic(config) || config->predict == VT_PREDICT_TENDENCY ||
           config->input_noise > 0 || vt_config_members(config) > 1;
}

static void scale_changes(weather *w)
{
    for (int64_t c = 0; c < w->task.field_count; c++)
        w->changes[c] = (float)((double)w->change_stds[c] / (double)w->stds[c]);
}

static vt_status take_changes(weather *w, const char *option, const char *path)
{
    vt_status status = VT_OK;
    for (int64_t c = 0; c < w->task.field_count; c++)
        VT_CHECK(w->change_stds[c] > 0 && isfinite(w->change_stds[c]),
                 "%s: %s holds %g for channel %ld, but a standard deviation is above 0", option, path,
                 (double)w->change_stds[c], c);
    scale_changes(w);
done:
    return status;
}

static vt_status read_of_seasonal(weather *w, const vt_seasonal *seasonal, const vt_fields_rules *rules,
                                  const vt_fields_side *data, vt_text *remarks)
{
    vt_status status = VT_OK;
    const vt_config *config = w->task.config;
    const char *path = config->climatology_path, *text = seasonal->about;
    vt_fields_about *about = NULL;
    if (text != NULL) {
        VT_TRY(vt_fields_about_parse(text, path, &about));
        VT_TRY(vt_fields_compare(rules, data, &(vt_fields_side){about, path}, remarks));
    }
    VT_TRY(vt_seasonal_stds(seasonal, w->stds));
    w->task.about->normalisation.checksums[VT_FILE_OF_CLIMATOLOGY] = seasonal->checksum;
    if (!needs_changes(config)) goto done;
    const float *stds = seasonal->change_stds;
    VT_CHECK(stds != NULL,
             "climatology_path: %s doesn't say how much departures change over dt; make it again with `vitrain stats`",
             path);
    memcpy(w->change_stds, stds, (size_t)w->task.field_count * sizeof *stds);
    VT_TRY(take_changes(w, "climatology_path", path));
done:
    vt_fields_about_close(&about);
    return status;
}

static vt_status read_of_files(weather *w, const vt_fields_rules *rules, const vt_fields_side *data, vt_text *remarks)
{
    vt_status status = VT_OK;
    const vt_config *config = w->task.config;
    const char *const paths[] = {config->global_means_path, config->global_stds_path, config->time_diff_stds_path};
    float *const values[] = {w->means, w->stds, w->change_stds};
    const int files = needs_changes(config) ? 3 : 2;
    int64_t *checksums = w->task.about->normalisation.checksums;
    for (int i = 0; i < files; i++) {
        vt_text said = {0}; /* the files of one directory mostly say the same */
        status = vt_statistics_read(paths[i], (vt_normalising_file)i, rules, data, values[i], &checksums[i],
                                    i == 0 ? remarks : &said);
        vt_text_close(&said);
        if (status != VT_OK) goto done;
    }
    if (files > 2) VT_TRY(take_changes(w, "time_diff_stds_path", config->time_diff_stds_path));
done:
    return status;
}

/* How much the blocks of loss crps change. Where no training data say it, as much as points. */
static vt_status measure_blocks(weather *w)
{
    vt_status status = VT_OK;
    const vt_config *config = w->task.config;
    if (vt_config_members(config) == 1) return VT_OK;
    VT_TRY(vt_config_scales(config, w->sides, &w->side_count));
    for (int i = 0; i < w->side_count; i++) {
        free(w->block_stds[i]);
        w->block_stds[i] = vt_allocate((size_t)w->task.field_count, sizeof(double), "the task");
        for (int64_t c = 0; c < w->task.field_count; c++) w->block_stds[i][c] = (double)w->change_stds[c];
    }
    const bool reads = w->task.about != NULL && w->training != NULL && (w->side_count > 1 || w->sides[0] > 1);
    if (reads) VT_TRY(vt_block_change_stds(config, w->training, w->side_count, w->sides, w->block_stds));
done:
    return status;
}

/* What the description of the data says of their normalisation: what is in use. */
static void describe_normalisation(weather *w)
{
    vt_fields_normalisation *numbers = &w->task.about->normalisation;
    const int64_t count = w->task.field_count;
    double **const lists[] = {&numbers->means, &numbers->stds, &numbers->change_stds};
    for (int i = 0; i < 3; i++) {
        free(*lists[i]);
        *lists[i] =
            i < 2 || needs_changes(w->task.config) ? vt_allocate((size_t)count, sizeof(double), "the task") : NULL;
    }
    for (int64_t c = 0; c < count; c++) {
        numbers->means[c] = (double)w->means[c];
        numbers->stds[c] = (double)w->stds[c];
        if (numbers->change_stds != NULL) numbers->change_stds[c] = (double)w->change_stds[c];
    }
    for (int i = 0; i < w->side_count; i++) {
        numbers->block_sides[i] = w->sides[i];
        free(numbers->block_change_stds[i]);
        numbers->block_change_stds[i] = vt_copy(w->block_stds[i], (size_t)count, sizeof(double), "the task");
    }
    numbers->of_departures = w->task.config->normalise == VT_NORMALISE_CLIMATOLOGY;
}

/* Validation times should not be in the statistics. */
static void remark_shared(const vt_config *config, const vt_source *validation, vt_text *remarks)
{
    vt_time_span shared;
    vt_fields_about *about = NULL;
    const vt_dataset *others = vt_dataset_of(validation);
    if (others != NULL && vt_statistics_about(config->global_means_path, VT_FILE_OF_MEANS, &about) == VT_OK &&
        about != NULL && vt_fields_share_times(others->about, about, &shared))
        vt_text_append(remarks, "%s%s is also of times that %s has: scores there look better than forecasts are",
                       remarks->length > 0 ? "\n" : "", config->global_means_path, others->source.path);
    vt_error_clear();
    vt_fields_about_close(&about);
}

static vt_status read_normalisation(weather *w, const vt_seasonal *seasonal, const vt_source *validation)
{
    vt_status status = VT_OK;
    const vt_config *config = w->task.config;
    const vt_fields_rules rules = {.use = VT_STATISTICS_AND_DATA,
                                   .accepted = config->accept,
                                   .changes_matter = needs_changes(config),
                                   .trains = validation != NULL};
    const vt_fields_side data = {w->task.about, w->task.data_name};
    vt_text remarks = {0};
    VT_TRY(seasonal != NULL ? read_of_seasonal(w, seasonal, &rules, &data, &remarks)
                            : read_of_files(w, &rules, &data, &remarks));
    VT_TRY(measure_blocks(w));
    describe_normalisation(w);
    if (seasonal == NULL) remark_shared(config, validation, &remarks);
    if (!w->unread) vt_log_lines(remarks.characters);
done:
    vt_text_close(&remarks);
    return status;
}

/* The changes, times `factor`, for `count` channels of a tensor; channel c is channel c % period of the data. What the
 * input doesn't hold is not predicted as a change: 1. */
static vt_status place_scale(const weather *w, int64_t count, int64_t period, double factor, float **placed)
{
    const int64_t in = vt_config_channels_a_time(w->task.config);
    float *host = vt_allocate((size_t)count, sizeof *host, "the task");
    for (int64_t c = 0; c < count; c++)
        host[c] = c % period < in ? (float)(factor * (double)w->changes[c % period]) : 1;
    return vt_floats_place(w->task.backend, host, count, placed);
}

/* What is known of a date is normalised already; then come the files' forcings. */
static vt_status place_forcings(weather *w)
{
    const vt_config *config = w->task.config;
    const int64_t count = vt_config_forcing_channels(config),
                  first = w->task.field_count - count; /* of the last ones */
    const int64_t known = count - vt_config_role_count(config, VT_ROLE_FORCING);
    float *numbers = vt_allocate((size_t)(2 * count), sizeof *numbers, "the task"), *stds = numbers + count;
    for (int64_t c = 0; c < count; c++) {
        numbers[c] = c < known ? 0 : w->means[first + c];
        stds[c] = c < known ? 1 : w->stds[first + c];
    }
    const vt_status status = vt_normalisation_place(w->task.backend, numbers, stds, count, count,
                                                    &w->task.normalisation[VT_TENSOR_FORCINGS]);
    free(numbers);
    return status;
}

static vt_status place_crps_units(weather *w)
{
    const int64_t out = w->task.config->n_out_channels;
    float *host = vt_allocate((size_t)(w->side_count * out), sizeof *host, "the task");
    for (int64_t i = 0; i < w->side_count * out; i++)
        host[i] = (float)((double)w->stds[i % out] /
                          (w->sides[i / out] > 1 ? w->block_stds[i / out][i % out] : (double)w->change_stds[i % out]));
    return vt_floats_place(w->task.backend, host, w->side_count * out, &w->task.crps_units);
}

/* The least (0) or the largest (1) state of each forecast channel, as the model has it: transformed and normalised. */
static vt_status place_bounds(weather *w, int which)
{
    static const double none[2] = {-INFINITY, INFINITY};
    const int64_t count = w->task.config->n_out_channels;
    float *host = vt_allocate((size_t)count, sizeof *host, "the task");
    for (int64_t c = 0; c < count; c++) {
        const vt_transform *own = w->transforms != NULL ? &w->transforms[c] : NULL;
        const double bound = own != NULL ? vt_transform_value(own, own->bounds[which]) : none[which];
        host[c] = (float)((bound - (double)w->means[c]) / (double)w->stds[c]);
    }
    return vt_floats_place(w->task.backend, host, count, &w->task.bounds[which]);
}

/* What normalises the tensors; where there is memory already, it is filled again, which can't fail. */
static vt_status place_numbers(weather *w)
{
    vt_status status = VT_OK;
    vt_task *task = &w->task;
    const vt_config *config = task->config;
    const int64_t in = config->n_in_channels, out = config->n_out_channels, period = vt_config_channels_a_time(config);
    VT_TRY(
        vt_normalisation_place(w->task.backend, w->means, w->stds, period, in, &task->normalisation[VT_TENSOR_INPUT]));
    VT_TRY(
        vt_normalisation_place(w->task.backend, w->means, w->stds, out, out, &task->normalisation[VT_TENSOR_TARGET]));
    if (vt_config_forcing_channels(config) > 0) VT_TRY(place_forcings(w));
    if (config->predict == VT_PREDICT_TENDENCY) VT_TRY(place_scale(w, out, out, 1, &task->tendency));
    if (config->input_noise > 0) VT_TRY(place_scale(w, in, period, config->input_noise, &task->noise));
    for (int i = 0; i < 2 && config->bounds != NULL; i++) VT_TRY(place_bounds(w, i));
    if (w->side_count > 0) VT_TRY(place_crps_units(w));
done:
    return status;
}

/* Replaces `values` by the numbers that were kept, if there are any. *differs: the smaller of its value before and the
 * first channel in which they differed. */
static void take_numbers(const double *kept, int64_t count, float *values, int64_t *differs)
{
    for (int64_t c = 0; kept != NULL && c < count; c++) {
        if (c < *differs && values[c] != (float)kept[c]) *differs = c;
        values[c] = (float)kept[c];
    }
}

static void weather_take_normalisation(vt_task *task, const vt_fields_about *kept, const char *checkpoint)
{
    weather *w = (weather *)task;
    const vt_fields_normalisation *numbers = &kept->normalisation;
    const int64_t count = task->field_count;
    int64_t differs = count;
    if (numbers->stds == NULL || kept->channels < count) return;
    take_numbers(numbers->means, count, w->means, &differs);
    take_numbers(numbers->stds, count, w->stds, &differs);
    take_numbers(numbers->change_stds, count, w->change_stds, &differs);
    if (needs_changes(task->config)) scale_changes(w);
    for (int i = 0; i < w->side_count; i++)
        for (int k = 0; numbers->block_sides[k] > 0; k++)
            if (numbers->block_sides[k] == w->sides[i])
                memcpy(w->block_stds[i], numbers->block_change_stds[k], (size_t)count * sizeof(double));
    memcpy(task->about->normalisation.checksums, numbers->checksums, sizeof numbers->checksums);
    describe_normalisation(w);
    if (w->task.backend != NULL) VT_ASSERT(place_numbers(w) == VT_OK);
    if (w->unread || differs == count) return;
    vt_log_warning(
        "the means and standard deviations of %s are used; those of %s differ from them, first in channel %ld",
        checkpoint,
        task->config->normalise == VT_NORMALISE_CLIMATOLOGY ? task->config->climatology_path
                                                            : task->config->global_means_path,
        differs);
}

void vt_weather_stds(const vt_task *task, float *stds)
{
    const weather *w = (const weather *)task;
    for (int64_t c = 0; c < task->field_count; c++)
        stds[c] = w->transforms != NULL && w->transforms[c].function != VT_TRANSFORM_NONE ? NAN : w->stds[c];
}

void vt_weather_restore(const vt_task *task, float *fields)
{
    const int64_t *size = task->config->img_size;
    vt_transforms_invert(((const weather *)task)->transforms, task->config->n_out_channels, size[0] * size[1], fields);
}

void vt_weather_noise(const vt_task *task, float *stds)
{
    const weather *w = (const weather *)task;
    for (int64_t c = 0; c < task->field_count; c++)
        stds[c] = (float)(task->config->input_noise * (double)w->changes[c] * (double)w->stds[c]);
}

vt_status vt_weather_open(const vt_config *config, const vt_weather_data *data, vt_task **result)
{
    vt_status status = VT_OK;
    weather *w = vt_allocate(1, sizeof *w, "the task");
    vt_task *task = &w->task;
    w->training = data->training;
    task->kind = &vt_task_weather;
    task->config = config;
    task->field_count = vt_config_frame_channels(config);
    if (vt_dataset_of(data->validation) != NULL)
        w->channel_names = vt_dataset_channel_names(vt_dataset_of(data->validation));
    w->transforms = data->transforms;
    name_scores(w);
    w->means = vt_allocate(4 * (size_t)task->field_count, sizeof *w->means, "the task");
    w->stds = w->means + task->field_count;
    w->change_stds = w->stds + task->field_count;
    w->changes = w->change_stds + task->field_count;
    for (int64_t c = 0; c < task->field_count; c++) w->stds[c] = w->changes[c] = w->change_stds[c] = 1;
    weigh_rows(w, data->latitudes);
    VT_TRY(vt_channel_weights(config, w->changes, NULL));
    VT_TRY(measure_blocks(w));
    if (data->about != NULL) {
        task->about = vt_fields_about_copy(data->about);
        task->data_name = data->name;
        w->unread = data->may_be_unread; /* then what is said of the files doesn't matter */
        status = read_normalisation(w, data->seasonal, data->validation);
        if (status != VT_OK && !w->unread) goto done;
        w->unread = status != VT_OK;
        if (w->unread) vt_error_clear();
        status = VT_OK;
    }
    *result = task;
done:
    if (status != VT_OK) vt_task_close(&task);
    return status;
}

static vt_status weather_open(const vt_config *config, const vt_source *training, const vt_source *validation,
                              vt_task **result)
{
    const vt_dataset *fields = vt_dataset_of(training), *others = vt_dataset_of(validation);
    vt_weather_data data = {
        .training = training, .validation = validation, .latitudes = others != NULL ? others->latitudes : NULL};
    if (fields != NULL) {
        data.transforms = fields->transforms;
        data.seasonal = fields->seasonal;
        data.name = training->path;
        if (config->data_loader_config != VT_LOADER_SYNTHETIC) data.about = fields->about;
    }
    return vt_weather_open(config, &data, result);
}

/* ---- the log ---- */

/* "4 channels (u10 v10 t2m sp) on 8×8 points of 16×32, from row 0 and column 0 on": what is used of the files. Of many
 * channels the first ones are named, and none where the files have no names. */
static void add_used(const vt_task *task, const vt_fields_about *files, vt_text *line)
{
    enum { SHOWN = 12 };
    const vt_config *config = task->config;
    const int64_t channels = config->roles != NULL ? task->field_count : vt_config_channels_a_time(config);
    const int64_t *size = config->img_size;
    char *const *names = task->about->names;
    vt_text_append(line, "%ld channel%s", channels, channels == 1 ? "" : "s");
    for (int64_t c = 0; names != NULL && c < task->field_count && c < SHOWN; c++)
        vt_text_append(line, "%s%s", c > 0 ? " " : " (", names[c][0] != '\0' ? names[c] : "-");
    vt_text_append(line, "%s on %ld×%ld points",
                   names == NULL               ? ""
                   : task->field_count > SHOWN ? " ...)"
                                               : ")",
                   size[0], size[1]);
    if (size[0] < files->rows || size[1] < files->columns)
        vt_text_append(line, " of %ld×%ld, from row %ld and column %ld on", files->rows, files->columns,
                       files->window.first_row, files->window.first_column);
}

static void log_fields(const vt_task *task, const vt_source *training)
{
    const vt_config *config = task->config;
    const vt_dataset *dataset = vt_dataset_of(training);
    const int64_t times = config->n_history + 1, in = vt_config_channels_a_time(config), out = config->n_out_channels;
    const bool is_noise = config->data_loader_config == VT_LOADER_SYNTHETIC;
    vt_text line = {0};
    if (is_noise || dataset == NULL) {
        vt_log_info("data: %s%s, %ld channels on %ld×%ld points", is_noise ? "" : "source ",
                    is_noise ? "noise" : training->kind->name, in, config->img_size[0], config->img_size[1]);
        return;
    }
    add_used(task, dataset->about, &line);
    if (in != out || config->roles != NULL)
        vt_text_append(&line, "; %ld channel%s forecast", out, out == 1 ? " is" : "s are");
    if (times > 1) vt_text_append(&line, "; the input holds %ld times", times);
    vt_log_info("data: %s and %s: %s", config->train_data_path, config->valid_data_path, line.characters);
    if (times > 1 && in < out && config->roles == NULL)
        vt_log_warning("n_in_channels %ld counts the channels of %ld times (n_history + 1), so the model sees %ld of "
                       "the %ld channels that it forecasts; --n_in_channels=%ld for all of them",
                       config->n_in_channels, times, in, out, out * times);
    vt_text_close(&line);
}

static void log_limit(const vt_source *source, const char *option)
{
    const vt_dataset *fields = vt_dataset_of(source);
    const int64_t used = source->sample_count, all = source->whole_count;
    char from[VT_DATE_SIZE], to[VT_DATE_SIZE], dates[2 * VT_DATE_SIZE + 8] = "";
    vt_date first, last;
    if (used >= all) return;
    if (fields != NULL && vt_dataset_date(fields, 0, 0, &first) && vt_dataset_date(fields, used - 1, 0, &last))
        snprintf(dates, sizeof dates, ": %s to %s", vt_date_format(first, from), vt_date_format(last, to));
    vt_log_info("%s: the first %ld of %ld samples in time order%s", option, used, all, dates);
}

/* The YAML file's channel counts are not used if `variables` names the channels. */
static void weather_log_data(const vt_task *task, const vt_source *training, const vt_source *validation)
{
    const vt_config *config = task->config;
    const int64_t *replaced = config->replaced_channels;
    log_fields(task, training);
    if (replaced[0] != 0 || replaced[1] != 0)
        vt_log_info("variables: its channels make n_in_channels %ld and n_out_channels %ld; the configuration's %ld "
                    "and %ld are not used",
                    config->n_in_channels, config->n_out_channels, replaced[0], replaced[1]);
    vt_loss_weights_log(config);
    log_limit(training, "limit_nsamples");
    log_limit(validation, "limit_nsamples_val");
}

/* ---- on the back end ---- */

static vt_status weather_place(vt_task *task, vt_backend *backend, const vt_model *model, vt_span rows, int64_t batch)
{
    vt_status status = VT_OK;
    weather *w = (weather *)task;
    const int64_t out = task->config->n_out_channels;
    const size_t squares = 2 * (size_t)(batch * out);
    w->model = model;
    w->rows = rows;
    VT_CHECK(model->kind->prediction_grid != NULL, "task weather scores fields, but model %s predicts none",
             model->kind->name);
    VT_TRY(place_numbers(w));
    float *host = vt_allocate((size_t)rows.count, sizeof *host, "the task");
    for (int64_t row = 0; row < rows.count; row++) host[row] = (float)w->weights[rows.first + row];
    VT_TRY(vt_floats_place(backend, host, rows.count, &w->row_weights));
    VT_TAKE(backend, VT_MEMORY_DATA, squares, w->channel_squares);
    w->host_squares = vt_allocate(squares, sizeof(double), "the task");
done:
    return status;
}

/* Fields of weights, laid out as the target is; they are normalised already. */
static vt_matrix weather_weigh(const vt_task *task, const vt_pass *pass)
{
    const weather *w = (const weather *)task;
    const int64_t channels = task->config->n_out_channels, width = task->config->img_size[1];
    const int64_t points = w->rows.count * width;
    const size_t bytes = (size_t)(channels * (2 + points)) * sizeof(float);
    if (!vt_loss_weights_are_set(task->config)) return (vt_matrix){0};
    float *host = vt_allocate(1, bytes, "the loss's weights"), *placed = vt_arena_push(pass->arena, bytes);
    float *ones = host + channels, *fields = ones + channels; /* behind the means, which are 0 */
    VT_ASSERT(vt_channel_weights(task->config, w->changes, ones) == VT_OK);
    for (int64_t i = 0; i < channels * points; i++) {
        const double row = task->config->latitude_weights ? w->weights[w->rows.first + i % points / width] : 1;
        fields[i] = (float)((double)ones[i / points] * row);
    }
    for (int64_t c = 0; c < channels; c++) ones[c] = 1;
    pass->backend->copy_from_host(pass->backend, placed, host, bytes);
    free(host);
    const vt_model_tensor tensor = {
        .values = placed + 2 * channels, .channels = channels, .mean = placed, .inverse_std = placed + channels};
    return vt_model_lay_out(w->model, pass, &tensor);
}

/* ---- scores ---- */

/* The weighted mean over a channel's points that are not missing, from the sums of channel_squares; false: all are.
 * The weights are those of float32, whose sum is not quite the number of points. */
static bool mean_square(const weather *w, const double sums[2], double *mean)
{
    const int64_t *size = w->task.config->img_size;
    const double points = (double)(size[0] * size[1]), there = w->weight_sum - sums[1];
    *mean = sums[0] / (sums[1] == 0 ? points : there);
    return there > 1e-12 * points; /* rounding may leave more than 0 of no points */
}

static void weather_score(vt_task *task, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                          const float *losses, vt_scores_of *sums)
{
    weather *w = (weather *)task;
    vt_backend *backend = pass->backend;
    const int64_t channels = task->scores.count, count = 2 * pass->batch * channels;
    double mean = 0;
    const vt_patch_grid grid = w->model->kind->prediction_grid(w->model, pass->batch);
    backend->channel_squares(backend, &grid, prediction, target, w->row_weights, w->channel_squares);
    vt_group_all_reduce(pass->parallel->tokens, VT_SUM_FLOAT64, w->channel_squares, count, NULL);
    backend->copy_to_host(backend, w->host_squares, w->channel_squares, (size_t)count * sizeof(double));
    for (int64_t i = 0; i < pass->batch; i++) {
        bool any = false;
        for (int64_t c = 0; c < channels; c++) {
            if (!mean_square(w, w->host_squares + 2 * (i * channels + c), &mean)) continue;
            sums->values[1 + c] += sqrt(mean);
            sums->counts[1 + c] += 1;
            any = true;
        }
        if (!any) continue;
        sums->values[0] += (double)losses[i];
        sums->counts[0] += 1;
    }
}

/* Does the input hold all channels that are forecast? */
static bool weather_has_baseline(const vt_config *config)
{
    return vt_config_channels_a_time(config) >= config->n_out_channels;
}

/* The newest time of the input comes first. */
static vt_matrix weather_baseline(const vt_task *task, const vt_pass *pass, const vt_model_tensor *tensors)
{
    const vt_model *model = ((const weather *)task)->model;
    const vt_normalisation *as = &task->normalisation[VT_TENSOR_TARGET];
    const vt_model_tensor *input = &tensors[VT_TENSOR_INPUT];
    const vt_model_tensor now = {.values = input->values,
                                 .channels = as->count,
                                 .mean = as->mean,
                                 .inverse_std = as->inverse_std,
                                 .sample_channels = vt_model_tensor_stride(input)};
    return vt_model_lay_out(model, pass, &now);
}

/* ---- pictures ---- */

/* The third channel (t2m in the tutorials' data set), or the last one if there are fewer. */
static vt_picture_part weather_pictured(const vt_config *config)
{
    enum { T2M = 2 };
    return (vt_picture_part){.field = config->n_out_channels > T2M ? T2M : config->n_out_channels - 1,
                             .height = config->img_size[0],
                             .width = config->img_size[1]};
}

/* The date, if it is known, is the target's. Departures are shown as they are, also those of a transformed channel. */
static void weather_describe_picture(const vt_task *task, const vt_batch *batch, float *prediction, float *target,
                                     vt_picture *picture)
{
    const weather *w = (const weather *)task;
    const vt_config *config = task->config;
    const int64_t channel = weather_pictured(config).field;
    const vt_dataset *dataset = batch->samples != NULL && batch->sample_count > 0 ? vt_dataset_of(batch->source) : NULL;
    const char *known = channel_name(w, channel);
    char text[VT_DATE_SIZE], date[VT_DATE_SIZE + 8] = "", buffer[32];
    const char *name = vt_scores_channel_name(w->channel_names, channel, buffer);
    char function[VT_TRANSFORM_SIZE];
    vt_date valid;
    *picture = (vt_picture){.tag = vt_text_format("Visualization, %s", known != NULL ? known : "t2m"),
                            .height = config->img_size[0],
                            .width = config->img_size[1]};
    const bool departs = config->normalise == VT_NORMALISE_CLIMATOLOGY;
    vt_transform own = w->transforms != NULL ? w->transforms[channel] : (vt_transform){0};
    const bool named = departs && own.function != VT_TRANSFORM_NONE;
    const char *units = named ? vt_transform_name(&own, function) : vt_variable_of(name).units;
    own.bounds[0] = -INFINITY, own.bounds[1] = INFINITY; /* the target has none */
    for (int i = 0; i < 2 && !departs; i++)
        vt_transforms_invert(&own, 1, picture->height * picture->width, i == 0 ? prediction : target);
    picture->is_signed = departs || vt_variable_is_signed(name, target, picture->height * picture->width);
    if (dataset != NULL) {
        picture->latitudes = vt_dataset_known_coordinate(dataset, false);
        picture->longitudes = vt_dataset_known_coordinate(dataset, true);
        picture->on_earth = vt_dataset_is_of_earth(dataset);
        if (vt_dataset_date(dataset, batch->samples[0], 1, &valid))
            snprintf(date, sizeof date, ", %s UTC", vt_date_format(valid, text));
    }
    picture->title = vt_text_format("%s%s (%s)%s", departs ? "departure of " : "", name,
                                    units[0] != '\0' ? units : "units of the data", date);
}

static const char *const identity[] = {"task",      "n_history", "dt",       "lat_range", "lon_range",
                                       "normalise", "predict",   "forcings", "roles",     NULL};

const vt_task_kind vt_task_weather = {.name = "weather",
                                      .identity = identity,
                                      .open = weather_open,
                                      .close = weather_close,
                                      .log_data = weather_log_data,
                                      .place = weather_place,
                                      .weigh = weather_weigh,
                                      .score = weather_score,
                                      .take_normalisation = weather_take_normalisation,
                                      .has_baseline = weather_has_baseline,
                                      .baseline = weather_baseline,
                                      .pictured = weather_pictured,
                                      .describe_picture = weather_describe_picture};
