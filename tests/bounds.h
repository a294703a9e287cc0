/* How far results may be from their reference. No bound is fitted to a processor: it is derived from the precision
 * (one step from equal values), or measured in the test (the spread that rounding alone gives a run).
 * docs/lab/bounds.md lists which test has which. */
#ifndef VT_TESTS_BOUNDS_H
#define VT_TESTS_BOUNDS_H

#include "test.h"
#include "training/step.h"

/* The relative error of what `roundings` of at most `unit` (half the distance of neighbours) make of a number, one
 * behind the other. In the root mean square a rounding is off by 0.42 of its unit, as the error is uniform between
 * neighbours (1/√3) and mantissas lie evenly in their logarithm (0.74). Independent errors add up as the root of their
 * number; what one of them does to the result may be up to about three times as large as itself. */
static inline double allowed_of_roundings(int roundings, double unit)
{
    return 3 * sqrt(roundings) * 0.42 * unit;
}

/* Gives `to` the values of `from`, which has the same parameters: the next step of both begins at equal values, and its
 * loss and its gradients differ by this step's roundings alone. */
static inline void start_from(vt_trainer *to, vt_trainer *from)
{
    vt_backend *reader = vt_trainer_subject(from).backend, *writer = vt_trainer_subject(to).backend;
    const size_t bytes =
        (size_t)vt_parameters_block_elements(vt_trainer_parameters(from), VT_BLOCK_VALUES) * sizeof(float);
    void *values = vt_test_owned(malloc(bytes));
    reader->copy_to_host(reader, values, vt_trainer_parameters(from)->values, bytes);
    writer->copy_from_host(writer, vt_trainer_parameters(to)->values, values, bytes);
    vt_parameters_refresh(vt_trainer_parameters(to));
}

/* Moves numbers by their last bit, up or down. Each `draw` is another one. Runs that begin at them round other numbers
 * up and down in every step, so they spread as rounding alone makes them: with a few draws, one path shows how close a
 * trajectory can be to the exact one. A bug leads all of them astray alike, and so can't hide in their spread. */
static inline void change_last_bits(float *values, int64_t count, uint32_t draw)
{
    uint32_t x = draw;
    for (int64_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        if (values[i] != 0) values[i] = nextafterf(values[i], x >> 31 ? INFINITY : -INFINITY);
    }
}

/* Runs of a trajectory: the run itself, and draws. One that rounding alone leads away from the exact one is further
 * away than TRAJECTORY_FACTOR times the standard deviation of five runs once in 1500 times (Student's t with four
 * degrees of freedom). */
enum { TRAJECTORY_RUNS = 5, TRAJECTORY_FACTOR = 10 };

/* Student's bound for step `step` of losses [TRAJECTORY_RUNS][steps]. Spreads grow along a run: the largest one so far
 * counts, so that a step in which five happen to agree is not taken for exact. */
static inline double allowed_of_runs(int64_t steps, const double *losses, int64_t step)
{
    double largest = 0;
    for (int64_t s = 0; s <= step; s++) {
        double mean = 0, squares = 0;
        for (int run = 0; run < TRAJECTORY_RUNS; run++) mean += losses[run * steps + s] / TRAJECTORY_RUNS;
        for (int run = 0; run < TRAJECTORY_RUNS; run++) squares += pow(losses[run * steps + s] - mean, 2);
        largest = fmax(largest, sqrt(squares / (TRAJECTORY_RUNS - 1)));
    }
    return TRAJECTORY_FACTOR * largest;
}

#endif
