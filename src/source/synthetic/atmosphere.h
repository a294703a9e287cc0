/* A synthetic atmosphere: twenty channels of realistic units and sizes that can be forecast, for machines without real
 * data. Its weather is a superposition of Rossby-Haurwitz waves (rossby.c), tilted westward with height, in balance
 * with their winds, temperatures and moisture (climate.c); on top of a zonal flow in thermal wind balance, seasons, a
 * diurnal cycle over land, mountains, and a little noise (synthetic.c). docs/data.md has the formulas. Every value
 * depends on (seed, grid, channel, time step) alone. */
#ifndef VT_SOURCE_SYNTHETIC_ATMOSPHERE_H
#define VT_SOURCE_SYNTHETIC_ATMOSPHERE_H

#include <complex.h>
#include <stdint.h>

/* ---- waves ---- */

/* Rossby-Haurwitz waves: exact travelling solutions of the barotropic vorticity equation on a rotating sphere
 * (Haurwitz, J. Mar. Res. 3, 1940; Holton, An Introduction to Dynamic Meteorology). One wave is the spherical harmonic
 * of degree n and order m as a stream function, psi = A P(n, m; sin latitude) cos(m longitude - phase), on an
 * atmosphere that rotates as a solid body with the zonal angular speed w0 relative to the Earth. It keeps its shape and
 * moves round the axis with the angular speed w0 - 2 (Omega + w0) / (n (n + 1)). */
#define VT_EARTH_RADIUS 6.371e6    /* m */
#define VT_EARTH_ROTATION 7.292e-5 /* 1/s */

typedef struct {
    int degree, order; /* n >= m >= 1 */
    double amplitude;  /* of the stream function, m^2/s */
    double phase;      /* at time 0 */
    /* the amplitude is multiplied by 1 + swing cos(2 pi time / period + swing_phase); period in seconds */
    double swing, period, swing_phase;
} vt_rossby_wave;

/* What a wave of stream function P(sin latitude) cos(m longitude - phase), of amplitude 1, brings to other fields:
 * profile(latitude) cos(m longitude - phase), but -profile(latitude) sin(m longitude - phase) for the northward wind.
 */
typedef enum {
    VT_ROSSBY_EASTWARD,     /* u = -(1/a) d psi / d latitude, 1/m */
    VT_ROSSBY_NORTHWARD,    /* v = 1/(a cos latitude) d psi / d longitude, 1/m */
    VT_ROSSBY_GEOPOTENTIAL, /* linear balance: laplace(Phi) = div(f grad psi), 1/s */
    VT_ROSSBY_STREAM,
    VT_ROSSBY_PROFILES
} vt_rossby_profile;

/* All profiles of (n, m) at one latitude (radians; not quite a pole), for harmonics of mean square 1 over a meridian's
 * sine: the integral of P^2 over sin(latitude) from -1 to 1 is 2. */
void vt_rossby_profiles(int degree, int order, double latitude, double profiles[VT_ROSSBY_PROFILES]);

/* Phase and amplitude at `seconds`. */
double vt_rossby_phase(const vt_rossby_wave *wave, double zonal_speed, double seconds);
double vt_rossby_amplitude(const vt_rossby_wave *wave, double seconds);

/* A spectrum of waves like that of weather: orders 1 … 10, seven degrees each, strongest at the order of cyclones (5)
 * and in middle latitudes. Amplitudes, phases and swings depend on the seed; their winds together have the root mean
 * square `wind` (m/s) over the sphere. */
enum { VT_ROSSBY_ORDERS = 10, VT_ROSSBY_WAVES = VT_ROSSBY_ORDERS * 7 };
void vt_rossby_spectrum(uint64_t seed, double wind, vt_rossby_wave waves[VT_ROSSBY_WAVES]);

/* ---- channels ---- */

/* The twenty channels of the synthetic atmosphere: what a wave makes of each (vertical structure, balance), and what
 * does not vary with longitude (zonal flow in thermal wind balance, seasons). Formulas in docs/data.md. */
typedef enum {
    VT_WIND_EAST,
    VT_WIND_NORTH,
    VT_TEMPERATURE,
    VT_GEOPOTENTIAL,
    VT_PRESSURE,
    VT_HUMIDITY,
    VT_WATER
} vt_quantity;

typedef struct {
    const char *name;
    vt_quantity quantity;
    double pressure;  /* hPa */
    double reference; /* at the equator, without waves */
    double spread;    /* about the standard deviation, which the noise is a part of */
} vt_climate_channel;

enum { VT_CLIMATE_CHANNELS = 20 };

/* u10 v10 t2m sp msl t850 u1000 v1000 z1000 u850 v850 z850 u500 v500 z500 t500 z50 r500 r850 tcwv: the order of the
 * tutorials' data set. Winds m/s, temperatures K, pressures Pa, geopotentials m^2/s^2, humidities %, water kg/m^2. */
extern const vt_climate_channel vt_climate_channels[VT_CLIMATE_CHANNELS];

/* What a wave's profile (of the quantity: the wind's for winds, the geopotential's for all others) is multiplied by;
 * the argument is a phase. 0 for water, which follows from others. */
complex double vt_climate_response(const vt_climate_channel *channel, int order);

/* The value without waves at a latitude (radians), `days` after a first of January. */
double vt_climate_zonal_value(const vt_climate_channel *channel, double latitude, double days);

/* 1 in northern winter, -1 in summer. */
double vt_climate_winter(double days);

/* ---- fields ---- */

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
