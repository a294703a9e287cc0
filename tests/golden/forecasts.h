/* Small ViTs that are trained over rollouts of three steps, on the batch of a golden file:
 * losses and gradients against those of the file, and gradients against finite differences. */
#ifndef VT_TESTS_GOLDEN_FORECASTS_H
#define VT_TESTS_GOLDEN_FORECASTS_H

#include "golden/golden_file.h"
#include "operations/paths.h"
#include "rig.h"
#include "test.h"

enum { ROLLOUT = 3, STEPS = 10 };

typedef struct {
    hid_t file;
    rig r;
    vt_batch batch;
} fixture;

/* changes NULL: those of the file. */
static inline fixture open_trained(const char *file, vt_cpu_isa isa, vt_config *config, const float *changes, bool gaps)
{
    fixture f = {.file = golden_open(file), .r.config = config};
    const int64_t samples = config->global_batch_size;
    int64_t count;
    EXPECT_OK(path_open_trainers(isa, &f.r.backend));
    f.r.task =
        open_weather(config, NULL, NULL, changes != NULL ? changes : golden_read_float(f.file, NULL, "changes"), NULL);
    const vt_trainer_options options = {.task = f.r.task, .steps = STEPS};
    EXPECT_OK(vt_trainer_open(config, &options, f.r.backend, &f.r.trainer));
    f.batch = (vt_batch){.sample_count = samples,
                         .global_count = samples,
                         .steps = ROLLOUT,
                         .tensors = {golden_read_float(f.file, NULL, gaps ? "inputs_gaps" : "inputs"),
                                     golden_read_float(f.file, &count, gaps ? "targets_gaps" : "targets")}};
    EXPECT(count == samples * ROLLOUT * 2 * config->img_size[0] * config->img_size[1]);
    return f;
}

static inline void fixture_close(fixture *f)
{
    rig_close(&f->r);
}

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

/* So many steps against PyTorch's of this name; gradients: those of the first step, too. */
static inline void check_losses(fixture *f, const char *name, int steps, bool gradients)
{
    const double *losses = golden_read(f->file, NULL, "%s/losses", name);
    for (int step = 0; step < steps; step++) {
        const double loss = rig_train(&f->r, &f->batch, 1);
        if (step == 0 && gradients) check_gradients(f->r.trainer, f->file, name);
        EXPECT_NEAR(loss, losses[step], 1e-5 * losses[step]);
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
