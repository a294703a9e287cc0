#include "source/synthetic/sets.h"

#include <math.h>
#include <stdlib.h>

#include "base/fourier.h"
#include "base/memory.h"
#include "base/random.h"

enum { AXES = 3 };
static const double cell = 0.08;     /* Mpc/h between two points */
static const double softening = 1.5; /* of the gas, in cells */
static const double fixed_point = 4294967296.0;

typedef struct {
    int64_t side, count; /* count: side³ */
    vt_fourier *fourier;
    vt_complex *work;         /* [count] */
    double amplitude, spread; /* A and s of the training box */
} universe;

double vt_universe_bytes(int64_t side)
{
    const double points = (double)side * (double)side * (double)side;
    return points * (double)(sizeof(vt_complex) + AXES * sizeof(double) + 4 * sizeof(int64_t) + 4 * sizeof(double) +
                             9 * sizeof(float));
}

/* ---- waves ---- */

/* The wave number of index m, in radians a cell. */
static double wave(const universe *u, int64_t m)
{
    return 2 * M_PI * (double)(m <= u->side / 2 ? m : m - u->side) / (double)u->side;
}

/* The same for a component, 0 at Nyquist's frequency, where its sign is not defined. */
static double component(const universe *u, int64_t m)
{
    return 2 * m == u->side ? 0 : wave(u, m);
}

/* Power of the waves of number k² (radians a cell): Bardeen, Bond, Kaiser and Szalay 1986 (eq. G3), smoothed. */
static double power(double square)
{
    if (square == 0) return 0;
    const double kappa = sqrt(square) / cell, q = kappa / 0.21;
    const double sum = 1 + 3.89 * q + pow(16.1 * q, 2) + pow(5.46 * q, 3) + pow(6.71 * q, 4);
    const double transfer = log1p(2.34 * q) / (2.34 * q) * pow(sum, -0.25);
    return pow(kappa, 0.96) * transfer * transfer * exp(-0.49 * square);
}

/* k² of wave `index` of the cube. */
static double square_of(const universe *u, int64_t index)
{
    const int64_t n = u->side;
    return pow(wave(u, index / (n * n)), 2) + pow(wave(u, index / n % n), 2) + pow(wave(u, index % n), 2);
}

/* The sum over all waves of S, or of S / k². */
static double sum_of_power(const universe *u, bool by_square)
{
    double *planes = vt_allocate((size_t)u->side, sizeof *planes, "a synthetic universe"), sum = 0;
#pragma omp parallel for schedule(static)
    for (int64_t x = 0; x < u->side; x++)
        for (int64_t i = 0; i < u->side * u->side; i++) {
            const double square = square_of(u, x * u->side * u->side + i);
            if (square > 0) planes[x] += by_square ? power(square) / square : power(square);
        }
    for (int64_t x = 0; x < u->side; x++) sum += planes[x];
    free(planes);
    return sum;
}

/* work = the inverse transform of work, by way of the conjugates. */
static void transform_back(const universe *u)
{
    for (int64_t i = 0; i < u->count; i++) u->work[i].imaginary = -u->work[i].imaginary;
    vt_fourier_transform_cube(u->fourier, u->work);
    for (int64_t i = 0; i < u->count; i++) {
        u->work[i].real /= (double)u->count;
        u->work[i].imaginary /= -(double)u->count;
    }
}

/* ---- displacement ---- */

static void fill_noise(const universe *u, uint64_t seed, int box)
{
    const uint64_t key = seed ^ vt_random_name_key(box == 0 ? "universe, training" : "universe, validation");
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++)
        u->work[i] = (vt_complex){vt_random_normal_quantile(vt_random_element(seed, key, (uint64_t)i)), 0};
}

/* psi_a [count], in cells. Amplitudes are fixed and phases random, so that every seed has the same variance. */
static void displace(const universe *u, uint64_t seed, int box, int axis, double *psi)
{
    fill_noise(u, seed, box);
    vt_fourier_transform_cube(u->fourier, u->work);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        const int64_t n = u->side, at[AXES] = {i / (n * n), i / n % n, i % n};
        vt_complex *value = &u->work[i];
        const double square = square_of(u, i), size = hypot(value->real, value->imaginary);
        double factor = 0;
        if (square > 0 && size > 0)
            factor = component(u, at[axis]) / square * pow((double)n, 1.5) * sqrt(u->amplitude * power(square)) / size;
        *value = (vt_complex){-factor * value->imaginary, factor * value->real}; /* i k δ / k² */
    }
    transform_back(u);
    for (int64_t i = 0; i < u->count; i++) psi[i] = u->work[i].real;
}

/* ---- particles ---- */

/* Cloud in cell: mass and momenta of a particle from each cell, added as whole numbers so that their order doesn't
 * matter. sums [4, count]. */
static void deposit(const universe *u, double *const psi[AXES], int64_t *sums)
{
    const int64_t n = u->side;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        int64_t at[AXES][2];
        double share[AXES][2];
        const int64_t from[AXES] = {i / (n * n), i / n % n, i % n};
        for (int a = 0; a < AXES; a++) {
            const double place = (double)from[a] + psi[a][i], floored = floor(place);
            at[a][0] = (((int64_t)floored % n) + n) % n;
            at[a][1] = (at[a][0] + 1) % n;
            share[a][1] = place - floored;
            share[a][0] = 1 - share[a][1];
        }
        for (int corner = 0; corner < 8; corner++) {
            const int x = corner >> 2, y = corner >> 1 & 1, z = corner & 1;
            const int64_t to = (at[0][x] * n + at[1][y]) * n + at[2][z];
            const double weight = share[0][x] * share[1][y] * share[2][z];
            for (int q = 0; q <= AXES; q++) {
                const int64_t part = llrint(fixed_point * weight * (q == 0 ? 1 : psi[q - 1][i]));
                __atomic_fetch_add(&sums[q * u->count + to], part, __ATOMIC_RELAXED);
            }
        }
    }
}

/* to = the field, smoothed. */
static void smooth(const universe *u, const int64_t *field, double *to)
{
    for (int64_t i = 0; i < u->count; i++) u->work[i] = (vt_complex){(double)field[i] / fixed_point, 0};
    vt_fourier_transform_cube(u->fourier, u->work);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        const double factor = exp(-0.5 * softening * softening * square_of(u, i));
        u->work[i] = (vt_complex){u->work[i].real * factor, u->work[i].imaginary * factor};
    }
    transform_back(u);
    for (int64_t i = 0; i < u->count; i++) to[i] = u->work[i].real;
}

/* ---- fields ---- */

/* gas [4, count]: density and momenta; velocities take the momenta's place. */
static void finish_gas(const universe *u, double *gas)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        gas[i] = fmax(gas[i], 0.001);
        for (int a = 1; a <= AXES; a++) gas[a * u->count + i] /= gas[i];
    }
}

/* How fast gas runs together at a point: minus the divergence of its velocity. */
static double convergence(const universe *u, const double *gas, int64_t i)
{
    const int64_t n = u->side, at[AXES] = {i / (n * n), i / n % n, i % n}, stride[AXES] = {n * n, n, 1};
    double sum = 0;
    for (int a = 0; a < AXES; a++) {
        const int64_t line = i - at[a] * stride[a];
        const double *velocity = gas + (1 + a) * u->count;
        sum += 0.5 * (velocity[line + (at[a] + 1) % n * stride[a]] - velocity[line + (at[a] + n - 1) % n * stride[a]]);
    }
    return -sum;
}

static void write_fields(const universe *u, const int64_t *sums, const double *gas, float *nbody, float *hydro)
{
    const double unit = 1 / (5 * u->spread);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        const double mass = (double)sums[i] / fixed_point, together = fmax(0, convergence(u, gas, i));
        const double heat = 0.6 * log(gas[i]) + 2 * log1p(4 * together * together);
        nbody[i] = (float)(log(mass + 0.01) / 14);
        hydro[i] = (float)(log(gas[i]) / 14);
        for (int a = 1; a <= AXES; a++) {
            const int64_t k = a * u->count + i;
            nbody[k] = (float)(((double)sums[k] / fixed_point + 0.001 * gas[k]) / (mass + 0.001) * unit);
            hydro[k] = (float)(gas[k] * unit);
        }
        hydro[(1 + AXES) * u->count + i] = (float)tanh(heat / 8);
    }
}

void vt_universe_make(int64_t side, int64_t training_side, uint64_t seed, int box, float **nbody, float **hydro)
{
    const char *what = "a synthetic universe";
    universe u = {.side = training_side, .count = training_side * training_side * training_side};
    u.amplitude = 0.81 * (double)u.count / sum_of_power(&u, false);
    u.spread = sqrt(u.amplitude * sum_of_power(&u, true) / (3 * (double)u.count));
    u.side = side;
    u.count = side * side * side;
    const size_t count = (size_t)u.count;
    u.fourier = vt_fourier_open(side);
    u.work = vt_allocate(count, sizeof *u.work, what);
    double *memory = vt_allocate(AXES * count, sizeof *memory, what), *gas = vt_allocate(4 * count, sizeof *gas, what);
    double *const psi[AXES] = {memory, memory + count, memory + 2 * count};
    int64_t *sums = vt_allocate(4 * count, sizeof *sums, what);
    for (int a = 0; a < AXES; a++) displace(&u, seed, box, a, psi[a]);
    deposit(&u, psi, sums);
    for (int q = 0; q <= AXES; q++) smooth(&u, sums + q * u.count, gas + q * u.count);
    finish_gas(&u, gas);
    *nbody = vt_allocate(VT_UNIVERSE_NBODY * count, sizeof **nbody, what);
    *hydro = vt_allocate(VT_UNIVERSE_HYDRO * count, sizeof **hydro, what);
    write_fields(&u, sums, gas, *nbody, *hydro);
    free(sums);
    free(gas);
    free(memory);
    free(u.work);
    vt_fourier_close(&u.fourier);
}
