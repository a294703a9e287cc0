/* What a channel's name stands for: the names and units of the CF conventions (https://cfconventions.org, standard name
 * table), for those of the tutorials' data set and others made like them. */
#ifndef VT_TASK_WEATHER_CHANNELS_H
#define VT_TASK_WEATHER_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "task/weather/transforms.h"

/* CF's attributes of a channel; "": the file has none. `transform`: what its values become (vt_transform_name). */
typedef struct {
    char units[64], standard_name[96], long_name[160], cell_methods[96], level_units[32], transform[VT_TRANSFORM_SIZE];
    bool has_level;
    double level; /* by the coordinate of levels, pressures in hPa */
} vt_channel_meaning;

typedef struct {
    const char *standard_name; /* NULL: not known */
    const char *units;         /* "" when not known */
    char long_name[160];       /* "temperature at 850 hPa"; the channel's own name when it is not known */
    double height, pressure;   /* at which it is: m, hPa; 0: not known, or none */
} vt_variable;

/* "t850", "z500", "u10", "air_sig995", …; nothing is known of other names. */
vt_variable vt_variable_of(const char *name);

/* Other names of a variable, without levels, in the files of ECMWF, Copernicus and WeatherBench 2 (t2m, 2t,
 * 2m_temperature), ended by NULL, perhaps with its own among them; NULL: none are known. */
const char *const *vt_variable_aliases(const char *name);

/* Does the sign of the values mean something, as of a wind's components? (Chooses the colours.) A known variable's kind
 * tells; otherwise the values [count] must reach at least half as far to one side of 0 as to the other. */
bool vt_variable_is_signed(const char *name, const float *values, int64_t count);

/* The same, but what the files say comes first: then only the standard name follows from the name, if its units are
 * those of the file. Points to texts of `said`. */
vt_variable vt_variable_described(const char *name, const vt_channel_meaning *said);

#endif
