/* A trainer over the weather task, with its configuration and back end, for tests. */
#ifndef VT_TESTS_RIG_H
#define VT_TESTS_RIG_H

#include "config/roles.h"
#include "settings.h"
#include "task/weather.h"
#include "training/step.h"
#include "training/trainer_inside.h"

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_world *world; /* NULL: this rank alone */
    vt_task *task;
    vt_trainer *trainer;
} rig;

/* The one with this name, or NULL. */
static inline vt_parameter *find_parameter(const vt_parameters *parameters, const char *name)
{
    for (int64_t i = 0; i < parameters->count; i++)
        if (strcmp(parameters->list[i]->name, name) == 0) return parameters->list[i];
    return NULL;
}

/* The weather task of channels, which have numbers for names, with these means, standard deviations and those of their
 * changes over dt (NULL: 0, 1, not known), which no file says. */
static inline vt_task *open_weather(const vt_config *config, const float *means, const float *stds,
                                    const float *changes, const double *latitudes)
{
    vt_task *task = NULL;
    vt_fields_about *about = vt_fields_about_make();
    about->channels = vt_config_frame_channels(config);
    vt_transform *transforms = NULL;
    EXPECT_OK(vt_transforms_parse(config->transform, config->bounds, NULL, about->channels, &transforms));
    const vt_weather_data data = {.about = about,
                                  .name = "the data",
                                  .latitudes = latitudes,
                                  .transforms = transforms != NULL ? vt_test_owned(transforms) : NULL,
                                  .may_be_unread = true};
    EXPECT_OK(vt_weather_open(config, &data, &task));
    const float *const given[] = {means, stds, changes};
    vt_fields_normalisation *numbers = &about->normalisation;
    double **const lists[] = {&numbers->means, &numbers->stds, &numbers->change_stds};
    for (int i = 0; i < (changes != NULL ? 3 : 2); i++) {
        *lists[i] = malloc((size_t)about->channels * sizeof(double));
        for (int64_t c = 0; c < about->channels; c++) (*lists[i])[c] = given[i] != NULL ? (double)given[i][c] : i;
    }
    task->kind->take_normalisation(task, about, "a test");
    vt_fields_about_close(&about);
    return task;
}

/* Opens task and trainer over the rest, which is the rig's from then on. Channels have these means and standard
 * deviations (both NULL: 0 and 1); rows of the grid lie from pole to pole. */
static inline vt_status rig_open(rig *r, const float *means, const float *stds, bool gpipe)
{
    const int64_t height = r->config->img_size[0];
    double *latitudes = vt_test_owned(malloc((size_t)height * sizeof *latitudes));
    for (int64_t row = 0; row < height; row++) latitudes[row] = 90 - 180.0 * (double)row / (double)(height - 1);
    r->task = open_weather(r->config, means, stds, NULL, latitudes);
    const vt_trainer_options options = {
        .task = r->task, .steps = r->config->num_iters, .world = r->world, .gpipe = gpipe};
    return vt_trainer_open(r->config, &options, r->backend, &r->trainer);
}

static inline void rig_close(rig *r)
{
    vt_trainer_close(&r->trainer);
    vt_task_close(&r->task);
    vt_world_close(&r->world, false);
    vt_backend_close(&r->backend);
    vt_config_close(&r->config);
}

static inline vt_parameters *rig_parameters(const rig *r)
{
    return vt_trainer_parameters(r->trainer);
}

static inline size_t rig_value_bytes(const rig *r)
{
    return (size_t)vt_parameters_block_elements(rig_parameters(r), VT_BLOCK_VALUES) * sizeof(float);
}

/* Do both have the same values, to the bit? */
static inline bool rig_same_values(const rig *a, const rig *b)
{
    return memcmp(rig_parameters(a)->values, rig_parameters(b)->values, rig_value_bytes(a)) == 0;
}

/* Makes steps on one batch; returns the last one's loss. */
static inline double rig_train(rig *r, const vt_batch *batch, int steps)
{
    vt_step_figures figures = {0};
    for (int i = 0; i < steps; i++) EXPECT_OK(vt_step_train(r->trainer, batch, &figures));
    return figures.loss;
}

/* The means over one batch; *result is to be closed. */
static inline void rig_evaluate(rig *r, const vt_batch *batch, bool with_baseline, vt_evaluation *result)
{
    vt_step_evaluation_open(r->trainer, with_baseline, result);
    EXPECT_OK(vt_step_evaluate(r->trainer, batch, result));
    vt_step_evaluation_finish(r->trainer, result);
}

/* The most bytes that the activations of one micro-batch have taken so far. */
static inline size_t activation_bytes(const vt_trainer *trainer)
{
    const vt_offload *offload = trainer->rooms[0].offload;
    const size_t rooms = offload != NULL ? vt_offload_device_bytes(vt_offload_needed(offload)) : 0;
    return trainer->rooms[0].arena.peak + trainer->micro_batches[0].shared.peak + rooms;
}

#endif
