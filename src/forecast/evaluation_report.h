/* What `vitrain evaluate` shows: a table on the terminal, and maps. */
#ifndef VT_FORECAST_EVALUATION_REPORT_H
#define VT_FORECAST_EVALUATION_REPORT_H

#include <stdbool.h>

#include "task/weather/calendar.h"
#include "task/weather/scores.h"

/* Prints a line for each channel and lead time: the first one, 1, 3 and 5 days, and the last one. */
void vt_scores_print(const vt_scores *scores, const char *const *channel_names, const vt_variable *variables,
                     int64_t leads, int64_t channels, int64_t hours_a_step);

/* Writes loss.csv: one row, with the training's loss over the samples of "valid" or "test". */
vt_status vt_loss_write(const char *path, const char *split, int64_t samples, double loss);

typedef struct {
    const char *directory, *channel, *units;
    bool dated;
    vt_date from;          /* the initial time, if dated */
    int64_t length_a_step; /* calendar.h: months are the calendar's */
    int64_t hours_a_step, steps;
    int64_t height, width;
    const double *latitudes, *longitudes; /* [height], [width]; NULL: not known */
} vt_maps;

/* Removes the maps of an earlier evaluation. */
void vt_maps_clear(const char *directory);

/* Draws target, forecast and their difference, [height, width], into <directory>/map-<channel>-<hours>h.png, if the
 * lead time (0 for the first) is one that the table shows. */
vt_status vt_maps_draw(const vt_maps *maps, int64_t lead, const float *target, const float *forecast);

#endif
