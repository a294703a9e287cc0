#include "forecast/forecast_file.h"

#include <ctype.h>
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/hdf5_access.h"
#include "storage/output_file.h"
#include "task/weather/channels.h"

enum { TIME, LEAD, LAT, LON, NUMBER, DIMENSIONS };
typedef enum { VALUES, MEANS, STDS, KINDS } variable_kind;

struct vt_forecast_file {
    char *path, *partial;
    hid_t file;
    hid_t scales[DIMENSIONS];
    hid_t *variables[KINDS];    /* [channels] */
    int64_t extent[DIMENSIONS]; /* of NUMBER 0: there is no ensemble; of LEAD 0: it is no archive */
    bool has_stds;
    int dimensions; /* made */
    int64_t channels, written;
};

/* The dimensions of a variable in their order, and how many there are. CF: what is neither time nor space comes first.
 */
static int dimensions_of(const vt_forecast_file *file, variable_kind kind, int order[DIMENSIONS])
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
    H5Tset_size(type, text[0] != '\0' ? strlen(text) : 1);
    H5Tset_strpad(type, H5T_STR_NULLPAD); /* no room for a final 0 */
    bool done = set_attribute(object, name, type, type, text);
    H5Tclose(type);
    return done;
}

typedef struct {
    const char *name, *text;
} text_attribute;

static bool set_texts(hid_t object, const text_attribute *attributes, size_t count)
{
    bool done = true;
    for (size_t i = 0; i < count; i++) done = done && set_text(object, attributes[i].name, attributes[i].text);
    return done;
}

/* ---- coordinates ---- */

static const char initial_time[] = "initial time of the forecast";

/* Links and attributes in the order in which they are made, in which the netCDF library looks for them. */
static hid_t creation_properties(hid_t class)
{
    hid_t properties = H5Pcreate(class);
    if (class == H5P_FILE_CREATE) H5Pset_link_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    return properties;
}

/* A dataset of this extent in each dimension; 0 dimensions: a scalar. To be closed; negative: it can't be made. */
static hid_t create_dataset(const vt_forecast_file *file, const char *name, hid_t type, int dimensions,
                            const hsize_t *extent)
{
    hid_t space = H5Screate(H5S_SCALAR), properties = creation_properties(H5P_DATASET_CREATE);
    if (dimensions > 0) H5Sset_extent_simple(space, dimensions, extent, NULL);
    hid_t dataset = H5Dcreate2(file->file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(properties);
    return dataset;
}

/* A dimension with its coordinate. Without one (values NULL) it is a scale without values, which netCDF recognises by
 * the scale's name. */
static vt_status write_dimension(vt_forecast_file *file, int dimension, const char *name, const double *values,
                                 const text_attribute *attributes, size_t attribute_count)
{
    vt_status status = VT_OK;
    char no_variable[80];
    const hsize_t extent = (hsize_t)file->extent[dimension];
    snprintf(no_variable, sizeof no_variable, "This is a netCDF dimension but not a netCDF variable.%10lld",
             (long long)extent);
    const hid_t type = values == NULL        ? H5T_IEEE_F32BE
                       : dimension == NUMBER ? H5T_STD_I32LE
                       : dimension == LEAD   ? H5T_STD_I64LE
                                             : H5T_IEEE_F64LE;
    const int number = file->dimensions++;
    hid_t scale = create_dataset(file, name, type, 1, &extent);
    file->scales[dimension] = scale;
    bool done = scale >= 0;
    if (done && values != NULL) done = H5Dwrite(scale, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    done = done && H5DSset_scale(scale, values != NULL ? name : no_variable) >= 0 &&
           set_attribute(scale, "_Netcdf4Dimid", H5T_STD_I32LE, H5T_NATIVE_INT, &number);
    if (values != NULL) done = done && set_texts(scale, attributes, attribute_count);
    VT_CHECK(done, "can't write the dimension '%s' of %s: %s", name, file->path, vt_hdf5_reason());
done:
    return status;
}

/* The units of times, malloc'd, and what they mean: the data's, but days if the data have months, whose length varies.
 */
static char *units_of_times(const vt_forecast_file_options *options, vt_time_units *units)
{
    char date[VT_DATE_SIZE];
    const vt_time_axis *axis = options->time_axis;
    if (axis != NULL && axis->meaning.months == 0) {
        *units = axis->meaning;
        return vt_text_copy(axis->units);
    }
    *units = (vt_time_units){.minutes = axis != NULL ? 1440 : 60,
                             .zero = axis != NULL ? axis->meaning.zero : options->dates[0]};
    return vt_text_format("%s since %s:00", axis != NULL ? "days" : "hours", vt_date_format(units->zero, date));
}

static const char *calendar_of(const vt_forecast_file_options *options)
{
    const vt_time_axis *axis = options->time_axis;
    return axis != NULL && axis->calendar_name[0] != '\0' ? axis->calendar_name
                                                          : vt_calendar_name(options->dates[0].calendar);
}

static vt_status write_times(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    vt_status status = VT_OK;
    vt_time_units units;
    const bool archive = options->archive;
    const int64_t count = file->extent[TIME];
    char *since = units_of_times(options, &units);
    double *values = vt_allocate((size_t)count, sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < count; i++) values[i] = vt_time_units_value(&units, options->dates[archive ? i : 1 + i]);
    const text_attribute time[] = {{"standard_name", archive ? "forecast_reference_time" : "time"},
                                   {"long_name", archive ? initial_time : "time that the forecast is for"},
                                   {"units", since},
                                   {"calendar", calendar_of(options)},
                                   {"axis", "T"}};
    VT_TRY(write_dimension(file, TIME, "time", values, time, 5));
done:
    free(values);
    free(since);
    return status;
}

/* Of an archive. xarray recognises lengths of time by their units, from version 2025.7 on by `dtype`. */
static vt_status write_leads(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    const bool months = options->step >= VT_A_MONTH, hours = !months && options->step % 60 == 0;
    const char *unit = months ? "months" : hours ? "hours" : "minutes";
    const double length = (double)options->step / (double)(months ? VT_A_MONTH : hours ? 60 : 1);
    const text_attribute lead[] = {{"standard_name", "forecast_period"},
                                   {"long_name", "time since the initial time"},
                                   {"units", unit},
                                   {"dtype", "timedelta64[ns]"}};
    double *values = vt_allocate((size_t)options->times, sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < options->times; i++) values[i] = (double)(i + 1) * length;
    const vt_status status = write_dimension(file, LEAD, "prediction_timedelta", values, lead, months ? 3 : 4);
    free(values);
    return status;
}

static vt_status write_grid(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    vt_status status = VT_OK;
    const bool rotated = options->rotated, archive = options->archive;
    const text_attribute lat[] = {{"standard_name", rotated ? "grid_latitude" : "latitude"},
                                  {"long_name", rotated ? "latitude in a grid of a rotated pole" : "latitude"},
                                  {"units", rotated ? "degrees" : "degrees_north"},
                                  {"axis", "Y"}};
    const text_attribute lon[] = {{"standard_name", rotated ? "grid_longitude" : "longitude"},
                                  {"long_name", rotated ? "longitude in a grid of a rotated pole" : "longitude"},
                                  {"units", rotated ? "degrees" : "degrees_east"},
                                  {"axis", "X"}};
    VT_TRY(write_dimension(file, LAT,
                           options->latitudes == NULL ? "y"
                           : rotated                  ? "rlat"
                           : archive                  ? "latitude"
                                                      : "lat",
                           options->latitudes, lat, 4));
    VT_TRY(write_dimension(file, LON,
                           options->longitudes == NULL ? "x"
                           : rotated                   ? "rlon"
                           : archive                   ? "longitude"
                                                       : "lon",
                           options->longitudes, lon, 4));
done:
    return status;
}

static vt_status write_numbers(vt_forecast_file *file)
{
    const text_attribute number[] = {
        {"standard_name", "realization"}, {"long_name", "ensemble member"}, {"units", "1"}};
    double *values = vt_allocate((size_t)file->extent[NUMBER], sizeof *values, "a file of forecasts");
    for (int64_t i = 0; i < file->extent[NUMBER]; i++) values[i] = (double)i;
    const vt_status status = write_dimension(file, NUMBER, "number", values, number, 3);
    free(values);
    return status;
}

static vt_status write_scalar(vt_forecast_file *file, const char *name, double value, const text_attribute *attributes,
                              size_t count)
{
    vt_status status = VT_OK;
    hid_t variable = create_dataset(file, name, H5T_IEEE_F64LE, 0, NULL);
    VT_CHECK(variable >= 0 && H5Dwrite(variable, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) >= 0 &&
                 set_texts(variable, attributes, count),
             "can't write '%s' of %s: %s", name, file->path, vt_hdf5_reason());
done:
    if (variable >= 0) H5Dclose(variable);
    return status;
}

/* The initial time, as CF names it: a scalar beside the coordinates. */
static vt_status write_reference_time(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    vt_status status = VT_OK;
    vt_time_units units;
    char *since = units_of_times(options, &units);
    const text_attribute attributes[] = {{"standard_name", "forecast_reference_time"},
                                         {"long_name", initial_time},
                                         {"units", since},
                                         {"calendar", calendar_of(options)}};
    VT_TRY(
        write_scalar(file, "forecast_reference_time", vt_time_units_value(&units, options->dates[0]), attributes, 4));
done:
    free(since);
    return status;
}

/* The height or pressure of a channel as a scalar that its attribute `coordinates` names, malloc'd; channels of one
 * level share it. "": neither is known. */
static vt_status write_level(vt_forecast_file *file, const vt_variable *meaning, char **name)
{
    vt_status status = VT_OK;
    static const text_attribute height[] = {
        {"standard_name", "height"}, {"units", "m"}, {"axis", "Z"}, {"positive", "up"}};
    static const text_attribute pressure[] = {
        {"standard_name", "air_pressure"}, {"units", "hPa"}, {"axis", "Z"}, {"positive", "down"}};
    const bool is_height = meaning->height > 0;
    *name = is_height               ? vt_text_format("height_%gm", meaning->height)
            : meaning->pressure > 0 ? vt_text_format("pressure_%g", meaning->pressure)
                                    : vt_text_copy("");
    for (char *c = *name; *c != '\0'; c++)
        if (*c == '.') *c = '_';
    if ((*name)[0] == '\0' || H5Lexists(file->file, *name, H5P_DEFAULT) > 0) return VT_OK;
    VT_TRY(
        write_scalar(file, *name, is_height ? meaning->height : meaning->pressure, is_height ? height : pressure, 4));
done:
    return status;
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

static vt_status create_variable(vt_forecast_file *file, const char *channel, const vt_channel_meaning *said,
                                 int64_t number, bool masked, variable_kind kind)
{
    vt_status status = VT_OK;
    int order[DIMENSIONS];
    const int dimensions = dimensions_of(file, kind, order);
    hsize_t extent[DIMENSIONS], chunk[DIMENSIONS];
    for (int i = 0; i < dimensions; i++) {
        extent[i] = (hsize_t)file->extent[order[i]];
        chunk[i] = order[i] == LAT || order[i] == LON ? extent[i] : 1;
    }
    const float fill = NAN;
    static const char *const suffixes[] = {"", "_mean", "_error_std"}, *const ends[] = {
                                                                           "", ", mean of the ensemble",
                                                                           ", standard deviation of the error"};
    const bool has_std = file->has_stds && (kind == MEANS || (kind == VALUES && file->extent[NUMBER] == 0));
    char *own = vt_forecast_file_variable(channel, number, "");
    char *name = vt_forecast_file_variable(channel, number, suffixes[kind]);
    char *std = vt_forecast_file_variable(channel, number, suffixes[STDS]), *standard_name = NULL;
    vt_variable meaning = vt_variable_described(channel != NULL && channel[0] != '\0' ? channel : own, said);
    char *long_name = vt_text_format("%s%s", meaning.long_name, ends[kind]);
    hid_t space = H5Screate_simple(dimensions, extent, NULL), properties = creation_properties(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, dimensions, chunk);
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 1);
    if (masked) H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &fill);
    hid_t variable = H5Dcreate2(file->file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    file->variables[kind][number] = variable;
    char *level = NULL, *coordinates = NULL;
    VT_TRY(write_level(file, &meaning, &level));
    coordinates = vt_text_format("%s%s", file->extent[LEAD] == 0 ? "forecast_reference_time " : "", level);
    if (level[0] == '\0' && coordinates[0] != '\0') coordinates[strlen(coordinates) - 1] = '\0';
    text_attribute attributes[6] = {{"long_name", long_name}};
    size_t count = 1;
    if (coordinates[0] != '\0') attributes[count++] = (text_attribute){"coordinates", coordinates};
    if (meaning.units[0] != '\0') attributes[count++] = (text_attribute){"units", meaning.units};
    if (meaning.standard_name != NULL) {
        standard_name = vt_text_format("%s%s", meaning.standard_name, kind == STDS ? " standard_error" : "");
        attributes[count++] = (text_attribute){"standard_name", standard_name};
    }
    if (has_std) attributes[count++] = (text_attribute){"ancillary_variables", std};
    if (kind == MEANS) attributes[count++] = (text_attribute){"cell_methods", "realization: mean"};
    bool done = variable >= 0 && set_texts(variable, attributes, count);
    if (masked) done = done && set_attribute(variable, "_FillValue", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, &fill);
    for (int i = 0; i < dimensions; i++)
        done = done && H5DSattach_scale(variable, file->scales[order[i]], (unsigned)i) >= 0;
    VT_CHECK(done, "can't make the variable '%s' of %s: %s", name, file->path, vt_hdf5_reason());
done:
    H5Sclose(space);
    H5Pclose(properties);
    free(own);
    free(name);
    free(std);
    free(standard_name);
    free(long_name);
    free(level);
    free(coordinates);
    return status;
}

static vt_status create_all(vt_forecast_file *file, const vt_forecast_file_options *options)
{
    vt_status status = VT_OK;
    hid_t access = vt_hdf5_file_access(), creation = creation_properties(H5P_FILE_CREATE);
    file->file = H5Fcreate(file->partial, H5F_ACC_TRUNC, creation, access);
    VT_CHECK(file->file >= 0, "can't make %s: %s", file->path, vt_hdf5_reason());
    const text_attribute attributes[] = {{"Conventions", "CF-1.8"},           {"title", options->title},
                                         {"source", options->source},         {"history", options->history},
                                         {"checkpoint", options->checkpoint}, {"about", options->about}};
    VT_CHECK(set_texts(file->file, attributes, options->about != NULL ? 6 : 4), "can't write %s: %s", file->path,
             vt_hdf5_reason());
    const bool archive = options->archive, has_forecasts = file->extent[TIME] > 0;
    if (has_forecasts) VT_TRY(write_times(file, options));
    if (archive) VT_TRY(write_leads(file, options));
    VT_TRY(write_grid(file, options));
    if (options->members > 0 && has_forecasts) VT_TRY(write_numbers(file));
    if (!archive) VT_TRY(write_reference_time(file, options));
    const bool has[KINDS] = {has_forecasts, options->members > 0 && !archive, options->has_stds};
    for (int64_t i = 0; i < KINDS * options->channels; i++) {
        const int64_t c = i % options->channels, kind = i / options->channels;
        if (has[kind])
            VT_TRY(create_variable(file, options->channel_names != NULL ? options->channel_names[c] : NULL,
                                   &options->meanings[c], c, options->masked, (variable_kind)kind));
    }
done:
    H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    return status;
}

/* ---- the file ---- */

vt_status vt_forecast_file_open(const char *path, const vt_forecast_file_options *options, vt_forecast_file **result)
{
    vt_forecast_file *file = vt_allocate(1, sizeof *file, "a file of forecasts");
    file->path = vt_text_copy(path);
    file->partial = vt_output_partial_path(path);
    file->file = H5I_INVALID_HID;
    file->channels = options->channels;
    file->has_stds = options->has_stds;
    file->extent[TIME] = options->archive ? options->starts : options->times;
    file->extent[LEAD] = options->archive ? options->times : 0;
    file->extent[LAT] = options->height;
    file->extent[LON] = options->width;
    file->extent[NUMBER] = options->members;
    for (int i = 0; i < DIMENSIONS; i++) file->scales[i] = H5I_INVALID_HID;
    for (int kind = 0; kind < KINDS; kind++) {
        file->variables[kind] = vt_allocate((size_t)options->channels, sizeof(hid_t), "a file of forecasts");
        for (int64_t c = 0; c < options->channels; c++) file->variables[kind][c] = H5I_INVALID_HID;
    }
    vt_hdf5_enter();
    vt_status status = create_all(file, options);
    vt_hdf5_leave();
    if (status != VT_OK) vt_forecast_file_close(&file);
    *result = file;
    return status;
}

static vt_status write_inside(vt_forecast_file *file, int64_t start_index, int64_t member, int64_t time,
                              const float *fields)
{
    vt_status status = VT_OK;
    const variable_kind kind = member == VT_FORECAST_MEAN ? MEANS : member == VT_FORECAST_STD ? STDS : VALUES;
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
    hid_t memory = H5Screate_simple(dimensions, count, NULL);
    for (int64_t c = 0; c < file->channels; c++) {
        hid_t variable = file->variables[kind][c], space = H5Dget_space(variable);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        herr_t written = H5Dwrite(variable, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, fields + c * plane);
        H5Sclose(space);
        VT_CHECK(written >= 0, "can't write time %lld of %s: %s", (long long)time, file->path, vt_hdf5_reason());
    }
    file->written++;
done:
    H5Sclose(memory);
    return status;
}

vt_status vt_forecast_file_write(vt_forecast_file *file, int64_t start, int64_t member, int64_t time,
                                 const float *fields)
{
    vt_hdf5_enter();
    vt_status status = write_inside(file, start, member, time, fields);
    vt_hdf5_leave();
    return status;
}

/* True if everything that HDF5 still held was written. */
static bool close_handles(vt_forecast_file *file)
{
    bool done = true;
    vt_hdf5_enter();
    for (int64_t i = 0; i < KINDS * file->channels; i++) {
        const hid_t variable = file->variables[i / file->channels][i % file->channels];
        if (variable >= 0) done = H5Dclose(variable) >= 0 && done;
    }
    for (int i = 0; i < DIMENSIONS; i++)
        if (file->scales[i] >= 0) done = H5Dclose(file->scales[i]) >= 0 && done;
    if (file->file >= 0) done = H5Fclose(file->file) >= 0 && done;
    file->file = H5I_INVALID_HID;
    file->channels = 0;
    for (int i = 0; i < DIMENSIONS; i++) file->scales[i] = H5I_INVALID_HID;
    vt_hdf5_leave();
    return done;
}

vt_status vt_forecast_file_finish(vt_forecast_file **file)
{
    vt_status status = VT_OK;
    const int64_t members = (*file)->extent[NUMBER], leads = (*file)->extent[LEAD];
    const int64_t fields = leads > 0 ? (members > 0 ? members : 1) * leads : members > 0 ? members + 1 : 1;
    const int64_t stds = !(*file)->has_stds ? 0 : leads > 0 ? leads : (*file)->extent[TIME];
    VT_ASSERT((*file)->written == (*file)->extent[TIME] * fields + stds);
    VT_CHECK(close_handles(*file), "can't write %s: %s", (*file)->path, vt_hdf5_reason());
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
    close_handles(*file);
    if ((*file)->partial != NULL) unlink((*file)->partial);
    free((*file)->partial);
    free((*file)->path);
    for (int kind = 0; kind < KINDS; kind++) free((*file)->variables[kind]);
    free(*file);
    *file = NULL;
}
