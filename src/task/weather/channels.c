#include "task/weather/channels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name, *standard_name, *units, *long_name;
    double height;
} known_variable;

/* A single letter is followed by a pressure in hPa, as in "t850", unless a name before it is meant, as by "u10". */
static const known_variable known_variables[] = {
    {"u10", "eastward_wind", "m s-1", "eastward wind at 10 m", 10},
    {"u10m", "eastward_wind", "m s-1", "eastward wind at 10 m", 10},
    {"v10", "northward_wind", "m s-1", "northward wind at 10 m", 10},
    {"v10m", "northward_wind", "m s-1", "northward wind at 10 m", 10},
    {"t2m", "air_temperature", "K", "temperature at 2 m", 2},
    {"sp", "surface_air_pressure", "Pa", "surface pressure", 0},
    {"msl", "air_pressure_at_mean_sea_level", "Pa", "pressure at mean sea level", 0},
    {"mslp", "air_pressure_at_mean_sea_level", "Pa", "pressure at mean sea level", 0},
    {"tcwv", "atmosphere_mass_content_of_water_vapor", "kg m-2", "total column of water vapour", 0},
    {"tp", "lwe_thickness_of_precipitation_amount", "m", "total precipitation", 0},
    {"sst", "sea_surface_temperature", "K", "sea surface temperature", 0},
    {"air_sig995", "air_temperature", "K", "temperature at sigma level 0.995", 0},
    {"u", "eastward_wind", "m s-1", "eastward wind", 0},
    {"v", "northward_wind", "m s-1", "northward wind", 0},
    {"t", "air_temperature", "K", "temperature", 0},
    {"z", "geopotential", "m2 s-2", "geopotential", 0},
    {"r", "relative_humidity", "%", "relative humidity", 0},
    {"q", "specific_humidity", "1", "specific humidity", 0},
    {"w", "lagrangian_tendency_of_air_pressure", "Pa s-1", "vertical velocity", 0},
};

vt_variable vt_variable_of(const char *name)
{
    vt_variable variable = {NULL, "", "", 0, 0};
    const size_t digits = name[0] != '\0' ? strspn(name + 1, "0123456789") : 0;
    const int level = digits > 0 && digits <= 4 && name[1 + digits] == '\0' ? atoi(name + 1) : 0;
    for (size_t i = 0; i < sizeof known_variables / sizeof known_variables[0]; i++) {
        const known_variable *known = &known_variables[i];
        const bool on_level = known->name[1] == '\0';
        if (on_level ? level == 0 || name[0] != known->name[0] : strcmp(name, known->name) != 0) continue;
        variable = (vt_variable){known->standard_name, known->units, "", known->height, on_level ? level : 0};
        snprintf(variable.long_name, sizeof variable.long_name, on_level ? "%s at %d hPa" : "%s", known->long_name,
                 level);
        return variable;
    }
    snprintf(variable.long_name, sizeof variable.long_name, "%s", name);
    return variable;
}

bool vt_variable_is_signed(const char *name, const float *values, int64_t count)
{
    static const char *const kinds[] = {"eastward_wind", "northward_wind", "lagrangian_tendency_of_air_pressure"};
    const char *standard_name = vt_variable_of(name).standard_name;
    double low = 0, high = 0;
    for (size_t i = 0; standard_name != NULL && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(standard_name, kinds[i]) == 0) return true;
    if (standard_name != NULL) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        low = fmin(low, (double)values[i]);
        high = fmax(high, (double)values[i]);
    }
    return low < 0 && high > 0 && fmin(-low, high) >= 0.5 * fmax(-low, high);
}

vt_variable vt_variable_described(const char *name, const vt_channel_meaning *said)
{
    vt_variable variable = vt_variable_of(name);
    if (said->has_level) variable.pressure = said->level;
    if (said->units[0] == '\0' && said->standard_name[0] == '\0' && said->long_name[0] == '\0') return variable;
    const bool same_units = strcmp(variable.units, said->units) == 0;
    variable.units = said->units;
    if (said->standard_name[0] != '\0')
        variable.standard_name = said->standard_name;
    else if (!same_units)
        variable.standard_name = NULL;
    if (said->long_name[0] != '\0')
        snprintf(variable.long_name, sizeof variable.long_name, "%s", said->long_name);
    else if (!same_units)
        snprintf(variable.long_name, sizeof variable.long_name, "%s", name);
    return variable;
}

const char *const *vt_variable_aliases(const char *name)
{
    static const char *const groups[][6] = {
        {"u10", "10u", "u10m", "10m_u_component_of_wind", NULL},
        {"v10", "10v", "v10m", "10m_v_component_of_wind", NULL},
        {"u100", "100u", "u100m", "100m_u_component_of_wind", NULL},
        {"v100", "100v", "v100m", "100m_v_component_of_wind", NULL},
        {"t2m", "2t", "2m_temperature", NULL},
        {"d2m", "2d", "2m_dewpoint_temperature", NULL},
        {"sp", "surface_pressure", NULL},
        {"msl", "mslp", "mean_sea_level_pressure", NULL},
        {"tcwv", "total_column_water_vapour", NULL},
        {"tcc", "total_cloud_cover", NULL},
        {"tp", "total_precipitation", NULL},
        {"tp6h", "total_precipitation_6hr", NULL},
        {"sst", "sea_surface_temperature", NULL},
        {"siconc", "ci", "sea_ice_cover", NULL},
        {"sd", "snow_depth", NULL},
        {"skt", "skin_temperature", NULL},
        {"tisr", "toa_incident_solar_radiation", NULL},
        {"lsm", "land_sea_mask", NULL},
        {"zs", "geopotential_at_surface", NULL},
        {"u", "u_component_of_wind", NULL},
        {"v", "v_component_of_wind", NULL},
        {"t", "temperature", NULL},
        {"z", "geopotential", NULL},
        {"r", "relative_humidity", NULL},
        {"q", "specific_humidity", NULL},
        {"w", "vertical_velocity", NULL},
        {"vo", "vorticity", NULL},
        {"d", "divergence", NULL},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (int n = 0; groups[i][n] != NULL; n++)
            if (strcmp(groups[i][n], name) == 0) return groups[i];
    return NULL;
}
