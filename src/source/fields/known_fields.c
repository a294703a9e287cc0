#include "source/fields/known_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/fields/dataset.h"
#include "task/weather/forcings.h"

struct vt_known_fields {
    vt_known_options options;
    int64_t rows, width, step;
    double *latitudes, *longitudes; /* [rows], [width], or NULL */
    float *fixed;                   /* [fixed count, rows, width] */
};

/* ---- which ones ---- */

vt_known_options vt_known_options_of(const vt_config *config)
{
    vt_known_options options = {.forcings = vt_config_forcings(config),
                                .static_path = config->static_fields,
                                .form = vt_fields_options(config, VT_SET_TRAINING).form};
    options.form.variables = config->static_variables;
    options.form.time_step = NULL;
    options.form.fixed = true;
    if (config->static_fields != NULL && config->n_static_fields != VT_UNSET_INTEGER)
        options.static_count = config->n_static_fields;
    return options;
}

int64_t vt_known_count(const vt_known_options *options)
{
    return options->forcings.count + options->static_count;
}

static bool changes(const vt_known_options *options, int64_t field)
{
    return field < options->forcings.count && vt_forcing_changes(options->forcings.kinds[field]);
}

int64_t vt_known_fixed_count(const vt_known_options *options)
{
    int64_t count = 0;
    for (int64_t f = 0; f < vt_known_count(options); f++) count += !changes(options, f);
    return count;
}

bool vt_known_field_changes(const vt_known_options *options, int64_t field, int64_t *place)
{
    const bool own = changes(options, field);
    *place = 0;
    for (int64_t f = 0; f < field; f++) *place += changes(options, f) == own;
    return own;
}

/* ---- static fields ---- */

static vt_status open_static(const vt_known_options *options, vt_fields_file **file)
{
    vt_status status = VT_OK;
    const char *const paths[] = {options->static_path};
    status = vt_fields_file_open(paths, 1, &options->form, file);
    if (status != VT_OK) return vt_error_context("static_fields");
    VT_TRY(vt_fields_file_check_written(*file));
    const int64_t times = (*file)->about->times;
    VT_CHECK(times == 1, "static_fields: %s holds %ld times; fields that don't change have one", paths[0], times);
done:
    if (status != VT_OK) vt_fields_file_close(file);
    return status;
}

vt_status vt_known_fields_complete(vt_config *config)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    if (config->static_fields == NULL || config->n_static_fields != VT_UNSET_INTEGER) return VT_OK;
    const vt_known_options options = vt_known_options_of(config);
    VT_TRY(open_static(&options, &file));
    config->n_static_fields = file->about->channels;
done:
    vt_fields_file_close(&file);
    return status;
}

/* Of what a description says, the window alone. */
static vt_fields_about window_of(const vt_fields_about *about)
{
    return (vt_fields_about){.rows = about->window.rows,
                             .columns = about->window.width,
                             .window = about->window,
                             .latitudes = about->latitudes,
                             .longitudes = about->longitudes,
                             .turned = about->turned,
                             .unplaced = about->unplaced};
}

/* The part of the file that is the data's window: the file has the data's grid, or that of the window alone. */
static vt_status find_window(const vt_known_options *options, vt_fields_file *file, const vt_fields_side *data)
{
    vt_status status = VT_OK;
    vt_fields_about *own = file->about;
    const vt_fields_about *other = data->about;
    const vt_fields_rules rules = {.use = VT_SETS_OF_A_RUN, .accepted = options->form.accept};
    if (own->rows == other->rows && own->columns == other->columns) own->window = other->window;
    const vt_fields_about windows[2] = {window_of(own), window_of(other)};
    const vt_fields_side sides[2] = {{&windows[0], file->path}, {&windows[1], data->name}};
    if (vt_fields_agree(&rules, &sides[0], &sides[1]) != VT_OK) return vt_error_context("static_fields");
    VT_CHECK(own->channels >= options->static_count,
             "static_fields: %s holds %ld channels, but n_static_fields is %ld; use --n_static_fields=%ld, or less",
             options->static_path, own->channels, options->static_count, own->channels);
done:
    return status;
}

/* field [points], over its own mean and standard deviation; what is missing becomes the mean. */
static vt_status normalise(const vt_fields_file *file, int64_t channel, int64_t points, float *field)
{
    vt_status status = VT_OK;
    double sum = 0, squares = 0, there = 0;
    char *const *names = file->about->names;
    for (int64_t i = 0; i < points; i++) {
        sum += isnan(field[i]) ? 0 : (double)field[i];
        there += !isnan(field[i]);
    }
    const double mean = there > 0 ? sum / there : 0;
    for (int64_t i = 0; i < points; i++) squares += isnan(field[i]) ? 0 : pow((double)field[i] - mean, 2);
    const double deviation = there > 0 ? sqrt(squares / there) : 0;
    VT_CHECK(
        deviation > 1e-7 * fabs(mean),
        "static_fields: channel %ld%s%s%s of %s is the same at all points of the window, so it can't be normalised "
        "and tells a model nothing; leave it out",
        channel, names != NULL ? " (" : "", names != NULL ? names[channel] : "", names != NULL ? ")" : "", file->path);
    for (int64_t i = 0; i < points; i++)
        field[i] = isnan(field[i]) ? 0 : (float)(((double)field[i] - mean) / deviation);
done:
    return status;
}

/* places [static_count, rows, width]. Means and deviations are those of all the window's rows. */
static vt_status read_static(const vt_known_options *options, const vt_fields_side *data, vt_span rows, float *places)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    const int64_t width = data->about->window.width, points = data->about->window.rows * width,
                  part = rows.count * width;
    float *fields = vt_allocate((size_t)(options->static_count * points), sizeof *fields, "the static fields");
    VT_TRY(open_static(options, &file));
    VT_TRY(find_window(options, file, data));
    if (vt_fields_file_read(file, 0, options->static_count, &file->about->window, true, fields) != VT_OK) {
        status = vt_error_context("static_fields");
        goto done;
    }
    for (int64_t c = 0; c < options->static_count; c++) {
        VT_TRY(normalise(file, c, points, fields + c * points));
        memcpy(places + c * part, fields + c * points + rows.first * width, (size_t)part * sizeof *places);
    }
done:
    vt_fields_file_close(&file);
    free(fields);
    return status;
}

/* ---- all of them ---- */

static vt_status check_coordinates_known(const vt_known_options *options, const vt_fields_side *data)
{
    vt_status status = VT_OK;
    for (int i = 0; i < options->forcings.count; i++) {
        const vt_forcing forcing = options->forcings.kinds[i];
        const bool latitudes = vt_forcing_needs_latitudes(forcing), longitudes = vt_forcing_needs_longitudes(forcing);
        const bool lacks_latitudes = latitudes && data->about->latitudes == NULL;
        VT_CHECK(
            !lacks_latitudes && (!longitudes || data->about->longitudes != NULL),
            "forcings: %s needs %s, but %s says none; --coordinates=[%s=NAME] names them, where the files have them "
            "by another name",
            vt_forcing_name(forcing), lacks_latitudes ? "latitudes" : "longitudes", data->name,
            lacks_latitudes ? "lat" : "lon");
        VT_CHECK(
            !(latitudes || longitudes) || !data->about->rotated,
            "forcings: %s needs latitudes and longitudes of the earth, but those of %s are of a rotated pole; leave "
            "it out",
            vt_forcing_name(forcing), data->name);
    }
done:
    return status;
}

vt_status vt_known_fields_open(const vt_known_options *options, const vt_fields_side *data, vt_span rows,
                               vt_known_fields **result)
{
    vt_status status = VT_OK;
    const vt_fields_about *about = data->about;
    const int64_t width = about->window.width, points = rows.count * width;
    const int64_t step = about->step > 0 ? about->step : 60 * VT_HOURS_A_TIME;
    vt_known_fields *known = vt_allocate(1, sizeof *known, "the forcings");
    *result = NULL;
    *known = (vt_known_fields){.options = *options, .rows = rows.count, .width = width, .step = step * about->dt};
    VT_TRY(check_coordinates_known(options, data));
    known->latitudes = vt_fields_about_coordinates(about, false);
    known->longitudes = vt_fields_about_coordinates(about, true);
    if (known->latitudes != NULL) /* those of the rows */
        memmove(known->latitudes, known->latitudes + rows.first, (size_t)rows.count * sizeof *known->latitudes);
    float *place = known->fixed =
        vt_allocate((size_t)(vt_known_fixed_count(options) * points) + 1, sizeof *place, "the static fields");
    for (int i = 0; i < options->forcings.count; i++) {
        if (changes(options, i)) continue;
        vt_forcing_field(options->forcings.kinds[i], (vt_date){0}, 0, known->latitudes, rows.count, known->longitudes,
                         width, place);
        place += points;
    }
    if (options->static_count > 0) VT_TRY(read_static(options, data, rows, place));
    *result = known;
    known = NULL;
done:
    vt_known_fields_close(&known);
    return status;
}

void vt_known_fields_close(vt_known_fields **known)
{
    if (*known == NULL) return;
    free((*known)->latitudes);
    free((*known)->longitudes);
    free((*known)->fixed);
    free(*known);
    *known = NULL;
}

void vt_known_fields_take(const vt_known_fields *known, vt_date date, bool changing_only, float *fields)
{
    const vt_known_options *options = &known->options;
    const int64_t points = known->rows * known->width, count = vt_known_count(options);
    for (int64_t f = 0, place; f < count; f++) {
        const bool own = vt_known_field_changes(options, f, &place);
        if (!own && changing_only) continue;
        if (own)
            vt_forcing_field(options->forcings.kinds[f], date, known->step, known->latitudes, known->rows,
                             known->longitudes, known->width, fields);
        else
            memcpy(fields, known->fixed + place * points, (size_t)points * sizeof *fields);
        fields += points;
    }
}

const float *vt_known_fields_fixed(const vt_known_fields *known)
{
    return known->fixed;
}
