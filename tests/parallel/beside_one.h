/* A model over ranks beside the same on one rank: the loss and the gradients of a step, and the losses of a few. */
#ifndef VT_TESTS_BESIDE_ONE_H
#define VT_TESTS_BESIDE_ONE_H

#include "gradients.h"
#include "parallel/launch.h"
#include "settings.h"

enum { STEPS = 4, MOST = 8 }; /* samples of a batch */

/* The samples of a file of tests, and the settings that all its models share. */
typedef struct {
    const char *settings;
    const char *tensors[2]; /* MOST inputs, and as many targets */
    size_t bytes[2];        /* of one of them */
    int64_t left_out;       /* so many of the last samples of a batch have no target and do not count */
} vt_test_samples;

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_world *world;
    vt_trainer *trainer;
    vt_batch batch;
} side;

static inline void open_side(side *s, const vt_test_samples *samples, int64_t batch, const char *settings,
                             const vt_launch *launch)
{
    *s = (side){.config = config_with(launch->world_size, samples->settings,
                                      SETTINGS("global_batch_size=%lld %s", (long long)batch, settings))};
    EXPECT_OK(vt_world_open(s->config, launch, &s->world));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &s->backend));
    const vt_trainer_options options = {.steps = 10, .world = s->world};
    EXPECT_OK(vt_trainer_open(s->config, &options, s->backend, &s->trainer));
    const int64_t local = batch / s->config->data_parallel;
    const int64_t first = local * vt_world_coordinate(s->world, VT_AXIS_DATA);
    s->batch = (vt_batch){.sample_count = local,
                          .global_count = batch - samples->left_out,
                          .first_sample = first,
                          .first_in_batch = first,
                          .tensors = {samples->tensors[0] + (size_t)first * samples->bytes[0],
                                      samples->tensors[1] + (size_t)first * samples->bytes[1]}};
}

static inline void close_side(side *s)
{
    vt_trainer_close(&s->trainer);
    vt_backend_close(&s->backend);
    vt_world_close(&s->world, false);
    vt_config_close(&s->config);
}

/* What rounding does to one rank's gradients: the same for all layouts of a model. */
static inline const double *allowed_of(const vt_test_samples *samples, const char *model, int64_t batch)
{
    static char *last;
    static double *allowed;
    const char *key = SETTINGS("%s %lld", model, (long long)batch);
    if (last != NULL && strcmp(last, key) == 0) return allowed;
    side one;
    free(last);
    free(allowed);
    last = strdup(key);
    open_side(&one, samples, batch, model, &(vt_launch){.world_size = 1, .local_size = 1});
    allowed = measure_allowed(one.trainer, &one.batch);
    close_side(&one);
    return allowed;
}

static inline void compare_with_one(const vt_test_samples *samples, const char *model, const char *layout,
                                    int64_t batch)
{
    vt_launch launch, alone = {.world_size = 1, .local_size = 1};
    EXPECT_OK(vt_launch_detect(&launch));
    const double *allowed = launch.rank == 0 ? allowed_of(samples, model, batch) : NULL;
    const char *what = SETTINGS("%s %s", model, layout);
    side one, many;
    open_side(&one, samples, batch, model, &alone);
    open_side(&many, samples, batch, what, &launch);
    for (int step = 0; step < STEPS; step++) {
        vt_step_figures expected, actual;
        EXPECT_OK(vt_step_train(one.trainer, &one.batch, &expected));
        EXPECT_OK(vt_step_train(many.trainer, &many.batch, &actual));
        EXPECT(fabs(actual.loss - expected.loss) <= promised_loss(step) * expected.loss,
               "%s: step %d: loss %.9g, expected %.9g", what, step, actual.loss, expected.loss);
        if (step == 0) compare_gradients(one.trainer, many.trainer, allowed, what);
    }
    vt_evaluation sums[2];
    side *const sides[2] = {&one, &many};
    for (int i = 0; i < 2; i++) {
        vt_step_evaluation_open(sides[i]->trainer, false, &sums[i]);
        EXPECT_OK(vt_step_evaluate(sides[i]->trainer, &sides[i]->batch, &sums[i]));
        vt_step_evaluation_finish(sides[i]->trainer, &sums[i]);
    }
    EXPECT_NEAR(sums[1].loss, sums[0].loss, 1e-5 * sums[0].loss);
    for (int i = 0; i < 2; i++) vt_evaluation_close(&sums[i]);
    close_side(&one);
    close_side(&many);
}

#endif
