/* How much of the fields' variance lies at which wavelength: zonal power spectra of forecasts and of what came, by
 * channel and lead time. A forecast that has less power than the truth at short waves is blurred.
 *
 * A row x_j of W points has the power P_m = 2 |X_m|^2 / W^2 at zonal wavenumber m = 1 … W / 2 (half of that at m = W /
 * 2 of an even W), X its discrete Fourier transform; the sum over m is the row's variance. Means over the rows with
 * weights cos(lat), then over the initial times. Rows of a window that doesn't go round the globe first lose the line
 * through their ends (Errico 1985, "Spectra computed from a limited area grid", Mon. Wea. Rev. 113), whose jump would
 * look like short waves; m then counts the waves in the window's width. Rows with a missing value in either field count
 * for nothing. */
#ifndef VT_TASK_WEATHER_SPECTRA_H
#define VT_TASK_WEATHER_SPECTRA_H

#include <stdbool.h>
#include <stdint.h>

#include "task/weather/scores.h"

/* To be closed by vt_scores_close. */
void vt_spectra_open(const vt_scores_options *options, vt_scores **spectra);

/* Adds one initial time at a lead: fields [channels, height, width]. */
void vt_spectra_add(vt_scores *spectra, int64_t lead, const float *forecast, const float *target);

/* Mean power at wavenumber m, from 1 to half of the width; NaN where no row is complete. */
double vt_spectra_power(const vt_scores *spectra, int64_t lead, int64_t channel, int64_t wave, bool of_target);

/* channel,lead_hours,wavenumber,power_forecast,power_target,ratio: a row for each; in the last column the lead in its
 * own unit where that is neither hours nor days. */
vt_status vt_spectra_write(const vt_scores *spectra, const char *path);

#endif
