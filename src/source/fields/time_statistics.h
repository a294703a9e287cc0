/* The statistics that need to know when fields are: the spread of their changes over time, and the seasonal climatology
 * (source/fields/seasonal.h). */
#ifndef VT_SOURCE_FIELDS_TIME_STATISTICS_H
#define VT_SOURCE_FIELDS_TIME_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/about.h"
#include "source/fields/seasonal_fit.h"

typedef struct vt_time_statistics vt_time_statistics;

/* Of the changes x(t + dt) - x(t), dt in times of the files; `shape` is of the climatology. For what
 * vt_time_statistics_write says: some files don't say how far apart their times are, which are taken to be 6 hours
 * (assumed); a file says no date (undated; NULL: each says one). */
vt_time_statistics *vt_time_statistics_open(int64_t dt, const vt_seasonal_fit_options *shape, bool assumed,
                                            const char *undated);
void vt_time_statistics_close(vt_time_statistics **statistics);

/* Takes in the fields [channels, height, width] of the next time. date: NULL where it is not known; there is then no
 * climatology. step: length (calendar.h) between two times, 0 where it is not known. Where a new piece `begins`, as a
 * file does, the dates alone say whether this time comes one step after the one before. */
vt_status vt_time_statistics_add(vt_time_statistics *statistics, const vt_date *date, int64_t step, bool begins,
                                 const float *fields);

/* Where channels are transformed: the same time in the units of the data, before. climatology.h5 then has both. */
vt_status vt_time_statistics_add_values(vt_time_statistics *statistics, const vt_date *date, const float *values);

/* Of the changes, over all times and points; NaN where no two times are dt apart. */
double vt_time_statistics_change_std(const vt_time_statistics *statistics, int64_t channel);

/* Writes time_diff_stds.npy ([1, C, 1, 1]) and climatology.h5 into `directory`. Where one of them can't be made from
 * these times, a file of that name is removed, as it would belong to other data. *notes (malloc'd): a line for each
 * file, that says what it holds or why there is none. about: the data, which the climatology keeps; NULL: not known. */
vt_status vt_time_statistics_write(vt_time_statistics *statistics, const char *directory, const vt_fields_about *about,
                                   char **notes);

#endif
