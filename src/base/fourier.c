#include "base/fourier.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

struct vt_fourier {
    int64_t length;
    vt_complex *roots; /* [length]: exp(-2 pi i j / length) */
};

vt_fourier *vt_fourier_open(int64_t length)
{
    vt_fourier *fourier = vt_allocate(1, sizeof *fourier, "a Fourier transform");
    fourier->length = length;
    fourier->roots = vt_allocate((size_t)length, sizeof *fourier->roots, "a Fourier transform");
    for (int64_t j = 0; j < length; j++) {
        const double angle = -2 * M_PI * (double)j / (double)length;
        fourier->roots[j] = (vt_complex){cos(angle), sin(angle)};
    }
    return fourier;
}

void vt_fourier_close(vt_fourier **fourier)
{
    if (*fourier == NULL) return;
    free((*fourier)->roots);
    free(*fourier);
    *fourier = NULL;
}

/* sum + a b */
static vt_complex add_product(vt_complex sum, vt_complex a, vt_complex b)
{
    return (vt_complex){sum.real + a.real * b.real - a.imaginary * b.imaginary,
                        sum.imaginary + a.real * b.imaginary + a.imaginary * b.real};
}

static int64_t smallest_factor(int64_t length)
{
    for (int64_t factor = 2; factor * factor <= length; factor++)
        if (length % factor == 0) return factor;
    return length;
}

/* Cooley and Tukey 1965, decimation in time: of every stride-th number from from[0] on, `length` of them. */
static void transform(const vt_fourier *fourier, int64_t length, int64_t stride, const vt_complex *from, vt_complex *to,
                      vt_complex *scratch)
{
    if (length == 1) {
        to[0] = from[0];
        return;
    }
    const int64_t factor = smallest_factor(length), part = length / factor;
    for (int64_t r = 0; r < factor; r++)
        transform(fourier, part, stride * factor, from + r * stride, to + r * part, scratch);
    for (int64_t k = 0; k < part; k++) {
        for (int64_t r = 0; r < factor; r++)
            scratch[r] = add_product((vt_complex){0, 0}, to[r * part + k], fourier->roots[r * k * stride]);
        for (int64_t q = 0; q < factor; q++) {
            vt_complex sum = scratch[0];
            for (int64_t r = 1; r < factor; r++)
                sum = add_product(sum, scratch[r], fourier->roots[r * q % factor * part * stride]);
            to[q * part + k] = sum;
        }
    }
}

void vt_fourier_transform(const vt_fourier *fourier, const vt_complex *from, vt_complex *to, vt_complex *scratch)
{
    transform(fourier, fourier->length, 1, from, to, scratch);
}

/* Along one axis, whose points lie `stride` apart. */
static void transform_axis(const vt_fourier *fourier, int64_t stride, vt_complex *cube)
{
    const int64_t n = fourier->length;
#pragma omp parallel
    {
        vt_complex *line = vt_allocate((size_t)(3 * n), sizeof *line, "a Fourier transform");
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n * n; i++) {
            vt_complex *first = cube + i / stride * stride * n + i % stride;
            for (int64_t k = 0; k < n; k++) line[k] = first[k * stride];
            vt_fourier_transform(fourier, line, line + n, line + 2 * n);
            for (int64_t k = 0; k < n; k++) first[k * stride] = line[n + k];
        }
        free(line);
    }
}

void vt_fourier_transform_cube(const vt_fourier *fourier, vt_complex *cube)
{
    const int64_t n = fourier->length;
    transform_axis(fourier, 1, cube);
    transform_axis(fourier, n, cube);
    transform_axis(fourier, n * n, cube);
}
