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

/* What the file says of the forecasts. */
typedef struct {
    const vt_forecast_file_options *options;
    const vt_config *config;
    const vt_dataset *dataset;
    int64_t step;                  /* minutes, or months */
    const vt_time_axis *time_axis; /* gives the units and the calendar; NULL: hours since dates[0] */
    vt_date *dates;                /* the initial times of an archive; else the initial time and those of forecasts */
    double *longitudes;
    char *source, *history, *checkpoint, *about; /* global attributes */
} contents;

/* The dimensions of a variable in their order, and how many there are. CF: what is neither time nor space comes first.
 */
static int dimensions_of(const vt_forecast_file *file, int64_t kind, int order[DIMENSIONS])
{
    int count = 0;
    const bool archive = file->extent[LEAD] > 0;
    if (archive && kind != STDS) order[count++] = TIME;
    if (file->extent[NUMBER] > 0 && kind == VALUES) order[count++] = NUMBER;
    order[count++] = archive ? LEAD : TIME;
    order[count++] = LAT;
    order[count++] = LON;
    return count;
}

/* ---- attributes ---- */

static bool set_attribute(hid_t object, const char *name, hid_t file_type, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool done = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    return done;
}

static bool set_text(hid_t object, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text));
    H5Tset_strpad(type, H5T_STR_NULLPAD); /* no room for a final 0 */
    bool done = set_attribute(object, name, type, type, text);
    H5Tclose(type);
    return done;
}

typedef struct {
    const char *name, *text; /* text "": the attribute is left out */
} text_attribute;

/* A list that an attribute without a name ends. */
static bool set_texts(hid_t object, const text_attribute *attributes)
{
    bool done = true;
    for (; attributes->name != NULL; attributes++)
        if (attributes->text[0] != '\0') done = done && set_text(object, attributes->name, attributes->text);
    return done;
}

/* ---- coordinates ---- */

/* Links and attributes in the order in which they are made, in which the netCDF library looks for them. */
static hid_t creation_properties(hid_t class)
{
    hid_t properties = H5Pcreate(class);
    if (class == H5P_FILE_CREATE) H5Pset_link_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    return properties;
}

/* A dataset of this extent in each dimension; 0 dimensions: a scalar. Closes the properties. Negative: it can't be
 * made.
 */
static hid_t create_dataset(const vt_forecast_file *file, const char *name, hid_t type, hid_t properties,
                            int dimensions, const hsize_t *extent)
{
    hid_t space = H5Screate(H5S_SCALAR);
    if (dimensions > 0) H5Sset_extent_simple(space, dimensions, extent, NULL);
    hid_t dataset = H5Dcreate2(file->file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(properties);
    return dataset;
}

/* A dimension with its coordinate; SCALAR: a single value. A dimension without values (NULL) is a scale that netCDF
 * recognises by its name. */
static vt_status write_coordinate(vt_forecast_file *file, int dimension, const char *name, const double *values,
                                  const text_attribute *attributes)
{
    vt_status status = VT_OK;
    char no_variable[80];
    const bool is_scalar = dimension == SCALAR;
    const hsize_t extent = is_scalar ? 1 : (hsize_t)file->extent[dimension];
    snprintf(no_variable, sizeof no_variable, "This is a netCDF dimension but not a netCDF variable.%10lld",
             (long long)extent);
    const hid_t type = values == NULL        ? H5T_IEEE_F32BE
                       : dimension == NUMBER ? H5T_STD_I32LE
                       : dimension == LEAD   ? H5T_STD_I64LE
                                             : H5T_IEEE_F64LE;
    hid_t made = create_dataset(file, name, type, creation_properties(H5P_DATASET_CREATE), is_scalar ? 0 : 1, &extent);
    bool done = made >= 0;
    if (done && values != NULL) done = H5Dwrite(made, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (!is_scalar) {
        const int number = file->dimensions++;
        file->scales[dimension] = made;
        done = done && H5DSset_scale(made, values != NULL ? name : no_variable) >= 0 &&
               set_attribute(made, "_Netcdf4Dimid", H5T_STD_I32LE, H5T_NATIVE_INT, &number);
    }
    if (values != NULL) done = done && set_texts(made, attributes);
    VT_CHECK(done, "can't write '%s' of %s: %s", name, file->path, vt_hdf5_reason());
done:
    return status;
}

/* The same with the values before + apart, before + 2 apart, … */
static vt_status write_steps(vt_forecast_file *file, int dimension, const char *name, double before, double apart,
                             const text_attribute *attributes)
{
    double *values = vt_allocate((size_t)file->extent[dimension], sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < file->extent[dimension]; i++) values[i] = before + (double)(i + 1) * apart;
    const vt_status status = write_coordinate(file, dimension, name, values, attributes);
    free(values);
    return status;
}

/* The units of times, malloc'd, and what they mean: the data's, but days if the data have months, whose length varies.
 */
static char *units_of_times(const contents *c, vt_time_units *units)
{
    char date[VT_DATE_SIZE];
    const vt_time_axis *axis = c->time_axis;
    if (axis != NULL && axis->meaning.months == 0) {
        *units = axis->meaning;
        return vt_text_copy(axis->units);
    }
    *units =
        (vt_time_units){.minutes = axis != NULL ? 1440 : 60, .zero = axis != NULL ? axis->meaning.zero : c->dates[0]};
    return vt_text_format("%s since %s:00", axis != NULL ? "days" : "hours", vt_date_format(units->zero, date));
}

/* Initial times, or those that forecasts are for. */
static vt_status write_times(vt_forecast_file *file, const contents *c, int dimension, bool initial)
{
    vt_time_units units;
    const vt_time_axis *axis = c->time_axis;
    const int64_t count = dimension == SCALAR ? 1 : file->extent[TIME];
    const char *calendar =
        axis != NULL && axis->calendar_name[0] != '\0' ? axis->calendar_name : vt_calendar_name(c->dates[0].calendar);
    char *since = units_of_times(c, &units);
    double *values = vt_allocate((size_t)count, sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < count; i++) values[i] = vt_time_units_value(&units, c->dates[initial ? i : 1 + i]);
    const text_attribute attributes[] = {
        {"standard_name", initial ? "forecast_reference_time" : "time"},
        {"long_name", initial ? "initial time of the forecast" : "time that the forecast is for"},
        {"units", since},
        {"calendar", calendar},
        {"axis", dimension == SCALAR ? "" : "T"},
        {0}};
    const vt_status status =
        write_coordinate(file, dimension, dimension == SCALAR ? "forecast_reference_time" : "time", values, attributes);
    free(values);
    free(since);
    return status;
}

/* Of an archive. xarray recognises lengths of time by their units, from version 2025.7 on by `dtype`. */
static vt_status write_leads(vt_forecast_file *file, const contents *c)
{
    const bool hours = c->step % 60 == 0 || c->step >= VT_A_MONTH;
    const text_attribute lead[] = {{"standard_name", "forecast_period"},
                                   {"long_name", "time since the initial time"},
                                   {"units", hours ? "hours" : "minutes"},
                                   {"dtype", "timedelta64[ns]"},
                                   {0}};
    const double apart = hours ? vt_length_hours(c->step) : (double)c->step;
    return write_steps(file, LEAD, "prediction_timedelta", 0, apart, lead);
}

static vt_status write_numbers(vt_forecast_file *file)
{
    static const text_attribute number[] = {
        {"standard_name", "realization"}, {"long_name", "ensemble member"}, {"units", "1"}, {0}};
    return write_steps(file, NUMBER, "number", -1, 1, number);
}

static vt_status write_side(vt_forecast_file *file, int dimension, const double *degrees, const contents *c)
{
    enum { UNKNOWN, ROTATED, ARCHIVED, USUAL };
    static const char *const names[][2] = {[UNKNOWN] = {"y", "x"},
                                           [ROTATED] = {"rlat", "rlon"},
                                           [ARCHIVED] = {"latitude", "longitude"},
                                           [USUAL] = {"lat", "lon"}};
    static const text_attribute sides[2][2][5] = {
        {{{"standard_name", "latitude"}, {"long_name", "latitude"}, {"units", "degrees_north"}, {"axis", "Y"}},
         {{"standard_name", "longitude"}, {"long_name", "longitude"}, {"units", "degrees_east"}, {"axis", "X"}}},
        {{{"standard_name", "grid_latitude"},
          {"long_name", "latitude in a grid of a rotated pole"},
          {"units", "degrees"},
          {"axis", "Y"}},
         {{"standard_name", "grid_longitude"},
          {"long_name", "longitude in a grid of a rotated pole"},
          {"units", "degrees"},
          {"axis", "X"}}}};
    const int side = dimension == LON;
    const int known = c->options->about->rotated ? ROTATED : c->options->archive ? ARCHIVED : USUAL;
    return write_coordinate(file, dimension, names[degrees != NULL ? known : UNKNOWN][side], degrees,
                            sides[c->options->about->rotated][side]);
}

/* The height or pressure of a channel as a scalar that its attribute `coordinates` names, malloc'd; channels of one
 * level share it. "": neither is known. */
static vt_status write_level(vt_forecast_file *file, const vt_variable *meaning, char **name)
{
    static const text_attribute height[] = {
        {"standard_name", "height"}, {"units", "m"}, {"axis", "Z"}, {"positive", "up"}, {0}};
    static const text_attribute pressure[] = {
        {"standard_name", "air_pressure"}, {"units", "hPa"}, {"axis", "Z"}, {"positive", "down"}, {0}};
    const bool is_height = meaning->height > 0;
    *name = is_height               ? vt_text_format("height_%gm", meaning->height)
            : meaning->pressure > 0 ? vt_text_format("pressure_%g", meaning->pressure)
                                    : vt_text_copy("");
    for (char *c = *name; *c != '\0'; c++)
        if (*c == '.') *c = '_';
    if ((*name)[0] == '\0' || H5Lexists(file->file, *name, H5P_DEFAULT) > 0) return VT_OK;
    return write_coordinate(file, SCALAR, *name, is_height ? &meaning->height : &meaning->pressure,
                            is_height ? height : pressure);
}

/* ---- variables ---- */

char *vt_forecast_file_variable(const char *channel, int64_t number, const char *suffix)
{
    if (channel == NULL || channel[0] == '\0') return vt_text_format("channel_%lld%s", (long long)number, suffix);
    char *name = vt_text_format("%s%s%s", isalpha((unsigned char)channel[0]) ? "" : "v_", channel, suffix);
    for (char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return name;
}

/* Number `index` of file->variables. */
static vt_status create_variable(vt_forecast_file *file, const contents *c, int64_t index)
{
    vt_status status = VT_OK;
    static const char *const suffixes[] = {"", "_mean", "_error_std"};
    static const char *const ends[] = {"", ", mean of the ensemble", ", standard deviation of the error"};
    const int64_t kind = index / file->channels, number = index % file->channels;
    const bool masked = c->config->missing == VT_GAPS_MASK;
    const bool has_std = c->options->has_stds && kind == (file->extent[NUMBER] > 0 ? MEANS : VALUES);
    const char *const *names = vt_dataset_channel_names(c->dataset);
    const char *channel = names != NULL ? names[number] : NULL;
    int order[DIMENSIONS];
    const int dimensions = dimensions_of(file, kind, order);
    hsize_t extent[DIMENSIONS], chunk[DIMENSIONS];
    for (int i = 0; i < dimensions; i++) {
        extent[i] = (hsize_t)file->extent[order[i]];
        chunk[i] = order[i] == LAT || order[i] == LON ? extent[i] : 1;
    }
    const float fill = NAN;
    char *own = vt_forecast_file_variable(channel, number, "");
    char *name = vt_forecast_file_variable(channel, number, suffixes[kind]);
    char *std = vt_forecast_file_variable(channel, number, suffixes[STDS]);
    vt_variable meaning = vt_variable_described(channel != NULL && channel[0] != '\0' ? channel : own,
                                                vt_fields_about_meaning(c->dataset->about, number));
    char *long_name = vt_text_format("%s%s", meaning.long_name, ends[kind]);
    char *standard_name = meaning.standard_name == NULL
                              ? vt_text_copy("")
                              : vt_text_format("%s%s", meaning.standard_name, kind == STDS ? " standard_error" : "");
    hid_t properties = creation_properties(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, dimensions, chunk);
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 1);
    if (masked) H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &fill);
    hid_t variable = create_dataset(file, name, H5T_IEEE_F32LE, properties, dimensions, extent);
    file->variables[index] = variable;
    char *level = NULL, *coordinates = NULL;
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
    bool done = variable >= 0 && set_texts(variable, attributes);
    if (masked) done = done && set_attribute(variable, "_FillValue", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, &fill);
    for (int i = 0; i < dimensions; i++)
        done = done && H5DSattach_scale(variable, file->scales[order[i]], (unsigned)i) >= 0;
    VT_CHECK(done, "can't make the variable '%s' of %s: %s", name, file->path, vt_hdf5_reason());
done:;
    char *const texts[] = {own, name, std, standard_name, long_name, level, coordinates};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) free(texts[i]);
    return status;
}

static vt_status create_all(vt_forecast_file *file, const contents *c)
{
    vt_status status = VT_OK;
    hid_t access = vt_hdf5_file_access(), creation = creation_properties(H5P_FILE_CREATE);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    file->file = H5Fcreate(file->partial, H5F_ACC_TRUNC, creation, access);
    VT_CHECK(file->file >= 0, "can't make %s: %s", file->path, vt_hdf5_reason());
    const bool archive = c->options->archive, ensemble = file->extent[NUMBER] > 0;
    const bool has[KINDS] = {file->extent[TIME] > 0, ensemble && !archive, c->options->has_stds};
    const char *title =
        has[VALUES] ? "Weather forecast by a vision transformer" : "Errors of a vision transformer's forecasts";
    const text_attribute attributes[] = {{"Conventions", "CF-1.8"},
                                         {"title", title},
                                         {"source", c->source},
                                         {"history", c->history},
                                         {"checkpoint", c->checkpoint},
                                         {"about", c->about},
                                         {0}};
    VT_CHECK(set_texts(file->file, attributes), "can't write %s: %s", file->path, vt_hdf5_reason());
    /* of an archive the initial times; else the times of the forecast, and the initial one as CF names it: a scalar */
    if (has[VALUES]) VT_TRY(write_times(file, c, TIME, archive));
    if (has[VALUES] && !archive) VT_TRY(write_times(file, c, SCALAR, true));
    if (archive) VT_TRY(write_leads(file, c));
    VT_TRY(write_side(file, LAT, vt_dataset_known_coordinate(c->dataset, false), c));
    VT_TRY(write_side(file, LON, c->longitudes, c));
    if (ensemble) VT_TRY(write_numbers(file));
    for (int64_t i = 0; i < KINDS * file->channels; i++)
        if (has[i / file->channels]) VT_TRY(create_variable(file, c, i));
done:
    H5Pclose(creation);
    H5Pclose(access);
    return status;
}

/* ---- what it says ---- */

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

static void log_missing_coordinates(const vt_dataset *dataset, const char *path)
{
    static const char *const names[] = {"latitudes", "longitudes"};
    for (int k = 0; k < 2; k++)
        if (vt_dataset_known_coordinate(dataset, k == 1) == NULL)
            vt_log_info(
                "%s: no %s are known, so the forecast only numbers its %s; --coordinates=[%s=NAME] would name them",
                path, names[k], k == 0 ? "rows" : "columns", k == 0 ? "lat" : "lon");
}

/* ---- the file ---- */

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

/* Before HDF5 is entered, as it reads files of its own. What *c holds is to be freed, also after an error. */
static vt_status collect(const vt_forecast_file_options *options, contents *c)
{
    vt_status status = VT_OK;
    const vt_initial_times *from = &options->forecaster->from;
    const vt_trained *model = options->forecaster->members->models;
    const int64_t date_count = options->archive ? from->count : options->steps + 1;
    vt_fields_file *first = NULL;
    char now[VT_NOW_SIZE];
    *c = (contents){.options = options, .config = model->config, .dataset = from->dataset};
    c->step = vt_dataset_minutes_a_time(from->dataset) * model->config->dt;
    if (!options->stds_alone) VT_TRY(vt_dataset_check_dates(from->dataset, options->option));
    VT_CHECK(!options->archive || options->stds_alone || c->step < VT_A_MONTH,
             "%s: forecasts from several initial times have leads of equal length, but the steps are months",
             options->option);
    c->dates = vt_allocate((size_t)date_count, sizeof *c->dates, "the forecast");
    for (int64_t i = 0; i < date_count; i++)
        c->dates[i] =
            vt_forecast_date(from->dataset, from->samples[options->archive ? i : 0], options->archive ? 0 : i);
    VT_TRY(vt_dataset_open_file(from->dataset, from->samples[0], &first));
    if (first->times.dates != NULL) c->time_axis = &first->times;
    c->longitudes = longitudes_of(from->dataset, model->config->img_size[1]);
    c->checkpoint = vt_text_format("step %lld, crc32c %08x", (long long)model->step, (unsigned)model->checksum);
    c->source = vt_text_format("vitrain, vision transformer %s (%s)", model->config->config, model->how_far);
    c->history = vt_text_format("%s: %s", vt_fields_about_now(now), options->command);
    c->about = vt_fields_about_short_text(options->about);
    log_missing_coordinates(from->dataset, first->path);
done:
    return status;
}

vt_status vt_forecast_file_open(const vt_forecast_file_options *options, vt_forecast_file **result)
{
    vt_status status = VT_OK;
    contents c;
    vt_forecast_file *file = NULL;
    const vt_forecaster *forecaster = options->forecaster;
    const int64_t starts = options->stds_alone ? 0 : forecaster->from.count;
    VT_TRY(collect(options, &c));
    file = vt_allocate(1, sizeof *file, "a file of forecasts");
    file->path = vt_text_copy(options->path);
    file->partial = vt_output_partial_path(options->path);
    file->channels = c.config->n_out_channels;
    file->extent[TIME] = options->archive ? starts : options->steps;
    file->extent[LEAD] = options->archive ? options->steps : 0;
    file->extent[LAT] = c.config->img_size[0];
    file->extent[LON] = c.config->img_size[1];
    file->extent[NUMBER] = options->stds_alone ? 0 : forecaster->members->count;
    file->variables = vt_allocate(KINDS * (size_t)file->channels, sizeof *file->variables, "a file of forecasts");
    vt_hdf5_enter();
    status = create_all(file, &c);
    vt_hdf5_leave();
done:
    if (status != VT_OK) vt_forecast_file_close(&file);
    char *const texts[] = {c.source, c.history, c.checkpoint, c.about};
    for (int i = 0; i < 4; i++) free(texts[i]);
    free(c.dates);
    free(c.longitudes);
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
    const int dimensions = dimensions_of(file, kind, order);
    hsize_t start[DIMENSIONS], count[DIMENSIONS];
    for (int i = 0; i < dimensions; i++) {
        start[i] = (hsize_t)at[order[i]];
        count[i] = order[i] == LAT || order[i] == LON ? (hsize_t)file->extent[order[i]] : 1;
    }
    vt_hdf5_enter();
    hid_t memory = H5Screate_simple(dimensions, count, NULL);
    for (int64_t c = 0; c < file->channels; c++) {
        hid_t variable = file->variables[kind * file->channels + c], space = H5Dget_space(variable);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        herr_t written = H5Dwrite(variable, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, fields + c * plane);
        H5Sclose(space);
        VT_CHECK(written >= 0, "can't write time %lld of %s: %s", (long long)time, file->path, vt_hdf5_reason());
    }
done:
    H5Sclose(memory);
    vt_hdf5_leave();
    return status;
}

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
static void leave_out_missing(const vt_forecaster *f)
{
    const vt_config *config = f->members->config;
    const int64_t plane = config->img_size[0] * config->img_size[1], out = config->n_out_channels * plane;
    const int64_t both = vt_smaller(vt_config_channels_a_time(config) * plane, out);
    for (int64_t state = 0; state < f->number * f->count; state++)
        for (int64_t i = 0; i < both; i++)
            if (isnan(f->input[state * config->n_in_channels * plane + i])) f->forecast[state * out + i] = NAN;
}

/* Rank 0, which writes, has the first initial times of the round. After an error it still receives what the others
 * send. */
vt_status vt_forecast_file_write_lead(vt_forecast_file *file, vt_forecaster *f, int64_t first)
{
    vt_status status = VT_OK;
    const vt_config *config = f->members->config;
    const int64_t out = config->n_out_channels * config->img_size[0] * config->img_size[1];
    const size_t bytes = (size_t)out * sizeof(float);
    const int own = f->models->rank, end = own == 0 ? f->models->size : own + 1;
    leave_out_missing(f);
    for (int model = own; model < end; model++) {
        const int64_t before = (model - own) * f->batch, left = f->together - before;
        const int64_t count = model == own ? f->count : left < 0 ? 0 : vt_smaller(left, f->batch);
        for (int64_t state = 0; state < f->number * count; state++) {
            const float *fields = model == own ? f->forecast + state * out : f->mean;
            if (own > 0) vt_group_send(f->models, fields, bytes, 0, NULL);
            if (model > own) vt_group_receive(f->models, f->mean, bytes, model, NULL);
            if (own == 0 && status == VT_OK)
                status =
                    vt_forecast_file_write(file, first + before + state % count, state / count, f->lead - 1, fields);
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
