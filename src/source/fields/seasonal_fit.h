/* Fits the seasonal climatology (seasonal.h) to fields that come one time after another: least squares for each time of
 * day, channel and grid point. Only the sums of the normal equations are kept, in float64, so memory does not depend on
 * how many times there are: 8 S (1 + 2 H) bytes for each channel and point, and with missing values 8 S (1 + H) (1 + 2
 * H) more. */
#ifndef VT_SOURCE_FIELDS_SEASONAL_FIT_H
#define VT_SOURCE_FIELDS_SEASONAL_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/about.h"

typedef struct {
    int64_t channels, height, width;
    int64_t harmonics; /* 0 to VT_SEASONAL_HARMONICS */
    bool masked;       /* values may be missing (NaN): every point then has normal equations of its own */
} vt_seasonal_fit_options;

typedef struct vt_seasonal_fit vt_seasonal_fit;

vt_seasonal_fit *vt_seasonal_fit_open(const vt_seasonal_fit_options *options);
void vt_seasonal_fit_close(vt_seasonal_fit **fit);

/* Takes in the fields of one time, [channels, height, width]. The error: out of memory for a new time of day. */
vt_status vt_seasonal_fit_add(vt_seasonal_fit *fit, vt_date date, const float *fields);

/* Solves the equations and writes the file, which appears whole or not at all; at least one time was added. `changes`
 * (or NULL) is a fit to x(t + dt) - x(t), each added at the later time: what their own seasonal climatology leaves is
 * the change of the departures. `values` (or NULL) is a fit to the same times in the units of the data, where `fit` is
 * to what transforms made of them. Times that are more than a day apart share one climatology for any time of day. If
 * the times of a time of day leave more than 32 days of the year without one, as a set of less than a year does,
 * harmonics can't be told from the weather: then only means are written. *summary (malloc'd) is a clause that says what
 * was fitted. about: describes the data, and is kept in the file; the fields cover its window. NULL: not known. */
vt_status vt_seasonal_fit_write(vt_seasonal_fit *fit, vt_seasonal_fit *changes, vt_seasonal_fit *values,
                                const vt_fields_about *about, const char *path, char **summary);

#endif
