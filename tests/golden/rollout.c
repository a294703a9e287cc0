/* A small ViT of rollout.h5 against PyTorch, trained over three steps of forecast, each from the one before: losses,
 * gradients through all steps, and ten updates; on every path of the CPU, the CUDA kernels on the host, and the GPU.
 * Tolerances are those of golden/vit.c. And PyTorch apart: gradients against finite differences. */
#include "golden/forecasts.h"

enum { BATCH = 3, IN = 4, OUT = 2, HEIGHT = 11, WIDTH = 13 };

/* Targets of models with three fields, which no file has. */
static float *three_fields(void)
{
    enum { COUNT = BATCH * ROLLOUT * 3 * HEIGHT * WIDTH };
    float *fields = vt_test_owned(malloc(COUNT * sizeof *fields));
    for (int i = 0; i < COUNT; i++) fields[i] = (float)sin(0.37 * i + 1e-4 * i * i);
    return fields;
}

static fixture open_fixture(vt_cpu_isa isa, bool tendency, bool gaps, bool forcings, const char *settings)
{
    static const float own_changes[] = {0.6f, 0.8f, 1.1f, 0.7f};
    const bool has_roles = strstr(settings, "roles=") != NULL;
    vt_config *config = config_with(
        1,
        SETTINGS("img_size=[11,13] patch_size=4 pad=wrap n_history=1 n_in_channels=4 n_out_channels=2 embed_dim=16 "
                 "depth=1 num_heads=2 num_iters=10 global_batch_size=3 rollout=3 predict=%s missing=%s",
                 tendency ? "tendency" : "state", gaps ? "mask" : "refuse"),
        SETTINGS("%s %s %s", forcings ? "forcings=cos_zenith,sin_day" : "", settings,
                 has_roles ? "n_in_channels=2 n_out_channels=3" : ""));
    fixture f = open_trained(forcings ? "rollout_forcings.h5" : "rollout.h5", isa, config,
                             has_roles ? own_changes : NULL, gaps);
    int64_t known = 0;
    if (config->depth == 1 && !has_roles) golden_load(f.file, f.r.backend, rig_parameters(&f.r));
    if (has_roles) f.batch.tensors[VT_TENSOR_TARGET] = three_fields();
    if (forcings) f.batch.tensors[VT_TENSOR_FORCINGS] = golden_read_float(f.file, &known, "forcings");
    EXPECT(known == (forcings ? BATCH * ROLLOUT * OUT * HEIGHT * WIDTH : 0)); /* as many as fields */
    return f;
}

static const struct {
    const char *name;
    bool tendency, gaps, forcings;
} kinds[] = {{"state", false, false, false},       {"tendency", true, false, false}, {"state_gaps", false, true, false},
             {"tendency_gaps", true, true, false}, {"tendency", true, false, true},  {"state_gaps", false, true, true}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

GPU_TEST(ten_steps_over_rollouts_of_three)
{
    FOR_EACH_PATH(isa)
    {
        for (int kind = 0; kind < KINDS; kind++) {
            SCOPED(fixture) f =
                open_fixture(isa, kinds[kind].tendency, kinds[kind].gaps, kinds[kind].forcings, "lr=1e-3");
            check_losses(&f, kinds[kind].name, STEPS, true);
        }
    }
}

/* Micro-batches, recomputed blocks and fused operations: the same losses. */
GPU_TEST(rollouts_in_micro_batches)
{
    static const char *const settings[] = {"lr=1e-3 grad_accumulation=3", "lr=1e-3 recompute=block enable_jit=true"};
    FOR_EACH_PATH(isa)
    {
        for (int i = 0; i < 2; i++) {
            SCOPED(fixture) f = open_fixture(isa, true, true, false, settings[i]);
            check_losses(&f, "tendency_gaps", STEPS, false);
        }
    }
}

/* Where blocks' activations wait in the host's memory: the bits of a run where they stay. */
static void check_offloaded(vt_cpu_isa isa, const char *settings)
{
    vt_step_figures figures[2][2];
    size_t bytes[2];
    for (int offloads = 0; offloads < 2; offloads++) {
        SCOPED(fixture) f = open_fixture(isa, true, true, false,
                                         SETTINGS("%s%s", settings, offloads ? " offload_activations=host" : ""));
        for (int step = 0; step < 2; step++) EXPECT_OK(vt_step_train(f.r.trainer, &f.batch, &figures[offloads][step]));
        bytes[offloads] = activation_bytes(f.r.trainer);
    }
    EXPECT(bytes[1] < bytes[0], "%s: %zu bytes instead of %zu", settings, bytes[1], bytes[0]);
    for (int step = 0; step < 2; step++)
        EXPECT(figures[0][step].loss == figures[1][step].loss &&
                   figures[0][step].gradient_norm == figures[1][step].gradient_norm,
               "path %d, %s, step %d: %.9g instead of %.9g", (int)isa, settings, step, figures[1][step].loss,
               figures[0][step].loss);
}

static void check_all_offloaded(bool is_long)
{
    static const char *const settings[] = {"lr=1e-3 depth=5 grad_accumulation=3",
                                           "lr=1e-3 depth=4 recompute=block rollout_gradient=last"};
    for (size_t i = 0; i < 2; i++) {
        FOR_EACH_CUDA_STEP_PATH(isa)
        {
            if (path_has_turn(isa, i) != is_long) check_offloaded(isa, settings[i]);
        }
    }
}

GPU_TEST(offloaded_rollouts_change_no_bit)
{
    check_all_offloaded(false);
}

LONG_GPU_TEST(offloaded_rollouts_change_no_bit_on_the_other_paths)
{
    check_all_offloaded(true);
}

/* rollout_gradient: last has the gradient of the last step's loss for the parameters of that step alone, and reports
 * that loss. */
TEST(the_last_step_alone)
{
    SCOPED(fixture) f = open_fixture(VT_ISA_PLAIN, true, false, false, "lr=1e-3 rollout_gradient=last");
    const double *losses = golden_read(f.file, NULL, "tendency/step_losses");
    vt_step_figures figures;
    EXPECT_OK(vt_step_train(f.r.trainer, &f.batch, &figures));
    const double *last = losses + (ROLLOUT - 1) * BATCH, mean = (last[0] + last[1] + last[2]) / BATCH;
    EXPECT_NEAR(figures.loss, mean, 1e-5 * mean);
}

/* A value that is not finite in the target of the first step shows which sample is bad, although the loss of the last
 * step is finite. */
TEST(a_bad_value_in_an_early_target)
{
    static const int64_t samples[BATCH] = {7, 8, 9};
    SCOPED(fixture) f = open_fixture(VT_ISA_PLAIN, true, false, false, "lr=1e-3 on_nonfinite=skip");
    vt_step_figures figures;
    f.batch.samples = samples;
    ((float *)(uintptr_t)f.batch.tensors[VT_TENSOR_TARGET])[ROLLOUT * OUT * HEIGHT * WIDTH + 5] = NAN; /* of sample 8 */
    EXPECT_OK(vt_step_train(f.r.trainer, &f.batch, &figures));
    EXPECT(isnan(figures.loss) && figures.bad_sample == 8, "loss %g, bad sample %ld", figures.loss, figures.bad_sample);
}

/* Also where a forecast has one field that the next input holds and two that it doesn't, and a variable is a forcing.
 */
TEST(gradients_are_finite_differences)
{
    static const char *const settings[] = {
        "normalise=climatology augment=sign input_noise=0.3 dropout=0.2",
        "variables=[a,b,c,d] roles=[b=diagnostic,c=diagnostic,d=forcing] forcings=sin_day input_noise=0.3",
        "variables=[a,b,c,d] roles=[b=diagnostic,c=diagnostic,d=forcing] forcings=sin_day predict=state"};
    for (int i = 0; i < 3; i++) {
        SCOPED(fixture) f =
            open_fixture(VT_ISA_PLAIN, true, false, true, SETTINGS("lr=0 loss=relative_l2 %s", settings[i]));
        check_differences(f.r.trainer, &f.batch, 1e-2f, 2e-5, 1e-4, settings[i]);
    }
}

/* ---- states within bounds ---- */

/* In a normalised state: -0.3 to 0.5, and from 0.2 on. */
#define BOUNDS "transform=[1=sqrt] bounds=[0=[-0.3,0.5],1=[0.04,inf]]"

static double first_loss(vt_cpu_isa isa, int kind, const char *settings, double *norm)
{
    vt_step_figures figures;
    fixture f = open_fixture(isa, kinds[kind].tendency, kinds[kind].gaps, kinds[kind].forcings, settings);
    EXPECT_OK(vt_step_train(f.r.trainer, &f.batch, &figures));
    fixture_close(&f);
    *norm = figures.gradient_norm;
    return figures.loss;
}

/* Over rollouts of three steps; where some points are at a bound, and others aren't. */
TEST(gradients_within_bounds_are_finite_differences)
{
    for (int kind = 0; kind < 4; kind++) {
        double norm, free_norm;
        fixture f = open_fixture(VT_ISA_PLAIN, kinds[kind].tendency, kinds[kind].gaps, kinds[kind].forcings,
                                 "lr=0 loss=mse " BOUNDS);
        check_differences(f.r.trainer, &f.batch, 1e-3f, 2e-5, 1e-4, kinds[kind].name);
        fixture_close(&f);
        (void)first_loss(VT_ISA_PLAIN, kind, "loss=mse " BOUNDS, &norm);
        (void)first_loss(VT_ISA_PLAIN, kind, "loss=mse", &free_norm);
        EXPECT(norm > 0.1 * free_norm && norm < 0.9 * free_norm, "%s: norm %g, without bounds %g", kinds[kind].name,
               norm, free_norm);
        if (kinds[kind].tendency) continue; /* a later step may leave the bound that it begins at */
        (void)first_loss(VT_ISA_PLAIN, kind, "loss=mse bounds=[0=[7,8],1=[-9,-8]]", &norm);
        EXPECT(norm == 0, "%s: norm %g where all points are out of bounds", kinds[kind].name, norm);
    }
}

/* On every path, in 16 bits, too; and bounds that none reaches change no bit. */
GPU_TEST(states_within_bounds_on_every_path)
{
    FOR_EACH_PATH(isa)
    {
        for (int kind = 0; kind < KINDS; kind++) {
            double expected, norm, loss = first_loss(VT_ISA_PLAIN, kind, BOUNDS, &expected);
            const double own = first_loss(isa, kind, BOUNDS, &norm);
            EXPECT_NEAR(own, loss, 1e-5 * loss);
            EXPECT_NEAR(norm, expected, 1e-4 * expected);
            EXPECT_NEAR(first_loss(isa, kind, "amp_mode=bf16 " BOUNDS, &norm), loss, 0.02 * loss);
            EXPECT_NEAR(norm, expected, 0.05 * expected);
            loss = first_loss(isa, kind, "", &expected);
            EXPECT(first_loss(isa, kind, "bounds=[0=[-99,99]]", &norm) == loss && norm == expected);
        }
    }
}
