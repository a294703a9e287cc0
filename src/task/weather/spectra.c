#include "task/weather/spectra.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fourier.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "task/weather/calendar.h"

static int64_t waves_of(const vt_scores *spectra)
{
    return spectra->options.width / 2;
}

/* A cell: initial times, then the powers [waves] of the forecast, and those of the target. */
void vt_spectra_open(const vt_scores_options *options, vt_scores **spectra)
{
    *spectra = vt_scores_make(options, 1 + 2 * (options->width / 2));
    (*spectra)->fourier = vt_fourier_open(options->width);
}

/* What of a row's values is left out: its mean, so that the waves lose no digits, and the line through its ends. */
typedef struct {
    double at_first, slope;
} row_line;

/* False where a value is missing. */
static bool find_line(const vt_scores *spectra, const float *row, row_line *line)
{
    const int64_t width = spectra->options.width;
    double sum = 0;
    for (int64_t x = 0; x < width; x++) sum += (double)row[x];
    line->slope =
        spectra->options.goes_round || width < 2 ? 0 : ((double)row[width - 1] - (double)row[0]) / (double)(width - 1);
    line->at_first = sum / (double)width - line->slope * 0.5 * (double)(width - 1);
    return !isnan(sum);
}

/* Adds weight times the powers of a pair of rows, which one transform of the complex row forecast + i target gives. */
static bool add_row(const vt_scores *spectra, double weight, const float *forecast, const float *target,
                    vt_complex *memory, double *powers)
{
    const int64_t width = spectra->options.width, count = waves_of(spectra);
    vt_complex *row = memory, *waves = memory + width;
    row_line lines[2];
    if (!find_line(spectra, forecast, &lines[0]) || !find_line(spectra, target, &lines[1])) return false;
    for (int64_t x = 0; x < width; x++)
        row[x] = (vt_complex){(double)forecast[x] - lines[0].at_first - lines[0].slope * (double)x,
                              (double)target[x] - lines[1].at_first - lines[1].slope * (double)x};
    vt_fourier_transform(spectra->fourier, row, waves, memory + 2 * width);
    for (int64_t m = 1; m <= count; m++) {
        const vt_complex one = waves[m], other = waves[width - m]; /* F + i T, and the conjugate of F - i T */
        const double factor = 0.25 * weight * (2 * m == width ? 1 : 2) / (double)(width * width);
        const double f[2] = {one.real + other.real, one.imaginary - other.imaginary};
        const double t[2] = {one.real - other.real, one.imaginary + other.imaginary};
        powers[m - 1] += factor * (f[0] * f[0] + f[1] * f[1]);
        powers[count + m - 1] += factor * (t[0] * t[0] + t[1] * t[1]);
    }
    return true;
}

static void add_channel(vt_scores *spectra, double *cell, const float *forecast, const float *target)
{
    const int64_t height = spectra->options.height, width = spectra->options.width, waves = waves_of(spectra);
    vt_complex *memory = vt_allocate((size_t)(3 * width), sizeof *memory, "the spectra");
    double *powers = vt_allocate((size_t)(2 * waves) + 1, sizeof *powers, "the spectra"), weights = 0;
    for (int64_t y = 0; y < height; y++)
        if (add_row(spectra, spectra->weights[y], forecast + y * width, target + y * width, memory, powers))
            weights += spectra->weights[y];
    if (weights > 0) {
        cell[0] += 1;
        for (int64_t i = 0; i < 2 * waves; i++) cell[1 + i] += powers[i] / weights;
    }
    free(memory);
    free(powers);
}

void vt_spectra_add(vt_scores *spectra, int64_t lead, const float *forecast, const float *target)
{
    const int64_t plane = spectra->options.height * spectra->options.width;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < spectra->options.channels; c++)
        add_channel(spectra, vt_scores_cell(spectra, lead, c), forecast + c * plane, target + c * plane);
}

double vt_spectra_power(const vt_scores *spectra, int64_t lead, int64_t channel, int64_t wave, bool of_target)
{
    const double *cell = vt_scores_cell(spectra, lead, channel);
    VT_ASSERT(wave >= 1 && wave <= waves_of(spectra));
    return cell[(of_target ? waves_of(spectra) : 0) + wave] / cell[0]; /* NaN where there is none */
}

vt_status vt_spectra_write(const vt_scores *spectra, const char *path)
{
    vt_status status = VT_OK;
    const vt_lead_unit unit = vt_lead_unit_of(spectra->options.step);
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file, "channel,lead_hours,wavenumber,power_forecast,power_target,ratio%s%s\n",
            unit.column != NULL ? ",lead_" : "", unit.column != NULL ? unit.column : "");
    for (int64_t c = 0; c < spectra->options.channels; c++)
        for (int64_t lead = 0; lead < spectra->options.leads; lead++)
            for (int64_t m = 1; m <= waves_of(spectra); m++) {
                const double forecast = vt_spectra_power(spectra, lead, c, m, false);
                const double target = vt_spectra_power(spectra, lead, c, m, true);
                vt_csv_text(file, spectra->options.names[c]);
                vt_csv_number(file, vt_length_hours((lead + 1) * spectra->options.step));
                fprintf(file, ",%ld", m);
                vt_csv_number(file, forecast);
                vt_csv_number(file, target);
                vt_csv_number(file, forecast / target);
                if (unit.column != NULL) vt_csv_number(file, (double)(lead + 1) * unit.a_step);
                fputc('\n', file);
            }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
