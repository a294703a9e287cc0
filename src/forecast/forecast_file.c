#include "forecast/forecast_file.h"

#include <ctype.h>
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "storage/hdf5_access.h"
#include "storage/output_file.h"
#include "task/weather/channels.h"

enum { TIME, LEAD, LAT, LON, NUMBER, DIMENSIONS, SCALAR };
enum { VALUES, MEANS, STDS, KINDS }; /* of variables */

struct vt_forecast_file {
    char *path, *partial;
    hid_t file; /* everything that is open in it closes with it */
    hid_t scales[DIMENSIONS];
    hid_t *variables;           /* [KINDS, channels] */
    int64_t extent[DIMENSIONS]; /* of NUMBER 0: there is no ensemble; of LEAD 0: it is no archive */
    int dimensions;             /* made */
    int64_t channels;
};

/* The dimensions of a variable in their order, how much of each the fields of one time are, and how many there are. CF:
 * what is neither time nor space comes first. */
static int dimensions_of(const vt_forecast_file *file, int64_t kind, int order[DIMENSIONS], int64_t fields[DIMENSIONS])
{
    int count = 0;
    const bool archive = file->extent[LEAD] > 0;
    if (archive && kind != STDS) order[count++] = TIME;
    if (file->extent[NUMBER] > 0 && kind == VALUES) order[count++] = NUMBER;
    order[count++] = archive ? LEAD : TIME;
    order[count++] = LAT;
    order[count++] = LON;
    for (int i = 0; i < count; i++) fields[i] = order[i] == LAT || order[i] == LON ? file->extent[order[i]] : 1;
    return count;
}

/* ---- attributes ---- */

typedef struct {
    const char *name, *text; /* text NULL or "": the attribute is left out */
} text_attribute;

/* attributes: a list that ends with one without a name. The error is a cause. */
static vt_status set_texts(hid_t object, const text_attribute *attributes)
{
    vt_status status = VT_OK;
    for (; attributes->name != NULL && status == VT_OK; attributes++) {
        const char *text = attributes->text;
        if (text == NULL || text[0] == '\0') continue;
        hid_t type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, strlen(text));
        H5Tset_strpad(type, H5T_STR_NULLPAD); /* no room for a final 0 */
        status = vt_hdf5_write_attribute(object, attributes->name, type, type, -1, text);
        H5Tclose(type);
    }
    return status;
}

/* ---- coordinates ---- */

/* A coordinate, and its attributes in their order; NULL: it has none of that name. */
typedef struct {
    const char *name, *standard_name, *long_name, *units, *calendar, *axis, *positive, *dtype;
} coordinate;

/* Links and attributes in the order in which they are made, in which the netCDF library looks for them. */
static hid_t creation_properties(hid_t class)
{
    hid_t properties = H5Pcreate(class);
    if (class == H5P_FILE_CREATE) H5Pset_link_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    return properties;
}

/* A dimension with its coordinate; SCALAR: a single value. A dimension without values (NULL) is a scale that netCDF
 * recognises by its name. */
static vt_status write_coordinate(vt_forecast_file *file, int dimension, const coordinate *c, const double *values)
{
    vt_status status = VT_OK;
    char no_variable[80];
    const bool is_scalar = dimension == SCALAR;
    const int64_t extent = is_scalar ? 1 : file->extent[dimension];
    const text_attribute attributes[] = {{"standard_name", c->standard_name},
                                         {"long_name", c->long_name},
                                         {"units", c->units},
                                         {"calendar", c->calendar},
                                         {"axis", c->axis},
                                         {"positive", c->positive},
                                         {"dtype", c->dtype},
                                         {0}};
    snprintf(no_variable, sizeof no_variable, "This is a netCDF dimension but not a netCDF variable.%10ld", extent);
    const hid_t type = values == NULL        ? H5T_IEEE_F32BE
                       : dimension == NUMBER ? H5T_STD_I32LE
                       : dimension == LEAD   ? H5T_STD_I64LE
                                             : H5T_IEEE_F64LE;
    hid_t made;
    VT_TRY(vt_hdf5_make_dataset(file->file, c->name, type, creation_properties(H5P_DATASET_CREATE), is_scalar ? 0 : 1,
                                &extent, &made));
    if (values != NULL)
        VT_CHECK(H5Dwrite(made, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "%s", vt_hdf5_reason());
    if (!is_scalar) {
        const int number = file->dimensions++;
        file->scales[dimension] = made;
        VT_CHECK(H5DSset_scale(made, values != NULL ? c->name : no_variable) >= 0, "%s", vt_hdf5_reason());
        VT_TRY(vt_hdf5_write_attribute(made, "_Netcdf4Dimid", H5T_STD_I32LE, H5T_NATIVE_INT, -1, &number));
    }
    if (values != NULL) VT_TRY(set_texts(made, attributes));
done:
    if (status != VT_OK) vt_error_context("can't write '%s' of %s", c->name, file->path);
    return status;
}

/* The same with the values before + apart, before + 2 apart, … */
static vt_status write_steps(vt_forecast_file *file, int dimension, const coordinate *c, double before, double apart)
{
    double *values = vt_allocate((size_t)file->extent[dimension], sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < file->extent[dimension]; i++) values[i] = before + (double)(i + 1) * apart;
    const vt_status status = write_coordinate(file, dimension, c, values);
    free(values);
    return status;
}

/* Initial times, or those that forecasts are for, in the units and the calendar of the data (axis); but in days if
 * these have months, whose length varies, and in hours since the initial time if they have no dates (NULL). */
static vt_status write_times(vt_forecast_file *file, const vt_initial_times *from, const vt_time_axis *axis,
                             int dimension, bool initial)
{
    char date[VT_DATE_SIZE];
    const vt_date first = vt_forecast_date(from->dataset, from->samples[0], 0);
    const int64_t count = dimension == SCALAR ? 1 : file->extent[TIME];
    const bool as_data = axis != NULL && axis->meaning.months == 0;
    const vt_time_units days = {.minutes = 1440, .zero = axis != NULL ? axis->meaning.zero : first};
    const vt_time_units hours = {.minutes = 60, .zero = first};
    const vt_time_units units = as_data ? axis->meaning : axis != NULL ? days : hours;
    char *since =
        as_data ? vt_text_copy(axis->units)
                : vt_text_format("%s since %s:00", axis != NULL ? "days" : "hours", vt_date_format(units.zero, date));
    double *values = vt_allocate((size_t)count, sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < count; i++)
        values[i] = vt_time_units_value(
            &units, vt_forecast_date(from->dataset, from->samples[initial ? i : 0], initial ? 0 : 1 + i));
    const coordinate times = {.name = dimension == SCALAR ? "forecast_reference_time" : "time",
                              .standard_name = initial ? "forecast_reference_time" : "time",
                              .long_name = initial ? "initial time of the forecast" : "time that the forecast is for",
                              .units = since,
                              .calendar = axis != NULL && axis->calendar_name[0] != '\0'
                                              ? axis->calendar_name
                                              : vt_calendar_name(first.calendar),
                              .axis = dimension == SCALAR ? NULL : "T"};
    const vt_status status = write_coordinate(file, dimension, &times, values);
    free(values);
    free(since);
    return status;
}

/* Of an archive. xarray recognises lengths of time by their units, from version 2025.7 on by `dtype`. */
static vt_status write_leads(vt_forecast_file *file, int64_t step)
{
    const bool hours = step % 60 == 0 || step >= VT_A_MONTH;
    const coordinate leads = {"prediction_timedelta", "forecast_period", "time since the initial time",
                              hours ? "hours" : "minutes", .dtype = "timedelta64[ns]"};
    return write_steps(file, LEAD, &leads, 0, hours ? vt_length_hours(step) : (double)step);
}

/* Longitudes increase from the window's first column on, across 360, too. malloc'd; NULL: the files have none. */
static double *longitudes_of(const vt_dataset *dataset, int64_t width)
{
    double *longitudes =
        vt_copy(vt_dataset_known_coordinate(dataset, true), (size_t)width, sizeof *longitudes, "the forecast");
    if (longitudes == NULL || dataset->about->window.first_column == 0) return longitudes;
    for (int64_t x = 1; x < width; x++)
        while (longitudes[x] < longitudes[x - 1]) longitudes[x] += 360;
    while (longitudes[width - 1] > 360 && longitudes[0] >= 0)
        for (int64_t x = 0; x < width; x++) longitudes[x] -= 360;
    return longitudes;
}

static vt_status write_sides(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    enum { UNKNOWN, ROTATED, ARCHIVED, USUAL };
    static const coordinate sides[][2] = {
        [UNKNOWN] = {{.name = "y"}, {.name = "x"}},
        [ROTATED] = {{"rlat", "grid_latitude", "latitude in a grid of a rotated pole", "degrees", .axis = "Y"},
                     {"rlon", "grid_longitude", "longitude in a grid of a rotated pole", "degrees", .axis = "X"}},
        [ARCHIVED] = {{"latitude", "latitude", "latitude", "degrees_north", .axis = "Y"},
                      {"longitude", "longitude", "longitude", "degrees_east", .axis = "X"}},
        [USUAL] = {{"lat", "latitude", "latitude", "degrees_north", .axis = "Y"},
                   {"lon", "longitude", "longitude", "degrees_east", .axis = "X"}}};
    vt_status status = VT_OK;
    const vt_dataset *dataset = options->forecaster->from.dataset;
    const int known = options->about->rotated ? ROTATED : options->archive ? ARCHIVED : USUAL;
    const double *latitudes = vt_dataset_known_coordinate(dataset, false);
    double *longitudes = longitudes_of(dataset, file->extent[LON]);
    VT_TRY(write_coordinate(file, LAT, &sides[latitudes != NULL ? known : UNKNOWN][0], latitudes));
    VT_TRY(write_coordinate(file, LON, &sides[longitudes != NULL ? known : UNKNOWN][1], longitudes));
done:
    free(longitudes);
    return status;
}

/* The height or pressure of a channel as a scalar that its attribute `coordinates` names, malloc'd; channels of one
 * level share it. "": neither is known. */
static vt_status write_level(vt_forecast_file *file, const vt_variable *meaning, char **name)
{
    const bool is_height = meaning->height > 0;
    *name = is_height               ? vt_text_format("height_%gm", meaning->height)
            : meaning->pressure > 0 ? vt_text_format("pressure_%g", meaning->pressure)
                                    : vt_text_copy("");
    for (char *c = *name; *c != '\0'; c++)
        if (*c == '.') *c = '_';
    if ((*name)[0] == '\0' || H5Lexists(file->file, *name, H5P_DEFAULT) > 0) return VT_OK;
    const coordinate level = {.name = *name,
                              .standard_name = is_height ? "height" : "air_pressure",
                              .units = is_height ? "m" : "hPa",
                              .axis = "Z",
                              .positive = is_height ? "up" : "down"};
    return write_coordinate(file, SCALAR, &level, is_height ? &meaning->height : &meaning->pressure);
}

/* ---- variables ---- */

char *vt_forecast_file_variable(const char *channel, int64_t number, const char *suffix)
{
    if (channel == NULL || channel[0] == '\0') return vt_text_format("channel_%ld%s", number, suffix);
    char *name = vt_text_format("%s%s%s", isalpha((unsigned char)channel[0]) ? "" : "v_", channel, suffix);
    for (char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return name;
}

/* Number `index` of file->variables. */
static vt_status create_variable(vt_forecast_file *file, const vt_forecast_file_options *options, int64_t index)
{
    vt_status status = VT_OK;
    static const char *const suffixes[] = {"", "_mean", "_error_std"};
    static const char *const ends[] = {"", ", mean of the ensemble", ", standard deviation of the error"};
    const int64_t kind = index / file->channels, number = index % file->channels;
    const vt_dataset *dataset = options->forecaster->from.dataset;
    const bool masked = options->forecaster->members->config->missing == VT_GAPS_MASK;
    const bool has_std = options->has_stds && kind == (file->extent[NUMBER] > 0 ? MEANS : VALUES);
    const char *const *names = vt_dataset_channel_names(dataset);
    const char *channel = names != NULL ? names[number] : NULL;
    int order[DIMENSIONS];
    int64_t extent[DIMENSIONS], fields[DIMENSIONS];
    hsize_t chunk[DIMENSIONS];
    const int dimensions = dimensions_of(file, kind, order, fields);
    for (int i = 0; i < dimensions; i++) {
        extent[i] = file->extent[order[i]];
        chunk[i] = (hsize_t)fields[i];
    }
    const float fill = NAN;
    char *own = vt_forecast_file_variable(channel, number, "");
    char *name = vt_forecast_file_variable(channel, number, suffixes[kind]);
    char *std = vt_forecast_file_variable(channel, number, suffixes[STDS]);
    vt_variable meaning = vt_variable_described(channel != NULL && channel[0] != '\0' ? channel : own,
                                                vt_fields_about_meaning(dataset->about, number));
    char *long_name = vt_text_format("%s%s", meaning.long_name, ends[kind]);
    char *standard_name = meaning.standard_name == NULL
                              ? vt_text_copy("")
                              : vt_text_format("%s%s", meaning.standard_name, kind == STDS ? " standard_error" : "");
    char *level = NULL, *coordinates = NULL;
    VT_CHECK(H5Lexists(file->file, name, H5P_DEFAULT) <= 0,
             "a coordinate or another channel has that name; give channel %ld another one in the data", number);
    hid_t variable, properties = creation_properties(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, dimensions, chunk);
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 1);
    if (masked) H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &fill);
    VT_TRY(vt_hdf5_make_dataset(file->file, name, H5T_IEEE_F32LE, properties, dimensions, extent, &variable));
    file->variables[index] = variable;
    VT_TRY(write_level(file, &meaning, &level));
    const char *initial = file->extent[LEAD] == 0 ? "forecast_reference_time" : "";
    coordinates = vt_text_format("%s%s%s", initial, initial[0] != '\0' && level[0] != '\0' ? " " : "", level);
    const text_attribute attributes[] = {{"long_name", long_name},
                                         {"coordinates", coordinates},
                                         {"units", meaning.units},
                                         {"standard_name", standard_name},
                                         {"ancillary_variables", has_std ? std : ""},
                                         {"cell_methods", kind == MEANS ? "realization: mean" : ""},
                                         {0}};
    VT_TRY(set_texts(variable, attributes));
    if (masked) VT_TRY(vt_hdf5_write_attribute(variable, "_FillValue", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, -1, &fill));
    for (int i = 0; i < dimensions; i++)
        VT_CHECK(H5DSattach_scale(variable, file->scales[order[i]], (unsigned)i) >= 0, "%s", vt_hdf5_reason());
done:
    if (status != VT_OK) vt_error_context("can't make the variable '%s' of %s", name, file->path);
    char *const texts[] = {own, name, std, standard_name, long_name, level, coordinates};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) free(texts[i]);
    return status;
}

/* What the file says of the forecasts as a whole. */
static vt_status describe(const vt_forecast_file *file, const vt_forecast_file_options *options)
{
    enum { SOURCE, HISTORY, CHECKPOINT, ABOUT, TEXTS };
    char now[VT_NOW_SIZE];
    const vt_trained *model = options->forecaster->members->models;
    char *texts[TEXTS] = {
        [SOURCE] = vt_text_format("vitrain, vision transformer %s (%s)", model->config->config, model->how_far),
        [HISTORY] = vt_text_format("%s: %s", vt_fields_about_now(now), options->command),
        [CHECKPOINT] = vt_text_format("step %ld, crc32c %08x", model->step, (unsigned)model->checksum),
        [ABOUT] = vt_fields_about_short_text(options->about)};
    const text_attribute attributes[] = {{"Conventions", "CF-1.8"},
                                         {"title", options->stds_alone ? "Errors of a vision transformer's forecasts"
                                                                       : "Weather forecast by a vision transformer"},
                                         {"source", texts[SOURCE]},
                                         {"history", texts[HISTORY]},
                                         {"checkpoint", texts[CHECKPOINT]},
                                         {"about", texts[ABOUT]},
                                         {0}};
    const vt_status status = set_texts(file->file, attributes);
    if (status != VT_OK) vt_error_context("can't write %s", file->path);
    for (int i = 0; i < TEXTS; i++) free(texts[i]);
    return status;
}

/* time_axis: of the data, NULL: without dates. */
static vt_status create_all(vt_forecast_file *file, const vt_forecast_file_options *options,
                            const vt_time_axis *time_axis)
{
    static const coordinate number = {"number", "realization", "ensemble member", .units = "1"};
    vt_status status = VT_OK;
    const vt_initial_times *from = &options->forecaster->from;
    const bool archive = options->archive, ensemble = file->extent[NUMBER] > 0;
    const bool has[KINDS] = {!options->stds_alone, ensemble && !archive, options->has_stds};
    hid_t access = vt_hdf5_file_access(), creation = creation_properties(H5P_FILE_CREATE);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    file->file = H5Fcreate(file->partial, H5F_ACC_TRUNC, creation, access);
    VT_CHECK(file->file >= 0, "can't make %s: %s", file->path, vt_hdf5_reason());
    VT_TRY(describe(file, options));
    /* of an archive the initial times; else the times of the forecast, and the initial one as CF names it: a scalar */
    if (has[VALUES]) VT_TRY(write_times(file, from, time_axis, TIME, archive));
    if (has[VALUES] && !archive) VT_TRY(write_times(file, from, time_axis, SCALAR, true));
    if (archive) VT_TRY(write_leads(file, vt_forecast_step(from->dataset)));
    VT_TRY(write_sides(file, options));
    if (ensemble) VT_TRY(write_steps(file, NUMBER, &number, -1, 1));
    for (int64_t i = 0; i < KINDS * file->channels; i++)
        if (has[i / file->channels]) VT_TRY(create_variable(file, options, i));
done:
    H5Pclose(creation);
    H5Pclose(access);
    return status;
}

/* ---- the file ---- */

static void log_missing_coordinates(const vt_dataset *dataset, const char *path)
{
    static const char *const names[] = {"latitudes", "longitudes"};
    for (int k = 0; k < 2; k++)
        if (vt_dataset_known_coordinate(dataset, k == 1) == NULL)
            vt_log_info(
                "%s: no %s are known, so the forecast only numbers its %s; --coordinates=[%s=NAME] would name them",
                path, names[k], k == 0 ? "rows" : "columns", k == 0 ? "lat" : "lon");
}

vt_status vt_forecast_file_check_path(const char *option, const char *path, bool force)
{
    vt_status status = VT_OK;
    const size_t length = strlen(path);
    VT_TRY(vt_output_check_file(option, path));
    VT_CHECK(length > 3 && strcmp(path + length - 3, ".nc") == 0,
             "%s=%s: expected a name that ends in .nc, as it is a NetCDF file", option, path);
    if (vt_output_check_absent(path, force) != VT_OK) status = vt_error_context("%s", option);
done:
    return status;
}

vt_status vt_forecast_file_open(const vt_forecast_file_options *options, vt_forecast_file **result)
{
    vt_status status = VT_OK;
    vt_forecast_file *file = NULL;
    vt_fields_file *first = NULL;
    const vt_initial_times *from = &options->forecaster->from;
    const vt_members *members = options->forecaster->members;
    if (!options->stds_alone) VT_TRY(vt_dataset_check_dates(from->dataset, options->option));
    VT_CHECK(!options->archive || options->stds_alone || vt_forecast_step(from->dataset) < VT_A_MONTH,
             "%s: forecasts from several initial times have leads of equal length, but the steps are months",
             options->option);
    VT_TRY(vt_dataset_open_file(from->dataset, from->samples[0], &first)); /* before HDF5 is entered: it reads */
    log_missing_coordinates(from->dataset, first->path);
    file = vt_allocate(1, sizeof *file, "a file of forecasts");
    file->path = vt_text_copy(options->path);
    file->partial = vt_output_partial_path(options->path);
    file->channels = members->config->n_out_channels;
    file->extent[TIME] = options->stds_alone ? 0 : options->archive ? from->count : options->steps;
    file->extent[LEAD] = options->archive ? options->steps : 0;
    file->extent[LAT] = members->config->img_size[0];
    file->extent[LON] = members->config->img_size[1];
    file->extent[NUMBER] = options->stds_alone ? 0 : members->count;
    file->variables = vt_allocate(KINDS * (size_t)file->channels, sizeof *file->variables, "a file of forecasts");
    vt_hdf5_enter();
    status = create_all(file, options, first->times.dates != NULL ? &first->times : NULL);
    vt_hdf5_leave();
done:
    if (status != VT_OK) vt_forecast_file_close(&file);
    *result = file;
    return status;
}

vt_status vt_forecast_file_write(vt_forecast_file *file, int64_t start_index, int64_t member, int64_t time,
                                 const float *fields)
{
    vt_status status = VT_OK;
    const int64_t kind = member == VT_FORECAST_MEAN ? MEANS : member == VT_FORECAST_STD ? STDS : VALUES;
    const int64_t plane = file->extent[LAT] * file->extent[LON];
    const int64_t at[DIMENSIONS] = {
        [TIME] = file->extent[LEAD] > 0 ? start_index : time, [LEAD] = time, [NUMBER] = member};
    int order[DIMENSIONS];
    int64_t start[DIMENSIONS], count[DIMENSIONS];
    const int dimensions = dimensions_of(file, kind, order, count);
    for (int i = 0; i < dimensions; i++) start[i] = at[order[i]];
    vt_hdf5_enter();
    for (int64_t c = 0; c < file->channels && status == VT_OK; c++)
        status =
            vt_hdf5_write_box(file->variables[kind * file->channels + c], dimensions, start, count, fields + c * plane);
    vt_hdf5_leave();
    if (status != VT_OK) vt_error_context("can't write time %ld of %s", time, file->path);
    return status;
}

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
static void leave_out_missing(const vt_forecaster *f)
{
    const int64_t both = vt_smaller(vt_config_channels_a_time(f->members->config) * f->plane, f->out);
    for (int64_t state = 0; state < f->number * f->count; state++)
        for (int64_t i = 0; i < both; i++)
            if (isnan(f->input[state * f->in + i])) f->forecast[state * f->out + i] = NAN;
}

/* Rank 0, which writes, has the first initial times of the round. After an error it still receives what the others
 * send. */
vt_status vt_forecast_file_write_lead(vt_forecast_file *file, vt_forecaster *f)
{
    vt_status status = VT_OK;
    const size_t bytes = (size_t)f->out * sizeof(float);
    const int own = f->models->rank, end = own == 0 ? f->models->size : own + 1;
    leave_out_missing(f);
    for (int model = own; model < end; model++) {
        const int64_t before = (model - own) * f->batch, left = f->together - before;
        const int64_t count = model == own ? f->count : left < 0 ? 0 : vt_smaller(left, f->batch);
        for (int64_t state = 0; state < f->number * count; state++) {
            const float *fields = model == own ? f->forecast + state * f->out : f->mean;
            if (own > 0) vt_group_send(f->models, fields, bytes, 0, NULL);
            if (model > own) vt_group_receive(f->models, f->mean, bytes, model, NULL);
            if (own == 0 && status == VT_OK)
                status =
                    vt_forecast_file_write(file, f->first + before + state % count, state / count, f->lead - 1, fields);
        }
    }
    return status;
}

/* True if everything that HDF5 still held was written. */
static bool close_file(vt_forecast_file *file)
{
    vt_hdf5_enter();
    const bool done = file->file <= 0 || H5Fclose(file->file) >= 0;
    file->file = 0;
    vt_hdf5_leave();
    return done;
}

vt_status vt_forecast_file_finish(vt_forecast_file **file)
{
    vt_status status = VT_OK;
    VT_CHECK(close_file(*file), "can't write %s: %s", (*file)->path, vt_hdf5_reason());
    VT_TRY(vt_output_publish((*file)->partial, (*file)->path));
    free((*file)->partial);
    (*file)->partial = NULL; /* nothing is left to remove */
done:
    vt_forecast_file_close(file);
    return status;
}

void vt_forecast_file_close(vt_forecast_file **file)
{
    if (*file == NULL) return;
    close_file(*file);
    if ((*file)->partial != NULL) unlink((*file)->partial);
    free((*file)->partial);
    free((*file)->path);
    free((*file)->variables);
    free(*file);
    *file = NULL;
}
