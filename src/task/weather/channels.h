/* What a channel's name stands for: the names and units of the CF conventions (https://cfconventions.org, standard name
 * table), for those of the tutorials' data set and others made like them. */
#ifndef VT_TASK_WEATHER_CHANNELS_H
#define VT_TASK_WEATHER_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* What a file says of a channel, "" where it doesn't: CF's attributes of that name. */
typedef struct {
    char units[64], standard_name[96], long_name[160];
} vt_channel_meaning;

typedef struct {
    const char *standard_name; /* NULL: not known */
    const char *units;         /* "" when not known */
    char long_name[160];       /* "temperature at 850 hPa"; the channel's own name when it is not known */
} vt_variable;

/* "t850", "z500", "u10", "air_sig995", …; any other name gives what is not known. */
vt_variable vt_variable_of(const char *name);

/* Does 0 part two kinds of values, as it parts the directions of a wind? Of a variable that is known, its kind says so;
 * of another, values [count] that reach about as far below 0 as above (half as far at least). */
bool vt_variable_is_signed(const char *name, const float *values, int64_t count);

/* The same where the files say it themselves: then nothing is taken from the name but a standard name whose units are
 * those of the file. Texts of `said` are pointed to. */
vt_variable vt_variable_described(const char *name, const vt_channel_meaning *said);

#endif
