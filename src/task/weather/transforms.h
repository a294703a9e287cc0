/* What the values of a channel become on their way to the model (option `transform`), and between which values its
 * forecasts stay (`bounds`):
 *
 *   log1p(e)   y = log(1 + max(x, 0) / e)    Rasp and Thuerey 2021, doi:10.1029/2020MS002405, for precipitation
 *   log(e)     y = log(max(x, e))
 *   sqrt       y = √max(x, 0)
 *
 * Backwards, where a forecast may be below all y: e (exp(y) - 1), exp(y), y |y|. */
#ifndef VT_TASK_WEATHER_TRANSFORMS_H
#define VT_TASK_WEATHER_TRANSFORMS_H

#include <stdint.h>

#include "base/status.h"

typedef enum { VT_TRANSFORM_NONE, VT_TRANSFORM_LOG1P, VT_TRANSFORM_LOG, VT_TRANSFORM_SQRT } vt_transform_function;

typedef struct {
    vt_transform_function function;
    double e;
    double bounds[2]; /* in the units of the data; infinite: there is none */
} vt_transform;

/* Of "[tp=log1p(1e-5), q@850=sqrt]" and "[tp=[0, inf]]", NULL: nothing; of the channels of these names, or, without
 * names, by their numbers. *transforms [channels], malloc'd; NULL where both texts are. Errors name the option: a
 * channel that isn't there or comes twice, an unknown function, a bad parameter, bounds that are out of order. */
vt_status vt_transforms_parse(const char *transform, const char *bounds, const char *const *names, int64_t channels,
                              vt_transform **transforms);

/* "log1p(1e-05)"; "": none. */
enum { VT_TRANSFORM_SIZE = 40 };
const char *vt_transform_name(const vt_transform *transform, char name[VT_TRANSFORM_SIZE]);

/* y of an x; an infinite one, a bound that is none, stays. */
double vt_transform_value(const vt_transform *transform, double x);

/* fields [channels, points], in place: from the units of the data, and back into them, within the bounds. What is
 * missing (NaN), or too large for data (VT_LARGEST_VALUE), stays on its way in. transforms NULL: nothing changes. */
void vt_transforms_apply(const vt_transform *transforms, int64_t channels, int64_t points, float *fields);
void vt_transforms_invert(const vt_transform *transforms, int64_t channels, int64_t points, float *fields);

#endif
