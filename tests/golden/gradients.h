/* Gradients of a trainer's parameters: against those of a golden file, and against finite differences. */
#ifndef VT_TESTS_GOLDEN_GRADIENTS_H
#define VT_TESTS_GOLDEN_GRADIENTS_H

#include "golden/golden_file.h"
#include "rig.h"
#include "test.h"

/* The gradient of k's bias is exactly 0: what is there is rounding. */
static inline bool gradient_is_0(const vt_parameter *parameter)
{
    return strstr(parameter->name, ".k.bias") != NULL;
}

/* Compares the gradients of the step just made with those of the file's group; the tolerance is that of golden/vit.c.
 */
static inline void check_gradients(vt_trainer *trainer, hid_t file, const char *group)
{
    const vt_parameters *parameters = vt_trainer_parameters(trainer);
    vt_backend *backend = vt_trainer_subject(trainer).backend;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        if (gradient_is_0(parameter)) continue;
        const double *expected = golden_read(file, NULL, "%s/gradients/%s", group, parameter->name);
        float *gradient = vt_test_owned(malloc((size_t)parameter->count * sizeof *gradient));
        backend->copy_to_host(backend, gradient, parameter->gradient, (size_t)parameter->count * sizeof *gradient);
        const double difference = golden_difference(gradient, expected, parameter->count);
        EXPECT(difference < 1e-4, "%s: %s differs by %g", group, parameter->name, difference);
    }
}

/* The loss as a function of one parameter, in the oracle, with the same random numbers each time. */
static inline double loss_at(vt_trainer *trainer, const vt_batch *batch, const vt_parameter *parameter, int64_t element,
                             float value)
{
    vt_step_figures figures;
    vt_trainer_resume(trainer, 0, (vt_run_length){.run = 10});
    parameter->value[element] = value;
    vt_parameters_refresh(vt_trainer_parameters(trainer));
    EXPECT_OK(vt_step_train(trainer, batch, &figures));
    return figures.loss;
}

/* by: how far a parameter is moved. slack: how much of the loss a difference may be off. More than five gradients must
 * be larger than `least`. */
static inline void check_differences(vt_trainer *trainer, const vt_batch *batch, float by, double slack, double least,
                                     const char *what)
{
    const vt_parameters *parameters = vt_trainer_parameters(trainer);
    int checked = 0;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        const int64_t element = parameter->count / 2;
        const float value = parameter->value[element];
        if (gradient_is_0(parameter)) continue;
        const double base = loss_at(trainer, batch, parameter, element, value);
        const double gradient = (double)parameter->gradient[element];
        const double above = loss_at(trainer, batch, parameter, element, value + by);
        const double difference = (above - loss_at(trainer, batch, parameter, element, value - by)) / (2 * (double)by);
        (void)loss_at(trainer, batch, parameter, element, value);
        EXPECT(fabs(gradient - difference) < slack * base + 0.02 * fabs(difference),
               "%s, %s: gradient %g, difference %g", what, parameter->name, gradient, difference);
        checked += fabs(difference) > least;
    }
    EXPECT(checked > 5, "%s: only %d gradients are not next to 0", what, checked);
}

#endif
