#include "source/synthetic/atmosphere.h"

#include <math.h>

#include "base/random.h"
#include "base/status.h"

/* The factor of the recurrences between neighbouring degrees: mu P(n) = e(n+1) P(n+1) + e(n) P(n-1). */
static double epsilon(int degree, int order)
{
    double n = degree, m = order;
    return sqrt((n * n - m * m) / (4 * n * n - 1));
}

/* P of the degrees degree - 1, degree, degree + 1 (0 below `order`), by the recurrence from P(m, m) up. */
static void legendre(int degree, int order, double latitude, double values[3])
{
    const double mu = sin(latitude);
    double below = 0, here = 1;
    for (int m = 1; m <= order; m++) here *= sqrt((2.0 * m + 1) / (2.0 * m)) * cos(latitude);
    values[0] = values[1] = values[2] = 0;
    for (int n = order;; n++) {
        if (n == degree - 1) values[0] = here;
        if (n == degree) values[1] = here;
        if (n == degree + 1) {
            values[2] = here;
            return;
        }
        double above = (mu * here - epsilon(n, order) * below) / epsilon(n + 1, order);
        below = here;
        here = above;
    }
}

/* With (1 - mu^2) dP/dmu = (n+1) e(n) P(n-1) - n e(n+1) P(n+1). The geopotential follows from putting the recurrences
 * into f laplace(psi) + grad(f) grad(psi), f = 2 Omega mu, and dividing by the Laplacian's eigenvalue of each degree.
 */
void vt_rossby_profiles(int degree, int order, double latitude, double profiles[VT_ROSSBY_PROFILES])
{
    VT_ASSERT(order >= 1 && degree >= order);
    double p[3];
    legendre(degree, order, latitude, p);
    const double n = degree, cosine = cos(latitude);
    const double lower = epsilon(degree, order) * p[0], upper = epsilon(degree + 1, order) * p[2];
    profiles[VT_ROSSBY_STREAM] = p[1];
    profiles[VT_ROSSBY_EASTWARD] = -((n + 1) * lower - n * upper) / (VT_EARTH_RADIUS * cosine);
    profiles[VT_ROSSBY_NORTHWARD] = order * p[1] / (VT_EARTH_RADIUS * cosine);
    profiles[VT_ROSSBY_GEOPOTENTIAL] = 2 * VT_EARTH_ROTATION * (n / (n + 1) * upper + (n + 1) / n * lower);
}

double vt_rossby_phase(const vt_rossby_wave *wave, double zonal_speed, double seconds)
{
    /* the wave's angular speed, 1/s; eastward is positive */
    const double speed = zonal_speed - 2 * (VT_EARTH_ROTATION + zonal_speed) / (wave->degree * (wave->degree + 1.0));
    return wave->phase + wave->order * speed * seconds;
}

double vt_rossby_amplitude(const vt_rossby_wave *wave, double seconds)
{
    if (wave->swing == 0) return wave->amplitude;
    return wave->amplitude * (1 + wave->swing * cos(2 * M_PI * seconds / wave->period + wave->swing_phase));
}

void vt_rossby_spectrum(uint64_t seed, double wind, vt_rossby_wave waves[VT_ROSSBY_WAVES])
{
    const uint64_t stream = vt_random_name_key("Rossby-Haurwitz waves");
    double energy = 0;
    for (int w = 0; w < VT_ROSSBY_WAVES; w++) {
        double random[4];
        for (int i = 0; i < 4; i++) random[i] = vt_random_element(seed, stream, (uint64_t)(4 * w + i));
        const int order = 1 + w / 7, above = w % 7;
        const int degree = order + above;
        double zonal = (order - 5) / 3.0, meridional = (above - 3) / 2.0;
        double speed = (0.5 + random[0]) * exp(-0.5 * (zonal * zonal + meridional * meridional));
        /* mean over the sphere of |grad psi|^2 is n (n+1) / a^2 times that of psi^2, which is amplitude^2 / 2 */
        double amplitude = speed * VT_EARTH_RADIUS * sqrt(2 / (degree * (degree + 1.0)));
        energy += speed * speed;
        waves[w] = (vt_rossby_wave){.degree = degree,
                                    .order = order,
                                    .amplitude = amplitude,
                                    .phase = 2 * M_PI * random[1],
                                    .swing = 0.35,
                                    .period = 86400.0 * (12 + 48 * random[2]),
                                    .swing_phase = 2 * M_PI * random[3]};
    }
    for (int w = 0; w < VT_ROSSBY_WAVES; w++) waves[w].amplitude *= wind / sqrt(energy);
}
