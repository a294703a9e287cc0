/* Discrete Fourier transforms of any length: as many operations as the length times the sum of its prime factors. */
#ifndef VT_BASE_FOURIER_H
#define VT_BASE_FOURIER_H

#include <stdint.h>

typedef struct {
    double real, imaginary;
} vt_complex;

typedef struct vt_fourier vt_fourier;

vt_fourier *vt_fourier_open(int64_t length);
void vt_fourier_close(vt_fourier **fourier);

/* to[m] = sum over x of from[x] exp(-2 pi i m x / length); to, from and scratch, [length] each, don't overlap. Any
 * thread. */
void vt_fourier_transform(const vt_fourier *fourier, const vt_complex *from, vt_complex *to, vt_complex *scratch);

/* The same of a cube [length, length, length], in its place; uses all threads. */
void vt_fourier_transform_cube(const vt_fourier *fourier, vt_complex *cube);

#endif
