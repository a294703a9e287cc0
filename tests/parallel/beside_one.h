/* A model over ranks beside the same on one rank: the loss and the gradients of a step, the losses of a few,
 * evaluations, and forecasts of the weather. */
#ifndef VT_TESTS_BESIDE_ONE_H
#define VT_TESTS_BESIDE_ONE_H

#include "gradients.h"
#include "parallel/launch.h"
#include "rig.h"

enum { STEPS = 4, MOST = 8 /* samples of a batch */, HEIGHT = 20, WIDTH = 12 /* of forecasts */ };

typedef struct {
    rig rig;
    vt_batch batch;
} side;

/* Draws ahead what dropout of attention keeps, which a CPU doesn't need; every call of attention must get its own. */
static vt_backend unwatched;

static inline void check_drawn(vt_backend *b, const vt_attention_shape *shape)
{
    if (shape->dropout.rate <= 0) return;
    const size_t bytes = (size_t)vt_attention_drawn_count(shape) * sizeof *shape->drawn;
    uint16_t *expected = malloc(bytes);
    VT_ASSERT(expected != NULL);
    b->attention_draw(b, shape, expected);
    EXPECT(shape->drawn != NULL && memcmp(shape->drawn, expected, bytes) == 0, "%ld keys from %ld on: drawn for others",
           shape->keys, shape->first_key);
    free(expected);
}

static inline void watched_forward(vt_backend *b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                   vt_matrix v, vt_matrix out, float *log_sum)
{
    check_drawn(b, shape);
    unwatched.attention_forward(b, shape, q, k, v, out, log_sum);
}

static inline void watched_backward(vt_backend *b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                    vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                    vt_matrix dk, vt_matrix dv)
{
    check_drawn(b, shape);
    unwatched.attention_backward(b, shape, q, k, v, out, log_sum, dout, dq, dk, dv);
}

static inline vt_status open_watched_cpu(vt_backend **b)
{
    const vt_status status = vt_backend_open_cpu(VT_ISA_AUTO, 0, b);
    if (status != VT_OK) return status;
    unwatched = **b;
    (*b)->draws_ahead = true;
    (*b)->attention_forward = watched_forward;
    (*b)->attention_backward = watched_backward;
    return status;
}

/* Each file of tests opens its own; `settings` are those of the model and of the layout. */
typedef void open_side_function(side *s, const char *settings, const vt_launch *launch);

/* The samples of a file of tests that has all of them on every rank, and the settings that all its models share. */
typedef struct {
    const char *settings;
    const char *tensors[2]; /* MOST inputs, and as many targets */
    size_t bytes[2];        /* of one of them */
    int64_t left_out;       /* so many of the last samples of a batch have no target and do not count */
} vt_test_samples;

static inline void open_samples(side *s, const vt_test_samples *samples, const char *settings, const vt_launch *launch)
{
    *s = (side){.rig.config = config_with(launch->world_size, samples->settings, settings)};
    rig *r = &s->rig;
    EXPECT_OK(vt_world_open(r->config, launch, &r->world));
    EXPECT_OK(open_watched_cpu(&r->backend));
    const vt_trainer_options options = {.steps = 10, .world = r->world};
    EXPECT_OK(vt_trainer_open(r->config, &options, r->backend, &r->trainer));
    const int64_t batch = r->config->global_batch_size, local = batch / r->config->data_parallel;
    const int64_t first = local * r->world->coordinate[VT_AXIS_DATA];
    s->batch = (vt_batch){.sample_count = local,
                          .global_count = batch - samples->left_out,
                          .first_sample = first,
                          .first_in_batch = first,
                          .tensors = {samples->tensors[0] + (size_t)first * samples->bytes[0],
                                      samples->tensors[1] + (size_t)first * samples->bytes[1]}};
}

static inline void side_close(side *s)
{
    rig_close(&s->rig);
}

/* What a side computes. */
typedef struct {
    double losses[STEPS], *gradients; /* the first step's */
    vt_evaluation plain[2], averaged; /* [0]: the other tasks' after the steps, the weather's before them */
    float fields[2 * HEIGHT * WIDTH]; /* a picture's, which rank 0 needs whole */
} record;

static inline bool has_averages(const side *s)
{
    return !isnan(s->rig.config->ema_decay);
}

/* The weights' averages, and the weights, which training goes on with as if the averages had not been used. */
static inline void follow_averages(side *s, record *r, const char *what)
{
    const size_t bytes = rig_value_bytes(&s->rig);
    const float *values = rig_parameters(&s->rig)->values;
    float *before = vt_test_owned(malloc(bytes + 1));
    memcpy(before, values, bytes);
    vt_trainer_exchange_average(s->rig.trainer);
    EXPECT(memcmp(before, values, bytes) != 0, "%s: the average is the weights", what);
    rig_evaluate(&s->rig, &s->batch, true, &r->averaged);
    vt_trainer_exchange_average(s->rig.trainer);
    EXPECT(memcmp(before, values, bytes) == 0, "%s: the weights are not back", what);
    rig_evaluate(&s->rig, &s->batch, true, &r->plain[1]);
}

/* Collective; *r is to be released. */
static inline void follow(side *s, record *r, const char *what)
{
    const vt_picture_part part = {.field = 1, .height = HEIGHT, .width = WIDTH};
    const bool weather = s->rig.task != NULL;
    *r = (record){0};
    if (weather) rig_evaluate(&s->rig, &s->batch, true, &r->plain[0]);
    for (int step = 0; step < STEPS; step++) {
        r->losses[step] = rig_train(&s->rig, &s->batch, 1);
        if (step == 0) r->gradients = gather_gradients(s->rig.trainer);
    }
    if (weather)
        EXPECT_OK(vt_step_forecast(s->rig.trainer, &s->batch, part, r->fields, r->fields + HEIGHT * WIDTH));
    else
        rig_evaluate(&s->rig, &s->batch, false, &r->plain[0]);
    if (has_averages(s)) follow_averages(s, r, what);
}

static inline void release(record *r)
{
    free(r->gradients);
    for (int i = 0; i < 2; i++) vt_evaluation_close(&r->plain[i]);
    vt_evaluation_close(&r->averaged);
}

static inline void compare_evaluations(const vt_evaluation *one, const vt_evaluation *many, const side *s)
{
    EXPECT(many->samples == (double)s->rig.config->global_batch_size, "%g samples", many->samples);
    EXPECT_NEAR(many->loss, one->loss, 1e-5 * one->loss);
    if (s->rig.task == NULL) return;
    EXPECT_NEAR(many->baseline_loss, one->baseline_loss, 1e-5 * one->baseline_loss);
    for (int c = 1; c <= s->rig.config->n_out_channels; c++)
        EXPECT_NEAR(many->model.values[c], one->model.values[c], 1e-5 * one->model.values[c]);
}

/* What one rank computes, and what rounding does to its gradients (NULL on ranks that leave their comparison to rank
 * 0): the same for all layouts of a model. */
typedef struct {
    char *model;
    record record;
    double *allowed;
} expectation;

static inline const expectation *expect_of(const char *model, open_side_function *open_side, int rank)
{
    static expectation last;
    const vt_launch alone = {.world_size = 1, .local_size = 1};
    side one;
    if (last.model != NULL && strcmp(last.model, model) == 0) return &last;
    free(last.model);
    free(last.allowed);
    release(&last.record);
    last = (expectation){.model = strdup(model)};
    open_side(&one, model, &alone);
    follow(&one, &last.record, model);
    side_close(&one);
    if (rank > 0) return &last;
    open_side(&one, model, &alone);
    last.allowed = measure_allowed(one.rig.trainer, &one.batch);
    side_close(&one);
    return &last;
}

/* Settings of the model, all that its samples depend on among them, then those of the layout, which one rank does not
 * get. */
static inline void compare_with_one(const char *model, const char *layout, open_side_function *open_side)
{
    vt_launch launch;
    EXPECT_OK(vt_launch_detect(&launch));
    const expectation *expected = expect_of(model, open_side, launch.rank);
    const record *one = &expected->record;
    const char *what = SETTINGS("%s %s", model, layout);
    record many;
    SCOPED(side) s;
    open_side(&s, what, &launch);
    follow(&s, &many, what);
    for (int step = 0; step < STEPS; step++)
        EXPECT(fabs(many.losses[step] - one->losses[step]) <= promised_loss(step) * one->losses[step],
               "%s: step %d: loss %.9g, expected %.9g", what, step, many.losses[step], one->losses[step]);
    if (launch.rank == 0)
        compare_gradients(rig_parameters(&s.rig), one->gradients, many.gradients, expected->allowed, what);
    compare_evaluations(&one->plain[0], &many.plain[0], &s);
    if (has_averages(&s)) {
        compare_evaluations(&one->averaged, &many.averaged, &s);
        compare_evaluations(&one->plain[1], &many.plain[1], &s);
    }
    for (int i = 0; i < 2 * HEIGHT * WIDTH && launch.rank == 0; i++) {
        const float wanted = one->fields[i], got = many.fields[i];
        EXPECT(isnan(wanted) ? isnan(got) : fabs(got - wanted) < 1e-4, "%s: the fields' number %d: %g, expected %g",
               what, i, (double)got, (double)wanted);
    }
    release(&many);
}

#endif
