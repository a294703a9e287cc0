/* The gradients of a layout beside those of one rank, after one step from equal weights: the check of layouts that no
 * later step can blur. Each tensor's difference (its norm) may be what rounding alone does to one rank's gradient,
 * measured in the test: weights that differ in their last bits, and Student's factor (bounds.h). */
#ifndef VT_TESTS_GRADIENTS_H
#define VT_TESTS_GRADIENTS_H

#include "bounds.h"

/* Relative, of step 0, 1, …: after one step from equal weights, and after few. */
static inline double promised_loss(int step)
{
    return step == 0 ? 1e-6 : 1e-5;
}

/* Adds what this rank keeps of a gradient to the whole tensor's. */
static inline void add_piece(const vt_parameters *parameters, const vt_parameter *p, double *whole)
{
    bool sliced = vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS);
    vt_piece piece =
        vt_parameters_piece(parameters, p, VT_BLOCK_MOMENTS); /* what this rank updates: of the rest it has no sum */
    if (!vt_parameters_is_sliced(parameters, VT_BLOCK_GRADIENTS)) piece.offset = p->offset + piece.first;
    double copies = (double)vt_parameters_copies(parameters, &parameters->buckets[p->bucket], sliced);
    const float *gradients = parameters->gradients + piece.offset;
    for (int64_t i = 0; i < piece.count; i++) {
        int64_t rest = piece.first + i, place = 0, step = 1;
        for (int d = p->dimensions - 1; d >= 0; d--) {
            place += (rest % p->local[d] + (d == p->split ? p->first : 0)) * step;
            rest /= p->local[d];
            step *= p->shape[d];
        }
        whole[place] += (double)gradients[i] / copies;
    }
}

/* All whole gradients on every rank, one behind another; to be freed. Collective. */
static inline double *gather_gradients(const vt_trainer *trainer)
{
    const vt_parameters *parameters = vt_trainer_parameters(trainer);
    const int64_t elements = vt_trainer_parameters(trainer)->whole_count;
    double *all = calloc((size_t)elements, sizeof *all), *whole = all;
    VT_ASSERT(all != NULL);
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *p = parameters->list[i];
        add_piece(parameters, p, whole);
        whole += p->whole_count;
    }
    vt_world_sum(vt_trainer_subject(trainer).world, all, elements);
    return all;
}

/* The norm of a - b [count]. */
static inline double distance(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

/* Steps `trainer`, which is new and of one rank, anew for each draw. Returns for each parameter what its gradient may
 * be off by; to be freed. */
static inline double *measure_allowed(vt_trainer *trainer, const vt_batch *batch)
{
    vt_parameters *parameters = vt_trainer_parameters(trainer);
    vt_backend *backend = vt_trainer_subject(trainer).backend;
    const int64_t count = parameters->count;
    const int64_t elements = vt_parameters_block_elements(parameters, VT_BLOCK_VALUES);
    float *begin = vt_test_owned(malloc((size_t)elements * sizeof *begin));
    float *drawn = vt_test_owned(malloc((size_t)elements * sizeof *drawn));
    double *allowed = calloc((size_t)count, sizeof *allowed), *first = NULL;
    VT_ASSERT(allowed != NULL);
    backend->copy_to_host(backend, begin, parameters->values, (size_t)elements * sizeof *begin);
    for (uint32_t draw = 0; draw < TRAJECTORY_RUNS; draw++) {
        vt_step_figures figures;
        memcpy(drawn, begin, (size_t)elements * sizeof *drawn);
        if (draw > 0) change_last_bits(drawn, elements, draw);
        backend->copy_from_host(backend, parameters->values, drawn, (size_t)elements * sizeof *drawn);
        vt_parameters_refresh(parameters);
        vt_trainer_resume(trainer, 0, (vt_run_length){.run = 10, .epoch = 10, .begun = -1}); /* equal dropout */
        EXPECT_OK(vt_step_train(trainer, batch, &figures));
        double *gradients = gather_gradients(trainer);
        if (first == NULL) first = gradients;
        for (int64_t i = 0, at = 0, size; i < count; i++, at += size) {
            size = parameters->list[i]->whole_count;
            allowed[i] += pow(distance(gradients + at, first + at, size), 2);
        }
        if (gradients != first) free(gradients);
    }
    for (int64_t i = 0; i < count; i++) allowed[i] = TRAJECTORY_FACTOR * sqrt(allowed[i] / (TRAJECTORY_RUNS - 1));
    free(first);
    return allowed;
}

/* Whole gradients [parameters] beside those of one rank. */
static inline void compare_gradients(const vt_parameters *parameters, const double *expected, const double *actual,
                                     const double *allowed, const char *what)
{
    for (int64_t i = 0, at = 0, size; i < parameters->count; i++, at += size) {
        const vt_parameter *p = parameters->list[i];
        size = p->whole_count;
        const double difference = distance(actual + at, expected + at, size);
        EXPECT(difference <= allowed[i], "%s: %s: the gradient is off by %.3g, expected at most %.3g", what, p->name,
               difference, allowed[i]);
    }
}

#endif
