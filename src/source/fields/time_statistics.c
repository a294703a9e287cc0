#include "source/fields/time_statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/statistics.h"
#include "storage/npy.h"

static const char purpose[] = "the statistics of times";

struct vt_time_statistics {
    int64_t dt;
    vt_seasonal_fit_options shape;
    vt_statistics *changes;
    float *recent;               /* [dt, channels, height, width]: the last times, a ring */
    int64_t in_row;              /* times that have followed one another up to the last one */
    vt_seasonal_fit *change_fit; /* to the changes; NULL as below */
    vt_seasonal_fit *fit;        /* NULL: the times of some fields are not known */
    vt_seasonal_fit *value_fit;  /* in the units of the data; NULL likewise, and where no channel is transformed */
    char *undated;               /* the file that says no date */
    bool assumed;                /* some file doesn't say how far apart its times are */
    int64_t step;                /* between times, a length (calendar.h); 0: not known yet */
    bool dated;                  /* the last time */
    vt_date last;
};

vt_time_statistics *vt_time_statistics_open(int64_t dt, const vt_seasonal_fit_options *shape, bool assumed,
                                            const char *undated)
{
    vt_time_statistics *statistics = vt_allocate(1, sizeof *statistics, purpose);
    *statistics = (vt_time_statistics){.dt = dt, .shape = *shape, .assumed = assumed};
    if (undated != NULL) statistics->undated = vt_text_copy(undated);
    statistics->fit = vt_seasonal_fit_open(shape);
    statistics->change_fit = vt_seasonal_fit_open(shape);
    return statistics;
}

void vt_time_statistics_close(vt_time_statistics **pointer)
{
    vt_time_statistics *statistics = *pointer;
    if (statistics == NULL) return;
    *pointer = NULL;
    vt_statistics_close(&statistics->changes);
    vt_seasonal_fit_close(&statistics->fit);
    vt_seasonal_fit_close(&statistics->change_fit);
    vt_seasonal_fit_close(&statistics->value_fit);
    free(statistics->recent);
    free(statistics->undated);
    free(statistics);
}

/* ---- changes ---- */

static vt_status add_change(vt_time_statistics *statistics, const vt_date *date, const float *fields)
{
    vt_status status = VT_OK;
    const int64_t dt = statistics->dt,
                  values = statistics->shape.channels * statistics->shape.height * statistics->shape.width;
    if (statistics->changes == NULL) {
        statistics->changes =
            vt_statistics_open(statistics->shape.channels, statistics->shape.height, statistics->shape.width);
        statistics->recent = calloc((size_t)(dt * values), sizeof(float));
        VT_CHECK(statistics->recent != NULL, "out of memory for the last %ld times; a smaller --dt needs less", dt);
    }
    float *oldest = statistics->recent + (statistics->in_row % dt) * values;
    if (statistics->in_row >= dt) {
        for (int64_t i = 0; i < values; i++) oldest[i] = fields[i] - oldest[i];
        vt_statistics_add(statistics->changes, oldest);
        if (statistics->fit != NULL && date != NULL) VT_TRY(vt_seasonal_fit_add(statistics->change_fit, *date, oldest));
    }
    memcpy(oldest, fields, (size_t)values * sizeof *oldest);
    statistics->in_row++;
done:
    return status;
}

/* Does the date come one step after the last one? Files of one time each don't say how far apart they are; the first
 * two do. */
static bool comes_next(vt_time_statistics *statistics, vt_date date, int64_t step)
{
    if (step > 0) statistics->step = step;
    if (statistics->step == 0) statistics->step = vt_date_apart(statistics->last, date);
    return statistics->step > 0 && vt_date_steps(statistics->last, date, statistics->step) == 1;
}

vt_status vt_time_statistics_add(vt_time_statistics *statistics, const vt_date *date, int64_t step, bool begins,
                                 const float *fields)
{
    vt_status status = VT_OK;
    if (begins && !(date != NULL && statistics->dated && comes_next(statistics, *date, step))) statistics->in_row = 0;
    if (date == NULL) vt_seasonal_fit_close(&statistics->fit);
    VT_TRY(add_change(statistics, date, fields));
    if (statistics->fit != NULL && date != NULL) VT_TRY(vt_seasonal_fit_add(statistics->fit, *date, fields));
    statistics->dated = date != NULL;
    if (date != NULL) statistics->last = *date;
done:
    return status;
}

vt_status vt_time_statistics_add_values(vt_time_statistics *statistics, const vt_date *date, const float *values)
{
    if (date == NULL || statistics->fit == NULL) return VT_OK;
    if (statistics->value_fit == NULL) statistics->value_fit = vt_seasonal_fit_open(&statistics->shape);
    return vt_seasonal_fit_add(statistics->value_fit, *date, values);
}

/* ---- the files ---- */

double vt_time_statistics_change_std(const vt_time_statistics *statistics, int64_t channel)
{
    return statistics->changes != NULL ? vt_statistics_std(statistics->changes, channel) : (double)NAN;
}

static vt_status write_changes(const vt_time_statistics *statistics, const char *path, vt_text *notes)
{
    vt_status status = VT_OK;
    const int64_t channels = statistics->shape.channels, shape[4] = {1, channels, 1, 1};
    const bool any = statistics->changes != NULL && statistics->changes->times > 0;
    float *stds = vt_allocate((size_t)channels + 1, sizeof *stds, purpose);
    for (int64_t c = 0; c < channels && any; c++) stds[c] = (float)vt_time_statistics_change_std(statistics, c);
    if (any) {
        VT_TRY(vt_npy_write(path, stds, shape, 4));
        vt_text_append(notes, "time_diff_stds.npy: the changes over %ld time%s of the files, of %ld pairs of times\n",
                       statistics->dt, statistics->dt == 1 ? "" : "s", statistics->changes->times);
    } else {
        unlink(path);
        vt_text_append(notes, "no time_diff_stds.npy: no two times of these files are %ld apart\n", statistics->dt);
    }
done:
    free(stds);
    return status;
}

static vt_status write_climatology(vt_time_statistics *statistics, const char *path, const vt_fields_about *about,
                                   vt_text *notes)
{
    vt_status status = VT_OK;
    char *summary = NULL;
    if (statistics->fit == NULL) {
        unlink(path);
        vt_text_append(notes, "no climatology.h5: %s says no date, neither by a time coordinate nor by its name\n",
                       statistics->undated != NULL ? statistics->undated : "a file");
        goto done;
    }
    VT_TRY(
        vt_seasonal_fit_write(statistics->fit, statistics->change_fit, statistics->value_fit, about, path, &summary));
    vt_text_append(notes, "climatology.h5: %s%s\n", summary,
                   statistics->assumed ? "; a time every 6 h is assumed, as the files don't say it (--time_step=24h "
                                         "would say another)"
                                       : "");
done:
    free(summary);
    return status;
}

vt_status vt_time_statistics_write(vt_time_statistics *statistics, const char *directory, const vt_fields_about *about,
                                   char **result)
{
    vt_status status = VT_OK;
    vt_text notes = {0};
    char *changes = vt_text_format("%s/time_diff_stds.npy", directory);
    char *climatology = vt_text_format("%s/climatology.h5", directory);
    *result = NULL;
    VT_TRY(write_changes(statistics, changes, &notes));
    VT_TRY(write_climatology(statistics, climatology, about, &notes));
    *result = vt_text_copy(notes.characters);
done:
    vt_text_close(&notes);
    free(changes);
    free(climatology);
    return status;
}
