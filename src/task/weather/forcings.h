/* Forcings: fields that are known for every time and place, which a model sees beside the data and never forecasts. All
 * are numbers of about 1, made for the input's newest time t:
 *
 *   sin_year, cos_year  of 2π times the part of the calendar's year that is over at t; the same everywhere
 *   sin_day, cos_day    of 2π times the part of the day (UTC) that is over at t; the same everywhere
 *   cos_zenith          the sun's height: the cosine of its zenith angle, 0 where it is below the horizon, as the mean
 *                       over the coming step, from t to t + dt. Declination and equation of time after Spencer 1971,
 *                       "Fourier series representation of the position of the sun". It is taken off its mean over the
 *                       sphere, 1/4, and divided by its standard deviation there, √(5/48)
 *   sin_lat … cos_lon   of the grid point's coordinates */
#ifndef VT_TASK_WEATHER_FORCINGS_H
#define VT_TASK_WEATHER_FORCINGS_H

#include "config/roles.h"
#include "task/weather/calendar.h"

/* Does it change from time to time? Does it need the grid's latitudes, its longitudes? */
bool vt_forcing_changes(vt_forcing forcing);
bool vt_forcing_needs_latitudes(vt_forcing forcing);
bool vt_forcing_needs_longitudes(vt_forcing forcing);

/* field [rows, width] of the grid with these latitudes [rows] and longitudes [width] in degrees, which may be NULL
 * where they are not needed. step: the length of dt (calendar.h). */
void vt_forcing_field(vt_forcing forcing, vt_date date, int64_t step, const double *latitudes, int64_t rows,
                      const double *longitudes, int64_t width, float *field);

/* Of the sun at a time, in radians, where `year` is vt_date_of_year: its declination, and its hour
 * angle at longitude 0 less that of the mean sun (the equation of time). */
double vt_sun_declination(double year);
double vt_sun_equation_of_time(double year);

#endif
