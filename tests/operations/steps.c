/* Decisions that a step makes by itself on every path, and whole steps that a device runs while the host is ahead:
 * recorded, replayed, and read one step late. */
#include <stdlib.h>
#include <string.h>

#include "backend/step_state.h"
#include "base/profile.h"
#include "operations/paths.h"
#include "rig.h"
#include "training/plan.h"
#include "unit/data_files.h"

/* ---- decisions ---- */

static vt_step_state decide(vt_backend *b, const vt_update *update, vt_step_state state)
{
    b->step_decide(b, update, &state);
    return state;
}

GPU_TEST(a_step_decides_whether_there_is_an_update)
{
    const vt_update update = {.kind = VT_OPTIMIZER_Adam, .beta1 = 0.9, .beta2 = 0.95, .gradient_clip = INFINITY};
    FOR_EACH_BACKEND(isa, b)
    {
        vt_step_state next = decide(b, &update, (vt_step_state){.squares = 9, .updates = 1, .loss_scale = 1});
        EXPECT(next.updates == 2 && next.factor == 1 && next.gradient_norm == 3 && !next.stopped);
        EXPECT_NEAR(next.correction1, 1 - 0.81, 1e-15);
        EXPECT_NEAR(next.correction2, 1 - 0.9025, 1e-15);
        vt_update clips = update;
        clips.gradient_clip = 0.3;
        next = decide(b, &clips, (vt_step_state){.squares = 9, .loss_scale = 1});
        EXPECT_NEAR(next.factor, 0.3 / (3 + 1e-6), 1e-8);
        const double bad[][2] = {{INFINITY, 1}, {NAN, 1}, {9, NAN}}; /* squares, losses */
        for (int i = 0; i < 3; i++) {
            const vt_step_state state = {.squares = bad[i][0], .losses = bad[i][1], .updates = 7, .loss_scale = 1};
            next = decide(b, &update, state);
            EXPECT(isnan(next.factor) && next.updates == 7 && next.loss_scale == 1 && !next.stopped, "case %d", i);
        }
    }
}

/* After the first step that is not finite there is no update, even if the next steps are finite. */
GPU_TEST(a_run_that_stops_makes_no_update_any_more)
{
    const vt_update update = {.beta1 = 0.9, .beta2 = 0.95, .gradient_clip = INFINITY, .stops = true};
    FOR_EACH_BACKEND(isa, b)
    {
        vt_step_state state = decide(b, &update, (vt_step_state){.squares = NAN, .updates = 4, .loss_scale = 1});
        EXPECT(state.stopped && isnan(state.factor));
        state.squares = 1;
        state = decide(b, &update, state);
        EXPECT(state.stopped && isnan(state.factor) && state.updates == 4);
    }
}

/* trainer.md's numbers: from 2^16, halved at each overflow, doubled after 2000 clean steps; never a stop. */
GPU_TEST(the_loss_scale_follows_overflows)
{
    const vt_update update = {.beta1 = 0.9,
                              .beta2 = 0.95,
                              .gradient_clip = 0.5,
                              .scales_loss = true,
                              .stops = true,
                              .window = 2000,
                              .hysteresis = 1};
    FOR_EACH_BACKEND(isa, b)
    {
        const double norm = 2;
        vt_step_state state = {.loss_scale = 65536, .squares = INFINITY};
        state = decide(b, &update, state);
        EXPECT(state.loss_scale == 32768 && isnan(state.factor) && !state.stopped && state.updates == 0);
        for (int i = 0; i < 2000; i++) {
            EXPECT(state.loss_scale == 32768, "step %d", i);
            state.squares = norm * norm * state.loss_scale * state.loss_scale;
            const double scale = state.loss_scale;
            state = decide(b, &update, state);
            EXPECT_NEAR(state.gradient_norm, norm, 1e-12);
            EXPECT_NEAR((double)state.factor * scale, 0.5 / (norm + 1e-6), 1e-7);
        }
        EXPECT(state.loss_scale == 65536 && state.clean_steps == 0 && state.updates == 2000);
    }
}

/* Each letter is a step: o overflows, c is clean. */
static void check_scale(vt_backend *b, const vt_update *rule, const char *steps, double expected, bool stopped)
{
    vt_step_state state = {.loss_scale = 16, .tolerated = rule->hysteresis};
    for (const char *step = steps; *step != '\0'; step++) {
        state.squares = *step == 'o' ? INFINITY : 1;
        state = decide(b, rule, state);
        EXPECT(isnan(state.factor) == (*step == 'o' || state.stopped), "%s", steps);
    }
    EXPECT(state.loss_scale == expected && state.stopped == stopped, "%s: %g, not %g, stopped %d", steps,
           state.loss_scale, expected, (int)state.stopped);
}

/* optimizers.md, section 5: with hysteresis 2 the second overflow halves the scale, and each one after it until the
 * scale is doubled, or until a clean step where it refills. */
GPU_TEST(the_loss_scale_tolerates_overflows_and_has_a_limit)
{
    const vt_update rule = {.beta1 = 0.9,
                            .beta2 = 0.95,
                            .gradient_clip = INFINITY,
                            .scales_loss = true,
                            .window = 3,
                            .hysteresis = 2,
                            .least_scale = 3};
    vt_update refills = rule, fixed = rule;
    refills.refills = true;
    fixed.fixed_scale = true;
    FOR_EACH_BACKEND(isa, b)
    {
        check_scale(b, &rule, "o", 16, false);
        check_scale(b, &rule, "oo", 8, false);
        check_scale(b, &rule, "occo", 8, false);
        check_scale(b, &rule, "occoo", 4, false);
        check_scale(b, &rule, "occoccc", 16, false);
        check_scale(b, &rule, "occoccco", 16, false); /* doubled: one is tolerated again */
        check_scale(b, &rule, "ccocc", 16, false);    /* the count of clean steps begins anew */
        check_scale(b, &rule, "ccc", 32, false);
        check_scale(b, &rule, "oooo", 3, false); /* 8, 4, and never below 3 */
        check_scale(b, &rule, "ooooo", 3, true);
        check_scale(b, &rule, "oooooc", 3, true); /* no update comes after that */
        check_scale(b, &refills, "oco", 16, false);
        check_scale(b, &refills, "ocoo", 8, false);
        check_scale(b, &fixed, "oooooooo", 16, false);
        check_scale(b, &fixed, "cccccc", 16, false);
    }
}

GPU_TEST(the_first_parameter_that_is_not_finite)
{
    enum { SIZE = 2000 };
    static const int64_t ranges[] = {0, 7, 7, 1, 8, 1013, 1100, 500, 1600, 400};
    float *x = vt_test_owned(malloc(SIZE * sizeof *x));
    FOR_EACH_PATH(isa)
    {
        SCOPED(vt_backend) *b = open_path(isa);
        int32_t first = -1;
        const double fine = 1, broken = INFINITY;
        for (int i = 0; i < SIZE; i++) x[i] = (float)i;
        x[1050] = NAN; /* between two ranges */
        b->first_nonfinite(b, x, ranges, 5, NULL, &first);
        EXPECT(first == 5, "%d", first);
        x[1999] = NAN;
        b->first_nonfinite(b, x, ranges, 5, &broken, &first);
        EXPECT(first == 4, "%d", first);
        x[1020] = -INFINITY;
        b->first_nonfinite(b, x, ranges, 5, &broken, &first);
        EXPECT(first == 2, "%d", first);
        b->first_nonfinite(b, x, ranges, 5, &fine, &first); /* not looked for */
        EXPECT(first == 5, "%d", first);
        x[7] = NAN;
        b->first_nonfinite(b, x, ranges, 5, NULL, &first);
        EXPECT(first == 1, "%d", first);
        EXPECT_OK(b->check(b));
    }
}

/* ---- whole steps ---- */

enum { HEIGHT = 8, WIDTH = 16, CHANNELS = 2, BATCH = 4, BATCHES = 6, BAD = 3 /* the batch with a NaN */ };

static const int64_t samples[BATCH] = {40, 41, 42, 43};
static float fields[BATCHES][2][BATCH * CHANNELS * HEIGHT * WIDTH];
static vt_dataset *samples_from; /* NULL: not known */
static int short_batch = -1;     /* this batch counts one sample less, as a text's last one may; -1: none does */

static vt_batch batch_of(int step)
{
    return (vt_batch){.sample_count = BATCH,
                      .global_count = step == short_batch ? BATCH - 1 : BATCH,
                      .tensors = {fields[step][0], fields[step][1]},
                      .source = samples_from != NULL ? &samples_from->source : NULL,
                      .samples = samples};
}

static void open_model(rig *m, vt_cpu_isa isa, const char *settings)
{
    static const char small[] = "img_size=[8,16] patch_size=4 embed_dim=16 depth=2 num_heads=2 n_in_channels=2 "
                                "n_out_channels=2 global_batch_size=4 lr=1e-2 dropout=0.1 num_iters=100";
    *m = (rig){.config = config_with(1, small, settings)};
    EXPECT_OK(path_open_trainers(isa, &m->backend));
    EXPECT_OK(rig_open(m, NULL, NULL, false));
    for (int step = 0; step < BATCHES; step++)
        for (int i = 0; i < BATCH * CHANNELS * HEIGHT * WIDTH; i++) {
            fields[step][0][i] = sinf(0.37f * (float)(i + 100 * step));
            fields[step][1][i] = sinf(0.37f * (float)(i + 100 * step) + 0.3f);
        }
}

/* Like the loop: a batch's memory belongs to the readers again as soon as its step was started, and each step's figures
 * are read when the next step has been started. */
static vt_status train_from(rig *m, int first, int steps, vt_step_figures *figures)
{
    vt_status status = VT_OK;
    int taken = first;
    void *memory = NULL;
    VT_TRY(m->backend->allocate_host(m->backend, sizeof fields[0], &memory));
    for (int step = first; step < steps; step++) {
        vt_batch batch = batch_of(step);
        memcpy(memory, fields[step], sizeof fields[step]);
        batch.tensors[0] = memory;
        batch.tensors[1] = (float *)memory + BATCH * CHANNELS * HEIGHT * WIDTH;
        VT_TRY(vt_step_start(m->trainer, &batch));
        memset(memory, 0xff, sizeof fields[step]); /* NaN */
        while (m->trainer->pending > (step + 1 < steps ? vt_step_latency(m->trainer) : 0))
            VT_TRY(vt_step_take(m->trainer, &figures[taken++]));
    }
done:
    m->backend->release_host(m->backend, memory);
    return status;
}

static vt_status train(rig *m, int steps, vt_step_figures *figures)
{
    return train_from(m, 0, steps, figures);
}

/* Dropout, learning rate and optimizer change from step to step in a recording as they do without one. */
static void check_replayed(vt_cpu_isa isa, const char *settings, const vt_step_figures expected[BATCHES])
{
    vt_step_figures actual[BATCHES];
    SCOPED(rig) m;
    open_model(&m, isa, settings);
    EXPECT(vt_step_latency(m.trainer) == 1);
    EXPECT_OK(train(&m, BATCHES, actual));
    EXPECT(m.trainer->steps_replayed == BATCHES - 2, "%ld", m.trainer->steps_replayed);
    EXPECT(m.backend->replay(m.backend), "nothing was recorded");
    for (int step = 0; step < BATCHES; step++) {
        EXPECT(actual[step].step == step + 1);
        EXPECT_NEAR(actual[step].loss, expected[step].loss, 2e-5 * expected[step].loss);
        EXPECT_NEAR(actual[step].gradient_norm, expected[step].gradient_norm, 2e-4 * expected[step].gradient_norm);
        EXPECT_NEAR(actual[step].learning_rate, expected[step].learning_rate, 0);
    }
}

static void check_all_replayed(bool is_long)
{
    static const char *const settings[] = {"enable_jit=true", "enable_jit=true grad_accumulation=2",
                                           "enable_jit=true recompute=block", "enable_jit=true recompute=linear",
                                           "enable_jit=true keep_outputs=true"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        vt_step_figures expected[BATCHES];
        rig plain;
        open_model(&plain, VT_ISA_PLAIN, settings[i]);
        EXPECT_OK(train(&plain, BATCHES, expected));
        rig_close(&plain);
        FOR_EACH_CUDA_STEP_PATH(isa)
        if (path_has_turn(isa, i) != is_long) check_replayed(isa, settings[i], expected);
    }
}

GPU_TEST(replayed_steps_are_the_same)
{
    check_all_replayed(false);
}

LONG_GPU_TEST(replayed_steps_are_the_same_on_the_other_paths)
{
    check_all_replayed(true);
}

/* It is the batch of the step that would be recorded, or of a later one. */
GPU_TEST(a_batch_that_counts_fewer_samples_is_not_replayed)
{
    static const char settings[] = "enable_jit=true";
    for (short_batch = 2; short_batch < BATCHES - 1; short_batch += 2) {
        vt_step_figures expected[BATCHES], actual[BATCHES];
        SCOPED(rig) plain;
        open_model(&plain, VT_ISA_PLAIN, settings);
        EXPECT_OK(train(&plain, BATCHES, expected));
        FOR_EACH_CUDA_STEP_PATH(isa) if (path_has_turn(isa, (size_t)short_batch))
        {
            SCOPED(rig) m;
            open_model(&m, isa, settings);
            EXPECT_OK(train(&m, BATCHES, actual));
            EXPECT(m.trainer->steps_replayed == BATCHES - 3, "%ld", m.trainer->steps_replayed);
            for (int step = 0; step < BATCHES; step++)
                EXPECT_NEAR(actual[step].gradient_norm, expected[step].gradient_norm,
                            2e-4 * expected[step].gradient_norm);
        }
    }
    short_batch = -1;
}

/* Steps with offload: the first two are not recorded, and before the last two comes an evaluation. */
enum { OFFLOADED = 5 };

/* Trains and evaluates; losses and norms, and the values at last. */
static float *train_and_evaluate(rig *m, vt_step_figures *figures, double *validation)
{
    vt_evaluation evaluation = {0};
    const vt_batch batch = batch_of(BATCHES - 1);
    vt_parameters *parameters = rig_parameters(m);
    const size_t bytes = rig_value_bytes(m);
    float *values = vt_test_owned(malloc(bytes));
    EXPECT_OK(train_from(m, 0, OFFLOADED - 2, figures));
    rig_evaluate(m, &batch, false, &evaluation);
    *validation = evaluation.loss;
    vt_evaluation_close(&evaluation);
    EXPECT_OK(train_from(m, OFFLOADED - 2, OFFLOADED, figures));
    m->backend->copy_to_host(m->backend, values, parameters->values, bytes);
    return values;
}

/* Whenever the copies are made: the bits of a run whose activations stay, and the memory that was planned. */
static void check_offloaded(vt_cpu_isa isa, const char *settings)
{
    vt_step_figures figures[2][OFFLOADED];
    double validation[2];
    float *values[2];
    int64_t replayed[2];
    size_t bytes[2];
    for (int offloads = 0; offloads < 2; offloads++) {
        SCOPED(rig) m;
        vt_plan plan;
        open_model(&m, isa, SETTINGS("%s%s", settings, offloads ? " offload_activations=host" : ""));
        values[offloads] = train_and_evaluate(&m, figures[offloads], &validation[offloads]);
        replayed[offloads] = m.trainer->steps_replayed;
        const vt_plan_options options = {.device_memory = true, .draws_ahead = m.backend->draws_ahead};
        EXPECT_OK(vt_plan_make(m.config, &options, &plan));
        bytes[offloads] = activation_bytes(m.trainer);
        EXPECT(bytes[offloads] == plan.arena_bytes + plan.shared_bytes + vt_offload_device_bytes(plan.offload),
               "%s: %zu bytes", settings, bytes[offloads]);
        EXPECT((plan.pinned_bytes > 0) == (offloads == 1));
        if (offloads == 1)
            EXPECT(memcmp(values[0], values[1], rig_value_bytes(&m)) == 0, "path %d, %s: other values", (int)isa,
                   settings);
    }
    EXPECT(validation[0] == validation[1] && replayed[0] == replayed[1]);
    EXPECT(bytes[1] < bytes[0], "%s: %zu bytes instead of %zu", settings, bytes[1], bytes[0]);
    for (int step = 0; step < OFFLOADED; step++)
        EXPECT(figures[0][step].loss == figures[1][step].loss &&
                   figures[0][step].gradient_norm == figures[1][step].gradient_norm,
               "path %d, %s, step %d: %.9g instead of %.9g", (int)isa, settings, step, figures[1][step].loss,
               figures[0][step].loss);
}

static void check_all_offloaded(bool is_long)
{
    static const char *const settings[] = {"depth=5 amp_mode=bf16", "enable_jit=true depth=5 grad_accumulation=2",
                                           "enable_jit=true depth=4 recompute=block"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) FOR_EACH_CUDA_STEP_PATH(isa)
    if (path_has_turn(isa, i) != is_long) check_offloaded(isa, settings[i]);
}

GPU_TEST(offloaded_activations_change_no_bit)
{
    check_all_offloaded(false);
}

LONG_GPU_TEST(offloaded_activations_change_no_bit_on_the_other_paths)
{
    check_all_offloaded(true);
}

static void expect_losses(const vt_step_figures *actual, const vt_step_figures *expected)
{
    for (int step = 0; step < BATCHES; step++)
        EXPECT_NEAR(actual[step].loss, expected[step].loss, 2e-5 * expected[step].loss);
}

/* Validation between two steps uses the same memory, and may need more of it: the step is recorded again. */
GPU_TEST(an_evaluation_between_steps_changes_nothing)
{
    static const char settings[] = "enable_jit=true";
    vt_step_figures expected[BATCHES], actual[BATCHES];
    SCOPED(rig) plain;
    open_model(&plain, VT_ISA_PLAIN, settings);
    EXPECT_OK(train(&plain, BATCHES, expected));
    FOR_EACH_CUDA_STEP_PATH(isa)
    {
        SCOPED(rig) m;
        SCOPED(vt_evaluation) evaluation = {0};
        const vt_batch batch = batch_of(BATCHES - 1);
        open_model(&m, isa, settings);
        vt_step_evaluation_open(m.trainer, true, &evaluation);
        EXPECT_OK(train_from(&m, 0, BAD, actual));
        EXPECT_OK(vt_step_evaluate(m.trainer, &batch, &evaluation));
        EXPECT_OK(train_from(&m, BAD, BATCHES, actual));
        expect_losses(actual, expected);
        EXPECT(m.trainer->steps_replayed == BATCHES - 2, "path %d: %ld", (int)isa, m.trainer->steps_replayed);
    }
}

/* Epoch 1 has another loss than the recorded steps of epoch 0. Its first step is profiled, so that it runs without a
 * recording. The validation after it must not let the next step replay the recording of epoch 0. */
GPU_TEST(an_evaluation_keeps_no_recording_of_another_loss)
{
    vt_step_figures expected[BATCHES], actual[BATCHES];
    FOR_EACH_CUDA_STEP_PATH(isa) for (int replays = 0; replays < 2 && path_has_turn(isa, 0); replays++)
    {
        SCOPED(rig) m;
        SCOPED(vt_evaluation) evaluation = {0};
        const vt_batch batch = batch_of(BATCHES - 1);
        open_model(&m, isa, replays ? "enable_jit=true loss=mse,mae@1" : "loss=mse,mae@1");
        vt_trainer_set_epoch(m.trainer, 0);
        EXPECT_OK(train_from(&m, 0, BAD, actual));
        vt_trainer_set_epoch(m.trainer, 1);
        vt_profile_records = true; /* a profiled step is not replayed */
        EXPECT_OK(train_from(&m, BAD, BAD + 1, actual));
        vt_profile_records = false;
        vt_step_evaluation_open(m.trainer, true, &evaluation);
        EXPECT_OK(vt_step_evaluate(m.trainer, &batch, &evaluation));
        EXPECT_OK(train_from(&m, BAD + 1, BATCHES, actual));
        if (replays)
            expect_losses(actual, expected);
        else
            memcpy(expected, actual, sizeof expected);
    }
}

/* The step runs without a recording, which is reported and tried again, but not for ever. */
TEST(a_step_that_can_not_be_recorded_runs_all_the_same)
{
    static const char settings[] = "enable_jit=true";
    static const int replayed[] = {BATCHES - 2, BATCHES - 3, BATCHES - 4, 0}; /* after that many refusals */
    vt_step_figures expected[BATCHES], actual[BATCHES];
    rig plain;
    if (!path_is_available(PATH_STREAMS_LATE)) return vt_test_skip("built without CUDA, or no C++ compiler was found");
    open_model(&plain, VT_ISA_PLAIN, settings);
    EXPECT_OK(train(&plain, BATCHES, expected));
    for (int refusals = 0; refusals < 4; refusals++) {
        SCOPED(rig) m;
        open_model(&m, PATH_STREAMS_LATE, settings);
        refuse_graphs(refusals);
        EXPECT_OK(train(&m, BATCHES, actual));
        expect_losses(actual, expected);
        EXPECT(m.trainer->steps_replayed == replayed[refusals], "%d refusals: %ld", refusals,
               m.trainer->steps_replayed);
    }
    rig_close(&plain);
}

static const char every_path[] = "enable_jit=true";

/* One NaN in sample 2 of the fourth batch: the fourth step is reported, although the fifth may have been started. */
GPU_TEST(a_non_finite_step_is_reported_one_step_late)
{
    FOR_EACH_STEP_PATH(isa)
    {
        float *values[2];
        vt_step_figures figures[BATCHES] = {0};
        for (int i = 0; i < 2; i++) { /* without the bad step, and with it */
            SCOPED(rig) m;
            open_model(&m, isa, every_path);
            if (i == 0) {
                EXPECT_OK(train(&m, BAD, figures));
            } else {
                fields[BAD][0][2 * CHANNELS * HEIGHT * WIDTH + 3] = NAN;
                EXPECT_ERROR(train(&m, BATCHES, figures), "step 4: the gradients are not finite");
                const char *first = vt_trainer_parameters(m.trainer)->list[0]->name; /* one bad sample spoils all */
                EXPECT(figures[BAD].bad_parameter != NULL && strcmp(figures[BAD].bad_parameter, first) == 0);
            }
            size_t bytes =
                (size_t)vt_parameters_block_elements(vt_trainer_parameters(m.trainer), VT_BLOCK_VALUES) * sizeof(float);
            values[i] = malloc(bytes);
            m.backend->copy_to_host(m.backend, values[i], vt_trainer_parameters(m.trainer)->values, bytes);
            if (i == 1) EXPECT(memcmp(values[0], values[1], bytes) == 0, "path %d: there was an update", (int)isa);
        }
        EXPECT(figures[BAD - 1].bad_sample == -1 && isfinite(figures[BAD - 1].gradient_norm));
        EXPECT(figures[BAD].step == BAD + 1 && figures[BAD].bad_sample == 42, "step %ld, sample %ld", figures[BAD].step,
               figures[BAD].bad_sample);
        free(values[0]);
        free(values[1]);
    }
}

GPU_TEST(a_step_that_is_not_finite_is_left_out)
{
    FOR_EACH_STEP_PATH(isa)
    {
        SCOPED(rig) m;
        vt_step_figures figures[BATCHES] = {0};
        open_model(&m, isa, "enable_jit=true on_nonfinite=skip");
        fields[BAD][0][0] = NAN;
        EXPECT_OK(train(&m, BATCHES, figures));
        EXPECT(!isfinite(figures[BAD].gradient_norm) && figures[BAD].bad_sample == 40);
        for (int step = BAD + 1; step < BATCHES; step++) EXPECT(isfinite(figures[step].gradient_norm));
        EXPECT(vt_optimizer_progress_of(vt_trainer_subject(m.trainer).optimizer).updates == BATCHES - 1);
    }
}

/* A NaN of the file, in sample 2 of the fourth batch: reported as such, even if another sample would replace it. The
 * following step, if it has been started, makes no update in a run that stops; otherwise it does, and its result is
 * used. */
GPU_TEST(bad_data_of_a_step_are_reported)
{
    static const char *const settings[] = {"enable_jit=true", "enable_jit=true on_nonfinite=skip",
                                           "enable_jit=true amp_mode=fp16"};
    test_fields file = {.times = 46, .channels = CHANNELS, .height = HEIGHT, .width = WIDTH, .poison = NAN};
    file.poison_index = 42 * CHANNELS * HEIGHT * WIDTH + 3;
    test_fields_write(test_path("2001.h5"), &file);
    vt_dataset_options options = test_fields_options(&file);
    options.direct = options.unchecked = true;
    samples_from = test_open(&options);
    FOR_EACH_STEP_PATH(isa)
    for (int i = 0; i < 3; i++) {
        SCOPED(rig) m;
        vt_step_figures figures[BATCHES] = {0};
        open_model(&m, isa, settings[i]);
        fields[BAD][0][2 * CHANNELS * HEIGHT * WIDTH + 3] = NAN;
        EXPECT_ERROR(train(&m, BATCHES, figures), "2001.h5: 'fields' is NaN at time 42, channel 0, row 0, column 3");
        EXPECT(figures[BAD].bad_data && figures[BAD].step == BAD + 1 && figures[BAD].bad_sample == 42);
        EXPECT(m.trainer->pending == (i == 0 ? 0 : vt_step_latency(m.trainer)), "%ld are pending, path %d, case %d",
               m.trainer->pending, (int)isa, i);
        if (m.trainer->pending > 0) EXPECT_OK(vt_step_take(m.trainer, &figures[BAD + 1]));
        int64_t updates = BAD + (i == 0 ? 0 : vt_step_latency(m.trainer));
        EXPECT(vt_optimizer_progress_of(vt_trainer_subject(m.trainer).optimizer).updates == updates, "path %d, case %d",
               (int)isa, i);
    }
    vt_dataset_close(&samples_from);
}
