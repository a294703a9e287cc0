/* A synthetic atmosphere: twenty channels of realistic units and sizes that can be forecast, for machines without real
 * data. Its weather is a superposition of Rossby-Haurwitz waves (rossby.h), tilted westward with height, in balance
 * with their winds, temperatures and moisture; on top of a zonal flow in thermal wind balance, seasons, a diurnal cycle
 * over land, mountains, and a little noise. docs/data.md has the formulas. Every value depends on (seed, grid, channel,
 * time step) alone. */
#ifndef VT_SOURCE_SYNTHETIC_SYNTHETIC_H
#define VT_SOURCE_SYNTHETIC_SYNTHETIC_H

#include <stdint.h>

#include "source/synthetic/rossby.h"

enum { VT_SYNTHETIC_STEPS_PER_DAY = 4 };

/* Angular speed (1/s) of the flow that carries the waves: 45 m/s at the equator. */
#define VT_SYNTHETIC_ZONAL_SPEED (45.0 / VT_EARTH_RADIUS)

typedef struct {
    int64_t height, width; /* rows from 90 to -90 degrees, both included; columns from 0 degrees east, evenly */
    int64_t channels;      /* the first so many of vt_climate_channels */
    uint64_t seed;
    double noise;                /* standard deviation of the noise, in parts of a channel's own */
    const vt_rossby_wave *waves; /* NULL: vt_rossby_spectrum(seed); orders up to VT_ROSSBY_ORDERS */
    int64_t wave_count;
} vt_synthetic_options;

typedef struct vt_synthetic vt_synthetic;

vt_synthetic *vt_synthetic_open(const vt_synthetic_options *options);
void vt_synthetic_close(vt_synthetic **synthetic);

double vt_synthetic_latitude(int64_t height, int64_t row); /* degrees */
double vt_synthetic_longitude(int64_t width, int64_t column);

/* fields [channels, height, width] at time step `step`, 6 hours each, counted from a first of January, 00 UTC. */
void vt_synthetic_fields(vt_synthetic *synthetic, int64_t step, float *fields);

#endif
