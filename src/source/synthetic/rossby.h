/* Rossby-Haurwitz waves: exact travelling solutions of the barotropic vorticity equation on a rotating sphere
 * (Haurwitz, J. Mar. Res. 3, 1940; Holton, An Introduction to Dynamic Meteorology). One wave is the spherical harmonic
 * of degree n and order m as a stream function, psi = A P(n, m; sin latitude) cos(m longitude - phase), on an
 * atmosphere that rotates as a solid body with the zonal angular speed w0 relative to the Earth. It keeps its shape and
 * moves round the axis with the angular speed w0 - 2 (Omega + w0) / (n (n + 1)). */
#ifndef VT_SOURCE_SYNTHETIC_ROSSBY_H
#define VT_SOURCE_SYNTHETIC_ROSSBY_H

#include <stdint.h>

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

#endif
