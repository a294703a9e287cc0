/* 3-D U-Nets against PyTorch in float64 (unet.h5, by make_unet_golden.py): prediction, every first gradient, and the
 * losses of 50 steps of Adam (in the short test, 3), for both losses, on every path. The plain loops, which are slow,
 * take single steps; the CUDA kernels on the host, whose convolutions these loops compute, one of the first model. */
#include "backend/cpu/cpu.h"
#include "backend/half.h"
#include "golden/by_hand.h"
#include "operations/paths.h"

extern const vt_loss_kind vt_loss_l1;

typedef struct {
    const char *group;
    int64_t side, batch;
    bool full_scale;
    double lambda;
} golden_unet;

static const golden_unet unets[] = {{"32/l1", 32, 2, false, 0},
                                    {"32/density", 32, 2, false, 0.01},
                                    {"64/l1", 64, 1, true, 0},
                                    {"64/density", 64, 1, true, 0.01},
                                    {"96/l1", 96, 1, false, 0}};

enum { MOST = 600, STEPS = 50, HALF_STEPS = 3, MOST_PARAMETERS = 64 };

/* Differences from PyTorch's float64 numbers, relative: of the prediction, and of each parameter's gradient. */
typedef struct {
    double prediction, gradients[MOST_PARAMETERS];
} differences;

/* About normal, as the script makes them. */
static float *numbers(uint64_t seed, int64_t count, double scale)
{
    float *values = vt_test_owned(malloc((size_t)count * sizeof *values));
    for (int64_t i = 0; i < count; i++) values[i] = (float)(sum_of_four(seed, i) * (sqrt(3) * scale));
    return values;
}

static float *start(const vt_parameter *parameter, int64_t number)
{
    return numbers(1 + (uint64_t)number, parameter->count, 0.06);
}

static void open_fixture(by_hand *f, const golden_unet *golden, vt_cpu_isa isa, vt_type type, vt_recompute recompute)
{
    const int64_t points = golden->side * golden->side * golden->side;
    *f = (by_hand){0};
    EXPECT_OK(path_open_trainers(isa, &f->m.backend));
    f->m.rank = open_alone(f->m.backend, points);
    vt_config *config = f->m.rank.config;
    config->model = VT_MODEL_unet3d;
    config->data_size = golden->side;
    config->full_scale = golden->full_scale;
    config->unet_width = 8;
    config->lambda_rho = golden->lambda;
    config->betas[0] = 0.9;
    config->betas[1] = 0.999;
    config->recompute = (int)recompute;
    open_bare_model(&f->m, config, type);
    open_bare_training(&f->m, config, type, golden->batch, (size_t)1 << 28);
    f->m.pass.density_weight = golden->lambda;
    make_parameters(f, start);
    for (int t = 0; t < 2; t++) {
        const int64_t channels = 4 + t, count = golden->batch * points * channels;
        const float *values = numbers(100 + (uint64_t)t, count, t == 0 ? 0.3 : 0.15);
        f->tensors[t] =
            (vt_model_tensor){.values = place(f, values, (size_t)count * sizeof *values), .channels = channels};
    }
    f->sums = place(f, NULL, 4 * sizeof *f->sums);
    f->losses = place(f, NULL, 2 * sizeof *f->losses);
}

/* Moves the targets that are nearly predicted at first, as the script does. */
static void move_targets(by_hand *f, const golden_unet *golden, hid_t file)
{
    const int64_t count = golden->batch * golden->side * golden->side * golden->side * 5;
    float *values = fetch_floats(f, f->tensors[1].values, count);
    int64_t moved;
    const double *places = golden_read(file, &moved, "%s/moved", golden->group);
    for (int64_t i = 0; i < moved; i++) values[(int64_t)places[i]] += 0.01f;
    f->m.backend->copy_from_host(f->m.backend, (void *)(uintptr_t)f->tensors[1].values, values,
                                 (size_t)count * sizeof *values);
}

/* At an odd stride, which meets all taps. */
static double difference_of(by_hand *f, hid_t file, const char *group, const char *name, const float *memory,
                            int64_t count)
{
    return difference_of_some(file, group, name, fetch_floats(f, memory, count), count, count / MOST | 1);
}

static double norm_of_gradients(by_hand *f)
{
    double squares = 0;
    for (int64_t i = 0; i < f->m.parameters->count; i++) {
        const vt_parameter *parameter = f->m.parameters->list[i];
        const float *values = fetch_floats(f, parameter->gradient, parameter->count);
        for (int64_t k = 0; k < parameter->count; k++) squares += (double)values[k] * (double)values[k];
    }
    return sqrt(squares);
}

/* Forward and backward; returns the mean of the batch's losses. found NULL: nothing is compared. */
static double pass_over(by_hand *f, hid_t file, const char *group, differences *found)
{
    vt_pass *pass = &f->m.pass;
    vt_matrix prediction = vt_model_forward(f->m.model, pass, f->tensors, (vt_matrix){0}, f->m.saved);
    if (found != NULL)
        found->prediction =
            difference_of(f, file, group, "prediction", prediction.data, prediction.rows * prediction.columns);
    vt_matrix target = vt_model_lay_out(f->m.model, pass, &f->tensors[1]);
    const vt_compared what = {
        .kind = &vt_loss_l1, .pass = pass, .prediction = prediction, .target = target, .sums = f->sums};
    vt_loss_l1.partials(&what);
    const double mean = mean_of_losses(f, &what);
    vt_matrix gradient = prediction;
    if (pass->type != VT_FLOAT32) gradient = vt_pass_push(pass, prediction.rows, prediction.columns);
    vt_loss_l1.backward(&what, 1 / (float)pass->batch, NULL, gradient);
    vt_parameters_clear_gradients(f->m.parameters);
    vt_model_backward(f->m.model, pass, f->tensors, gradient, f->m.saved);
    vt_arena_pop(&f->m.arena, 0);
    for (int64_t i = 0; found != NULL && i < f->m.parameters->count; i++) {
        const vt_parameter *parameter = f->m.parameters->list[i];
        char name[VT_PARAMETER_NAME + 16];
        snprintf(name, sizeof name, "gradients/%s", parameter->name);
        found->gradients[i] = difference_of(f, file, group, name, parameter->gradient, parameter->count);
    }
    return mean;
}

static void expect_within(by_hand *f, const char *group, const differences *found, const differences *allowed)
{
    EXPECT(found->prediction <= allowed->prediction, "%s: the prediction differs by %.3g, allowed %.3g", group,
           found->prediction, allowed->prediction);
    for (int64_t i = 0; i < f->m.parameters->count; i++)
        EXPECT(found->gradients[i] <= allowed->gradients[i], "%s: the gradient of %s differs by %.3g, allowed %.3g",
               group, f->m.parameters->list[i]->name, found->gradients[i], allowed->gradients[i]);
}

/* Returns the mean of the batch's losses. file 0: nothing is compared; else the first step's gradients are. */
static double step(by_hand *f, int64_t number, hid_t file, const char *group, const differences *allowed)
{
    const bool compares = number == 0 && file != 0;
    differences found;
    vt_optimizer_begin(f->m.optimizer, number, 2e-4);
    const double mean = pass_over(f, file, group, compares ? &found : NULL);
    if (compares) expect_within(f, group, &found, allowed);
    vt_optimizer_step(f->m.optimizer);
    if (number == 0) {
        const double norm = norm_of_gradients(f);
        vt_step_state state;
        f->m.backend->copy_to_host(f->m.backend, &state, f->m.optimizer->state, sizeof state);
        EXPECT_NEAR(state.gradient_norm, norm, (f->m.pass.type != VT_FLOAT32 ? 1e-3 : 1e-6) * norm);
    }
    vt_parameters_refresh(f->m.parameters);
    return mean;
}

/* What is promised of float32. */
static differences promised(void)
{
    differences allowed = {.prediction = 1e-5};
    for (int i = 0; i < MOST_PARAMETERS; i++) allowed.gradients[i] = 1e-4;
    return allowed;
}

/* whole: all steps of the curves of two models, else three; and the largest model. */
static void compare_with_pytorch(hid_t file, vt_cpu_isa isa, bool whole)
{
    const differences allowed = promised();
    const bool is_slow = isa == VT_ISA_PLAIN || isa == PATH_HOST_CUDA;
    for (size_t i = 0; i < (isa == PATH_HOST_CUDA ? 1 : sizeof unets / sizeof *unets); i++) {
        int64_t count;
        if (unets[i].side == 96 && (is_slow || !whole)) continue;
        SCOPED(by_hand) f;
        open_fixture(&f, &unets[i], isa, VT_FLOAT32, VT_RECOMPUTE_NONE);
        move_targets(&f, &unets[i], file);
        const double *losses = golden_read(file, &count, "%s/losses", unets[i].group);
        EXPECT(count == (unets[i].side == 96 ? 3 : STEPS));
        const int64_t steps = is_slow || unets[i].side == 96 ? 1 : whole && i % 3 == 0 ? STEPS : 3;
        for (int64_t s = 0; s < steps; s++) {
            const double loss = step(&f, s, file, unets[i].group, &allowed);
            EXPECT(fabs(loss - losses[s]) <= 1e-5 * losses[s], "isa %d, %s, step %d: loss %.9g, expected %.9g",
                   (int)isa, unets[i].group, (int)s, loss, losses[s]);
        }
    }
}

GPU_TEST(unet_is_pytorchs)
{
    hid_t file = golden_open("unet.h5");
    FOR_EACH_PATH(isa) compare_with_pytorch(file, isa, isa == PATH_GPU);
}

/* With this processor's kernels; the others' have three steps above. */
LONG_TEST(unet_is_pytorchs_for_fifty_steps)
{
    hid_t file = golden_open("unet.h5");
    compare_with_pytorch(file, VT_ISA_AUTO, true);
}

static void round_parameters(by_hand *f)
{
    for (int64_t i = 0; i < f->m.parameters->count; i++) {
        const vt_parameter *p = f->m.parameters->list[i];
        for (int64_t j = 0; j < p->count; j++)
            p->value[j] = vt_half_widen(VT_BFLOAT16, vt_half_round(VT_BFLOAT16, p->value[j]));
    }
}

/* Where an activation's slope or the loss's sign turns, a rounding moves gradients by much more than its own size, so
 * what bfloat16 may do is measured: float32 with weights that are rounded, beside float32. Activations and gradients
 * are rounded at as many places each. Independent errors add up as the root of their number, and three times that is
 * allowed. */
static differences of_rounded_weights(const golden_unet *golden, hid_t file)
{
    SCOPED(by_hand) f;
    differences allowed;
    open_fixture(&f, golden, VT_ISA_AUTO, VT_FLOAT32, VT_RECOMPUTE_NONE);
    move_targets(&f, golden, file);
    round_parameters(&f);
    pass_over(&f, file, golden->group, &allowed);
    allowed.prediction *= 3 * sqrt(2); /* nothing comes back yet */
    for (int i = 0; i < MOST_PARAMETERS; i++) allowed.gradients[i] *= 3 * sqrt(3);
    return allowed;
}

/* Three steps in bfloat16, each from the values that float32 has reached. */
TEST(unet_in_bfloat16)
{
    hid_t file = golden_open("unet.h5");
    for (size_t i = 0; i < 4; i += 2) {
        const differences in_float32 = promised(), allowed = of_rounded_weights(&unets[i], file);
        by_hand wide;
        float *values[HALF_STEPS];
        double losses[HALF_STEPS];
        open_fixture(&wide, &unets[i], VT_ISA_AUTO, VT_FLOAT32, VT_RECOMPUTE_NONE);
        move_targets(&wide, &unets[i], file);
        const int64_t count = vt_parameters_block_elements(wide.m.parameters, VT_BLOCK_VALUES);
        for (int64_t s = 0; s < HALF_STEPS; s++) {
            values[s] = fetch_floats(&wide, wide.m.parameters->values, count);
            losses[s] = step(&wide, s, file, unets[i].group, &in_float32);
        }
        by_hand_close(&wide);
        FOR_EACH_CPU_PATH(isa)
        {
            if (isa == VT_ISA_PLAIN) continue; /* slow */
            SCOPED(by_hand) f;
            open_fixture(&f, &unets[i], isa, VT_BFLOAT16, VT_RECOMPUTE_NONE);
            move_targets(&f, &unets[i], file);
            for (int64_t s = 0; s < HALF_STEPS; s++) {
                memcpy(f.m.parameters->values, values[s], (size_t)count * sizeof(float));
                vt_parameters_refresh(f.m.parameters);
                const double loss = step(&f, s, file, unets[i].group, &allowed);
                EXPECT(fabs(loss - losses[s]) <= allowed.prediction * losses[s],
                       "isa %d, %s, step %d: loss %.9g, expected %.9g", (int)isa, unets[i].group, (int)s, loss,
                       losses[s]);
            }
        }
    }
}

/* The sum of the prediction times fixed numbers, whose gradient these numbers are. */
static double weighted_prediction(by_hand *f, const float *weights)
{
    double sum = 0;
    vt_matrix prediction = vt_model_forward(f->m.model, &f->m.pass, f->tensors, (vt_matrix){0}, f->m.saved);
    const int64_t count = prediction.rows * prediction.columns;
    const float *values = fetch_floats(f, prediction.data, count);
    for (int64_t i = 0; i < count; i++) sum += (double)values[i] * (double)weights[i];
    vt_arena_pop(&f->m.arena, 0);
    return sum;
}

/* Along one direction of every tensor: the finite difference, and the gradient times the direction. They differ by
 * rounding, and where a step crosses the kink of an activation. */
TEST(unet_has_the_gradients_of_finite_differences)
{
    const golden_unet small = {"", 32, 1, false, 0};
    const double epsilon = 1e-3;
    SCOPED(by_hand) f;
    open_fixture(&f, &small, VT_ISA_AUTO, VT_FLOAT32, VT_RECOMPUTE_NONE);
    const int64_t count = small.side * small.side * small.side * 5;
    float *weights = numbers(300, count, 1);
    vt_matrix prediction = vt_model_forward(f.m.model, &f.m.pass, f.tensors, (vt_matrix){0}, f.m.saved);
    f.m.backend->copy_from_host(f.m.backend, prediction.data, weights, (size_t)count * sizeof *weights);
    vt_parameters_clear_gradients(f.m.parameters);
    vt_model_backward(f.m.model, &f.m.pass, f.tensors, prediction, f.m.saved);
    vt_arena_pop(&f.m.arena, 0);
    for (int64_t i = 0; i < f.m.parameters->count; i++) {
        const vt_parameter *parameter = f.m.parameters->list[i];
        const float *direction = numbers(400 + (uint64_t)i, parameter->count, 0.06);
        double expected = 0, size = 0, sums[2];
        for (int64_t j = 0; j < parameter->count; j++) {
            expected += (double)parameter->gradient[j] * (double)direction[j];
            size += pow((double)parameter->gradient[j] * (double)direction[j], 2);
        }
        for (int side = 0; side < 2; side++) {
            const float by = (float)(side == 0 ? epsilon : -2 * epsilon);
            for (int64_t j = 0; j < parameter->count; j++) parameter->value[j] += by * direction[j];
            sums[side] = weighted_prediction(&f, weights);
        }
        for (int64_t j = 0; j < parameter->count; j++) parameter->value[j] += (float)epsilon * direction[j];
        const double found = (sums[0] - sums[1]) / (2 * epsilon);
        EXPECT(fabs(found - expected) <= 0.05 * sqrt(size), "%s: %g by differences, %g by the gradient (%g)",
               parameter->name, found, expected, sqrt(size));
    }
}

/* Losses, and all gradients of the last step. */
TEST(unet_recomputes_the_same_bits_in_less_memory)
{
    static const vt_type types[] = {VT_FLOAT32, VT_BFLOAT16};
    enum { BRIEF = 2 };
    FOR_EACH_CPU_PATH(isa)
    {
        if (isa == VT_ISA_PLAIN) continue; /* slow, and has no choices by size */
        for (int t = 0; t < 2; t++) {
            double losses[2][BRIEF];
            by_hand f[2];
            for (int r = 0; r < 2; r++) {
                open_fixture(&f[r], &unets[0], isa, types[t], r == 0 ? VT_RECOMPUTE_NONE : VT_RECOMPUTE_BLOCK);
                for (int s = 0; s < BRIEF; s++) losses[r][s] = step(&f[r], s, 0, NULL, NULL);
            }
            const int64_t count = vt_parameters_block_elements(f[0].m.parameters, VT_BLOCK_GRADIENTS);
            EXPECT(memcmp(losses[0], losses[1], sizeof losses[0]) == 0, "isa %d, type %d", (int)isa, t);
            EXPECT(memcmp(f[0].m.parameters->gradients, f[1].m.parameters->gradients, (size_t)count * sizeof(float)) ==
                       0,
                   "isa %d, type %d", (int)isa, t);
            EXPECT(f[1].m.arena.peak < f[0].m.arena.peak, "%zu bytes instead of %zu", f[1].m.arena.peak,
                   f[0].m.arena.peak);
            for (int r = 0; r < 2; r++) by_hand_close(&f[r]);
        }
    }
}
