#include "source/synthetic/atmosphere.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

#define SCALE_HEIGHT 8400.0 /* m */
#define LAPSE_RATE 6.5e-3   /* K/m */
#define WIND 14.0           /* m/s, root mean square of the waves' wind near 500 hPa */
#define MOST_ORDERS (VT_ROSSBY_ORDERS + 1)
#define PARALLEL_POINTS 16384 /* below, starting threads costs more than they give */

static const char purpose[] = "the synthetic atmosphere";

/* Places in vt_climate_channels. */
enum { T2M = 2, SP = 3, T850 = 5, R850 = 18 };

struct vt_synthetic {
    vt_synthetic_options options;
    vt_rossby_wave *waves;
    double *latitudes;                                         /* [height], radians, a little off the poles */
    double *profiles;                                          /* [wave, VT_ROSSBY_PROFILES, height] */
    float *cosines, *sines;                                    /* [MOST_ORDERS, width] of order times longitude */
    float *mountains, *land;                                   /* [height, width]: m; 0 at sea … 1 */
    complex double response[VT_CLIMATE_CHANNELS][MOST_ORDERS]; /* what a wave's profile is multiplied by */
    complex double *sums; /* [VT_ROSSBY_PROFILES, MOST_ORDERS, height]: waves of one order, now */
    float *zonal;         /* [channels, height]: what doesn't vary with longitude, now */
};

/* row += the real part of the sum over orders of coefficient exp(i order longitude); two orders at a time halve the
 * traffic of the row. coefficients[0] counts for nothing. */
static void add_waves(const vt_synthetic *synthetic, const complex double coefficients[MOST_ORDERS], float *row)
{
    const int64_t width = synthetic->options.width;
    for (int order = 1; order < MOST_ORDERS; order += 2) {
        const float real = (float)creal(coefficients[order]), imaginary = (float)cimag(coefficients[order]);
        const float next_real = (float)creal(coefficients[order + 1]);
        const float next_imaginary = (float)cimag(coefficients[order + 1]);
        const float *cosines = synthetic->cosines + order * width, *sines = synthetic->sines + order * width;
        if (real == 0 && imaginary == 0 && next_real == 0 && next_imaginary == 0) continue;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            row[i] += (real * cosines[i] - imaginary * sines[i]) +
                      (next_real * cosines[width + i] - next_imaginary * sines[width + i]);
    }
}

_Static_assert(VT_ROSSBY_ORDERS % 2 == 0, "add_waves takes two orders at a time");

/* ---- making one ---- */

/* Continents stand where a smooth random field is high, mountains where it is highest. */
static void make_land(vt_synthetic *synthetic)
{
    const int64_t height = synthetic->options.height, width = synthetic->options.width;
    vt_rossby_wave waves[VT_ROSSBY_WAVES];
    double variance = 0;
    float *row = vt_allocate((size_t)width, sizeof *row, purpose);
    vt_rossby_spectrum(synthetic->options.seed ^ vt_random_name_key("continents"), WIND, waves);
    for (int w = 0; w < VT_ROSSBY_WAVES; w++) variance += waves[w].amplitude * waves[w].amplitude / 2;
    for (int64_t j = 0; j < height; j++) {
        complex double coefficients[MOST_ORDERS] = {0};
        for (int w = 0; w < VT_ROSSBY_WAVES; w++) {
            double profiles[VT_ROSSBY_PROFILES];
            vt_rossby_profiles(waves[w].degree, waves[w].order, synthetic->latitudes[j], profiles);
            coefficients[waves[w].order] +=
                waves[w].amplitude * profiles[VT_ROSSBY_STREAM] * cexp(-I * waves[w].phase) / sqrt(variance);
        }
        memset(row, 0, (size_t)width * sizeof *row);
        add_waves(synthetic, coefficients, row);
        for (int64_t i = 0; i < width; i++) {
            synthetic->land[j * width + i] = 1 / (1 + expf(-4 * (row[i] - 0.4f)));
            synthetic->mountains[j * width + i] = row[i] > 0.8f ? 1500 * fminf(row[i] - 0.8f, 2) : 0;
        }
    }
    free(row);
}

static void fill_tables(vt_synthetic *synthetic)
{
    const vt_synthetic_options *options = &synthetic->options;
    const int64_t height = options->height, width = options->width;
    for (int64_t j = 0; j < height; j++) {
        /* derivatives by longitude need a circle round the axis */
        double degrees = fmin(89.99, fmax(-89.99, vt_synthetic_latitude(height, j)));
        synthetic->latitudes[j] = degrees * M_PI / 180;
        for (int64_t w = 0; w < options->wave_count; w++) {
            double profiles[VT_ROSSBY_PROFILES];
            vt_rossby_profiles(synthetic->waves[w].degree, synthetic->waves[w].order, synthetic->latitudes[j],
                               profiles);
            for (int p = 0; p < VT_ROSSBY_PROFILES; p++)
                synthetic->profiles[(w * VT_ROSSBY_PROFILES + p) * height + j] = profiles[p];
        }
    }
    for (int order = 0; order < MOST_ORDERS; order++) {
        for (int64_t i = 0; i < width; i++) {
            double angle = order * vt_synthetic_longitude(width, i) * M_PI / 180;
            synthetic->cosines[order * width + i] = (float)cos(angle);
            synthetic->sines[order * width + i] = (float)sin(angle);
        }
        for (int c = 0; order > 0 && c < VT_CLIMATE_CHANNELS; c++)
            synthetic->response[c][order] = vt_climate_response(&vt_climate_channels[c], order);
    }
}

vt_synthetic *vt_synthetic_open(const vt_synthetic_options *options)
{
    const size_t height = (size_t)options->height, width = (size_t)options->width;
    const size_t waves = options->waves != NULL ? (size_t)options->wave_count : VT_ROSSBY_WAVES;
    vt_synthetic *synthetic = vt_allocate(1, sizeof *synthetic, purpose);
    VT_ASSERT(options->height > 0 && options->width > 0);
    VT_ASSERT(options->channels > 0 && options->channels <= VT_CLIMATE_CHANNELS);
    synthetic->options = *options;
    synthetic->waves = vt_allocate(waves, sizeof *synthetic->waves, purpose);
    synthetic->latitudes = vt_allocate(height, sizeof(double), purpose);
    synthetic->profiles = vt_allocate(waves * VT_ROSSBY_PROFILES * height, sizeof(double), purpose);
    synthetic->cosines = vt_allocate(MOST_ORDERS * width, sizeof(float), purpose);
    synthetic->sines = vt_allocate(MOST_ORDERS * width, sizeof(float), purpose);
    synthetic->mountains = vt_allocate(height * width, sizeof(float), purpose);
    synthetic->land = vt_allocate(height * width, sizeof(float), purpose);
    synthetic->sums = vt_allocate(VT_ROSSBY_PROFILES * MOST_ORDERS * height, sizeof *synthetic->sums, purpose);
    synthetic->zonal = vt_allocate((size_t)options->channels * height, sizeof(float), purpose);
    if (options->waves == NULL)
        vt_rossby_spectrum(options->seed, WIND, synthetic->waves);
    else
        memcpy(synthetic->waves, options->waves, waves * sizeof *options->waves);
    synthetic->options.wave_count = (int64_t)waves;
    synthetic->options.waves = synthetic->waves;
    fill_tables(synthetic);
    make_land(synthetic);
    return synthetic;
}

void vt_synthetic_close(vt_synthetic **pointer)
{
    vt_synthetic *synthetic = *pointer;
    if (synthetic == NULL) return;
    *pointer = NULL;
    free(synthetic->waves);
    free(synthetic->latitudes);
    free(synthetic->profiles);
    free(synthetic->cosines);
    free(synthetic->sines);
    free(synthetic->mountains);
    free(synthetic->land);
    free(synthetic->sums);
    free(synthetic->zonal);
    free(synthetic);
}

/* ---- one row of one channel ---- */

/* A Philox block keys the row; the columns are hashed from it (Wellons' two-round mixer "lowbias32", of which a vector
 * takes a fifth of Philox's time). Nearly normal: the sum of the hash's four bytes has mean 510 and standard deviation
 * 147.8. */
static void add_noise(const vt_synthetic *synthetic, int64_t step, int64_t channel, int64_t row_index, float *row)
{
    const uint64_t seed = synthetic->options.seed ^ vt_random_name_key("noise");
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)row_index, (uint32_t)channel, (uint32_t)step, (uint32_t)(step >> 32)};
    const vt_random_block block = vt_random_philox(key, counter);
    const float scale = (float)(synthetic->options.noise * vt_climate_channels[channel].spread / 147.8);
    const uint32_t width = (uint32_t)synthetic->options.width, start = block.word[0], middle = block.word[1];
#pragma omp simd
    for (uint32_t i = 0; i < width; i++) {
        uint32_t hash = start + i;
        hash = (hash ^ hash >> 16) * 0x7FEB352Du;
        hash = (hash ^ hash >> 15 ^ middle) * 0x846CA68Bu;
        hash ^= hash >> 16;
        const uint32_t pairs = (hash & 0x00FF00FFu) + (hash >> 8 & 0x00FF00FFu);
        row[i] += scale * ((float)(int32_t)((pairs & 0xFFFFu) + (pairs >> 16)) - 510.0f);
    }
}

/* Warmest over land two hours after noon, by as much as the sun stands high; mountains are cold. */
static void finish_temperature(const vt_synthetic *synthetic, int64_t step, int64_t j, float *row)
{
    const int64_t width = synthetic->options.width;
    const double days = (double)step / VT_SYNTHETIC_STEPS_PER_DAY;
    const double declination = -0.409 * vt_climate_winter(days);
    const double high = fmax(0, cos(synthetic->latitudes[j] - declination));
    const double hour = 2 * M_PI * (days - floor(days)) - M_PI - 2 * M_PI * 2 / 24;
    const float real = (float)(high * cos(hour)), imaginary = (float)(high * sin(hour));
    const float *cosines = synthetic->cosines + width, *sines = synthetic->sines + width;
    const float *land = synthetic->land + j * width, *mountains = synthetic->mountains + j * width;
#pragma omp simd
    for (int64_t i = 0; i < width; i++)
        row[i] +=
            (0.5f + 6.0f * land[i]) * (real * cosines[i] - imaginary * sines[i]) - (float)LAPSE_RATE * mountains[i];
}

/* Pressure falls exponentially with the height of the ground; `row` holds that at sea level. mountains is m. */
static void finish_surface_pressure(const vt_synthetic *synthetic, int64_t j, float *row)
{
    const float *mountains = synthetic->mountains + j * synthetic->options.width;
    for (int64_t i = 0; i < synthetic->options.width; i++) row[i] *= expf(-mountains[i] / (float)SCALE_HEIGHT);
}

static void clamp(int64_t width, float least, float most, float *row)
{
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        float value = row[i] < least ? least : row[i];
        row[i] = value > most ? most : value;
    }
}

/* Saturation water grows by 6.5 % a kelvin (Clausius and Clapeyron); (1 + x/8)^8 stands in for exp(x), |x| < 4. */
static void fill_water(int64_t width, const float *temperature, const float *humidity, float *row)
{
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        float growth = 1.0f + 0.065f / 8.0f * (temperature[i] - 288.0f);
        growth *= growth;
        growth *= growth;
        growth *= growth;
        row[i] = 30.0f * growth * (0.3f + 0.7f / 65.0f * humidity[i]);
    }
}

static void fill_row(const vt_synthetic *synthetic, int64_t step, int64_t channel, int64_t j, float *fields)
{
    static const vt_rossby_profile profile_of[] = {
        [VT_WIND_EAST] = VT_ROSSBY_EASTWARD,       [VT_WIND_NORTH] = VT_ROSSBY_NORTHWARD,
        [VT_TEMPERATURE] = VT_ROSSBY_GEOPOTENTIAL, [VT_GEOPOTENTIAL] = VT_ROSSBY_GEOPOTENTIAL,
        [VT_PRESSURE] = VT_ROSSBY_GEOPOTENTIAL,    [VT_HUMIDITY] = VT_ROSSBY_GEOPOTENTIAL,
        [VT_WATER] = VT_ROSSBY_GEOPOTENTIAL,
    };
    const int64_t height = synthetic->options.height, width = synthetic->options.width;
    const vt_quantity kind = vt_climate_channels[channel].quantity;
    const complex double *sums = synthetic->sums + profile_of[kind] * MOST_ORDERS * height;
    complex double coefficients[MOST_ORDERS];
    float *row = fields + (channel * height + j) * width;
    for (int order = 0; order < MOST_ORDERS; order++)
        coefficients[order] = synthetic->response[channel][order] * sums[order * height + j];
    for (int64_t i = 0; i < width; i++) row[i] = synthetic->zonal[channel * height + j];
    if (kind == VT_WATER)
        fill_water(width, fields + (T850 * height + j) * width, fields + (R850 * height + j) * width, row);
    else
        add_waves(synthetic, coefficients, row);
    if (channel == T2M) finish_temperature(synthetic, step, j, row);
    if (channel == SP) finish_surface_pressure(synthetic, j, row);
    if (synthetic->options.noise > 0) add_noise(synthetic, step, channel, j, row);
    if (kind == VT_HUMIDITY) clamp(width, 1, 100, row);
    if (kind == VT_WATER) clamp(width, 0.1f, 150, row);
}

/* ---- the whole ---- */

static void sum_waves(vt_synthetic *synthetic, double seconds)
{
    const int64_t height = synthetic->options.height;
    memset(synthetic->sums, 0, (size_t)(VT_ROSSBY_PROFILES * MOST_ORDERS * height) * sizeof *synthetic->sums);
    for (int64_t w = 0; w < synthetic->options.wave_count; w++) {
        const vt_rossby_wave *wave = &synthetic->waves[w];
        const complex double now =
            vt_rossby_amplitude(wave, seconds) * cexp(-I * vt_rossby_phase(wave, VT_SYNTHETIC_ZONAL_SPEED, seconds));
        for (int p = 0; p < VT_ROSSBY_STREAM; p++) {
            const double *profile = synthetic->profiles + (w * VT_ROSSBY_PROFILES + p) * height;
            complex double *sums = synthetic->sums + (p * MOST_ORDERS + wave->order) * height;
            for (int64_t j = 0; j < height; j++) sums[j] += profile[j] * now;
        }
    }
}

void vt_synthetic_fields(vt_synthetic *synthetic, int64_t step, float *fields)
{
    const vt_synthetic_options *options = &synthetic->options;
    const double days = (double)step / VT_SYNTHETIC_STEPS_PER_DAY;
    sum_waves(synthetic, 86400 * days);
    for (int64_t c = 0; c < options->channels; c++)
        for (int64_t j = 0; j < options->height; j++)
            synthetic->zonal[c * options->height + j] =
                (float)vt_climate_zonal_value(&vt_climate_channels[c], synthetic->latitudes[j], days);
#pragma omp parallel for schedule(dynamic, 4) if (options->height * options->width > PARALLEL_POINTS)
    for (int64_t j = 0; j < options->height; j++)
        for (int64_t c = 0; c < options->channels; c++) fill_row(synthetic, step, c, j, fields);
}

double vt_synthetic_latitude(int64_t height, int64_t row)
{
    return height > 1 ? 90.0 - 180.0 * (double)row / (double)(height - 1) : 0.0;
}

double vt_synthetic_longitude(int64_t width, int64_t column)
{
    return 360.0 * (double)column / (double)width;
}
