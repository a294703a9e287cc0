#include "forecast/evaluation_report.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/statistics.h"
#include "storage/npy.h"
#include "storage/output_file.h"

/* Whether the file is there. That it isn't is an error only if a flag names it. */
static vt_status find_file(const vt_evaluated *e, int option, const char *name, const char *path, const char *loss,
                           bool *there)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    *there = vt_output_exists(path);
    if (*there) return VT_OK;
    VT_CHECK(config->origin[option] != VT_FROM_COMMAND_LINE, "--%s=%s is not there; `vitrain stats` makes such a file",
             name, path);
    if (e->forecaster.inference.world->rank == 0)
        vt_print("%s '%s' is not there, so %s can't be scored; `vitrain stats %s` makes it\n", name, path, loss,
                 config->data_dir != NULL ? config->data_dir : "DIR");
done:
    return status;
}

/* ---- the mean fields ---- */

/* The window of time_means_path, [1, C, H, W]. */
static vt_status read_mean(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    const vt_dataset *dataset = e->forecaster.from.dataset;
    const int64_t channels = config->n_out_channels, height = config->img_size[0], width = config->img_size[1];
    vt_fields_about *about = NULL;
    int64_t *order = NULL, needed = channels;
    vt_npy array = {0};
    const int64_t *extent = array.shape.shape;
    char shape[128];
    status = vt_npy_open(config->time_means_path, &array);
    if (status != VT_OK) vt_error_context("time_means_path (`vitrain stats` makes such a file)");
    if (status != VT_OK) goto done;
    vt_tensor_shape_text(&array.shape, shape);
    VT_TRY(vt_statistics_about(config->time_means_path, VT_FILE_OF_TIME_MEANS, &about));
    VT_TRY(vt_forecaster_compare(VT_STATISTICS_AND_DATA, config, dataset, about, config->time_means_path));
    if (about != NULL) order = vt_fields_order(dataset->about, about);
    if (order != NULL) needed = about->channels;
    VT_CHECK(array.shape.dimensions == 4 && extent[0] == 1 && extent[1] >= needed && extent[2] >= height &&
                 extent[3] >= width,
             "time_means_path '%s' is %s, expected [1, C, H, W] with at least %ld channels of [%ld, %ld]",
             config->time_means_path, shape, needed, height, width);
    /* means of the window alone, or of the whole grid */
    const vt_frame_window whole = {.rows = height, .width = width};
    const bool is_cut = extent[2] == height && extent[3] == width;
    const vt_fields_about *data = dataset->about;
    const vt_frame_window *window = is_cut ? &whole : &data->window;
    VT_CHECK(is_cut || (extent[2] == data->rows && extent[3] == data->columns) ||
                 (isnan(config->lat_range[0]) && isnan(config->lon_range[0])),
             "time_means_path '%s' is %s, neither of the window [%ld, %ld] nor of the grid of the files; make it again "
             "with `vitrain stats`",
             config->time_means_path, shape, height, width);
    float *values = vt_allocate((size_t)(channels * height * width), sizeof *values, "the evaluation");
    for (int64_t c = 0; c < channels; c++)
        for (int64_t y = 0; y < height; y++) {
            const int64_t channel = order != NULL ? order[c] : c;
            const double *row = array.values + (channel * extent[2] + window->first_row + y) * extent[3];
            for (int64_t x = 0; x < width; x++)
                values[(c * height + y) * width + x] = (float)row[vt_window_column(window, x)];
        }
    e->mean = values;
done:
    vt_npy_close(&array);
    vt_fields_about_close(&about);
    free(order);
    return status;
}

/* ---- the seasonal climatology ---- */

static const char no_seasonal[] = "skill, ACC against the season and the skill horizon";

/* Does it know the times of all targets? Else a remark says why not, an error where a flag names the file. */
static vt_status check_targets(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    char text[VT_DATE_SIZE], *reason = NULL;
    for (int64_t i = 0; i < e->forecaster.from.count && reason == NULL; i++) {
        vt_date date;
        const bool dated = vt_dataset_date(e->forecaster.from.dataset, e->forecaster.from.samples[i], 0, &date);
        if (!dated) reason = vt_text_copy("the dates of this set are not known");
        for (int64_t lead = 1; dated && lead <= e->options->rollout && reason == NULL; lead++) {
            vt_dataset_date(e->forecaster.from.dataset, e->forecaster.from.samples[i], lead, &date);
            if (!vt_seasonal_has(e->climatology, date))
                reason = vt_text_format("it has no climatology for the time of day of %s", vt_date_format(date, text));
        }
    }
    if (reason == NULL) return VT_OK;
    VT_CHECK(config->origin[VT_OPTION_climatology_path] != VT_FROM_COMMAND_LINE, "--climatology_path=%s: %s",
             config->climatology_path, reason);
    if (e->forecaster.inference.world->rank == 0)
        vt_print("climatology_path '%s': %s, so %s can't be scored\n", config->climatology_path, reason, no_seasonal);
    vt_seasonal_close(&e->climatology);
done:
    free(reason);
    return status;
}

vt_status vt_climatologies_read(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    bool there = false;
    vt_fields_about *about = NULL;
    VT_TRY(find_file(e, VT_OPTION_time_means_path, "time_means_path", config->time_means_path,
                     "the mean field and ACC against it", &there));
    if (there) VT_TRY(read_mean(e));
    VT_TRY(find_file(e, VT_OPTION_climatology_path, "climatology_path", config->climatology_path, no_seasonal, &there));
    if (!there) goto done;
    VT_TRY(vt_seasonal_open(config->climatology_path, e->forecaster.from.dataset->about, config->n_out_channels,
                            (vt_span){0, config->img_size[0]}, true, &e->climatology));
    const char *said = e->climatology->about;
    if (said != NULL) VT_TRY(vt_fields_about_parse(said, config->climatology_path, &about));
    VT_TRY(vt_forecaster_compare(VT_STATISTICS_AND_DATA, config, e->forecaster.from.dataset, about,
                                 config->climatology_path));
    VT_TRY(check_targets(e));
done:
    vt_fields_about_close(&about);
    return status;
}
