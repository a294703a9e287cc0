/* Small ViTs against PyTorch: forward, loss, every gradient, and training steps, on every path of the CPU back end, the
 * CUDA kernels on the host, and the GPU where there is one. That of vit.h5 sees whole fields; that of gaps.h5 has
 * missing points in input and target, the mask as channels, and a grid of 11 x 13 points in patches of 4, whose columns
 * wrap around; that of forcings.h5 has forcings behind the input and its mask, on 9 x 7 points in patches of 3, beyond
 * which the last column is repeated. Tolerances are the contract's: losses 1e-5, gradients 1e-4, relative; rounding
 * alone reaches 5e-7 (README.md). */
#include "backend/cpu/cpu.h"
#include "bounds.h"
#include "golden/golden_file.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "rig.h"

typedef struct {
    const char *file, *settings;
    int64_t samples, input, target, batches; /* of a batch; values of a sample; in the file */
    int64_t forcings;                        /* values of a sample */
} golden_model;

static const golden_model whole = {"vit.h5",
                                   "img_size=[20,12] patch_size=4 n_in_channels=6 n_history=1 n_out_channels=3 "
                                   "embed_dim=24 depth=2 num_heads=3 global_batch_size=4 num_iters=50",
                                   4,
                                   6 * 20 * 12,
                                   3 * 20 * 12,
                                   10,
                                   0};
static const golden_model gaps = {"gaps.h5",
                                  "img_size=[11,13] patch_size=4 pad=wrap missing=mask mask_channels=true n_history=1 "
                                  "n_in_channels=4 n_out_channels=2 embed_dim=16 depth=1 num_heads=2 num_iters=10 "
                                  "global_batch_size=3",
                                  3,
                                  4 * 11 * 13,
                                  2 * 11 * 13,
                                  1,
                                  0};
static const golden_model forcings = {"forcings.h5",
                                      "img_size=[9,7] patch_size=3 pad=edge missing=mask mask_channels=true "
                                      "n_in_channels=2 n_out_channels=2 forcings=sin_lat,cos_zenith,cos_day "
                                      "embed_dim=16 depth=1 num_heads=2 num_iters=10 global_batch_size=3",
                                      3,
                                      2 * 9 * 7,
                                      2 * 9 * 7,
                                      1,
                                      3 * 9 * 7};
enum { MOST_VALUES = 4 * 3 * 20 * 12 }; /* of a batch of targets */

typedef struct {
    const golden_model *model;
    vt_cpu_isa isa;
    hid_t file;
    rig rig;
    float *inputs, *targets; /* [batches, samples, …] */
    float *forcings;         /* likewise, or NULL */
} fixture;

static float *to_host(const fixture *f, const float *values, int64_t count)
{
    float *host = vt_test_owned(malloc((size_t)count * sizeof *host));
    f->rig.backend->copy_to_host(f->rig.backend, host, values, (size_t)count * sizeof *host);
    return host;
}

static fixture open_fixture(const golden_model *model, vt_cpu_isa isa, const char *settings)
{
    fixture f = {.model = model, .isa = isa, .file = golden_open(model->file)};
    int64_t count;
    f.rig.config = config_with(1, model->settings, settings);
    EXPECT_OK(path_open_trainers(isa, &f.rig.backend));
    EXPECT_OK(rig_open(&f.rig, NULL, NULL, false));
    golden_load(f.file, f.rig.backend, rig_parameters(&f.rig));
    f.inputs = golden_read_float(f.file, &count, "inputs");
    EXPECT(count == model->batches * model->samples * model->input);
    f.targets = golden_read_float(f.file, &count, "targets");
    EXPECT(count == model->batches * model->samples * model->target);
    if (model->forcings > 0) f.forcings = golden_read_float(f.file, &count, "forcings");
    if (model->forcings > 0) EXPECT(count == model->batches * model->samples * model->forcings);
    return f;
}

static void fixture_close(fixture *f)
{
    rig_close(&f->rig);
}

static vt_batch batch_of(const fixture *f, int64_t index)
{
    const golden_model *m = f->model;
    index *= m->samples;
    return (vt_batch){.sample_count = m->samples,
                      .global_count = m->samples,
                      .tensors = {f->inputs + index * m->input, f->targets + index * m->target,
                                  f->forcings != NULL ? f->forcings + index * m->forcings : NULL}};
}

/* Tolerances are relative. Returns how far the prediction is off. */
static double check_prediction(const fixture *f, const double *expected, double tolerance)
{
    float fields[MOST_VALUES];
    const vt_batch batch = batch_of(f, 0);
    EXPECT_OK(vt_step_predict(f->rig.trainer, &batch, fields)); /* means are 0, deviations 1 */
    double difference = golden_difference(fields, expected, f->model->samples * f->model->target);
    EXPECT(difference < tolerance, "%s, isa %d: prediction differs by %g, allowed %g", f->model->file, (int)f->isa,
           difference, tolerance);
    return difference;
}

/* rmse NULL: not compared. */
static void check_evaluation(fixture *f, double loss, const double *rmse)
{
    SCOPED(vt_evaluation) sums;
    const vt_batch batch = batch_of(f, 0);
    rig_evaluate(&f->rig, &batch, false, &sums);
    EXPECT_NEAR(sums.loss, loss, 1e-5 * loss);
    for (int c = 0; rmse != NULL && c < f->rig.config->n_out_channels; c++)
        EXPECT_NEAR(sums.model.values[1 + c], rmse[c], 1e-5 * rmse[c]);
}

static void check_forward(vt_cpu_isa isa, const char *gelu, const char *prediction, const char *loss)
{
    SCOPED(fixture) f = open_fixture(&whole, isa, SETTINGS("gelu=%s", gelu));
    check_prediction(&f, golden_read(f.file, NULL, "%s", prediction), 1e-5);
    check_evaluation(&f, *golden_read(f.file, NULL, "%s", loss),
                     strcmp(gelu, "erf") == 0 ? golden_read(f.file, NULL, "forward/channel_rmse") : NULL);
}

GPU_TEST(forward_loss_and_rmse)
{
    FOR_EACH_PATH(isa)
    {
        check_forward(isa, "erf", "forward/prediction", "forward/loss");
        check_forward(isa, "tanh", "forward/prediction_tanh", "forward/loss_tanh");
    }
}

/* k.bias has the exact gradient 0; what is there must be rounding: below 1e-5 of q.bias's (parallel.md §4). */
static void check_key_bias(const fixture *f, const vt_parameter *k_bias)
{
    char name[VT_PARAMETER_NAME];
    snprintf(name, sizeof name, "%s", k_bias->name);
    memcpy(strstr(name, ".k.bias"), ".q.bias", strlen(".q.bias"));
    const vt_parameter *q_bias = find_parameter(rig_parameters(&f->rig), name);
    double k_squares = 0, q_squares = 0;
    float *k = to_host(f, k_bias->gradient, k_bias->count), *q = to_host(f, q_bias->gradient, q_bias->count);
    for (int64_t i = 0; i < k_bias->count; i++) {
        k_squares += (double)k[i] * (double)k[i];
        q_squares += (double)q[i] * (double)q[i];
    }
    EXPECT(sqrt(k_squares) < 1e-5 * sqrt(q_squares), "%s: %g beside %g", k_bias->name, sqrt(k_squares),
           sqrt(q_squares));
}

/* Makes a step, which must not change the parameters, and compares its gradients with those below `group`; returns its
 * loss. */
static double check_gradients_below(fixture *f, const char *group, double tolerance)
{
    const vt_batch batch = batch_of(f, 0);
    const double loss = rig_train(&f->rig, &batch, 1);
    const double scale =
        vt_optimizer_progress_of(vt_trainer_subject(f->rig.trainer).optimizer).loss_scale; /* 0: none */
    for (int64_t i = 0; i < rig_parameters(&f->rig)->count; i++) {
        const vt_parameter *parameter = rig_parameters(&f->rig)->list[i];
        if (strstr(parameter->name, ".k.bias") != NULL) {
            if (f->rig.config->amp_mode == VT_AMP_NONE) check_key_bias(f, parameter);
            continue;
        }
        float *gradient = to_host(f, parameter->gradient, parameter->count);
        for (int64_t j = 0; j < parameter->count && scale > 0; j++) gradient[j] /= (float)scale;
        double difference =
            golden_difference(gradient, golden_read(f->file, NULL, "%s/%s", group, parameter->name), parameter->count);
        EXPECT(difference < tolerance, "%s, isa %d: %s differs by %g, allowed %g", f->model->file, (int)f->isa,
               parameter->name, difference, tolerance);
    }
    return loss;
}

static double check_gradients(fixture *f, double tolerance)
{
    return check_gradients_below(f, "gradients", tolerance);
}

static void check_gradients_of(const golden_model *model, vt_cpu_isa isa, const char *settings)
{
    SCOPED(fixture) f = open_fixture(model, isa, settings);
    check_gradients(&f, 1e-4);
}

GPU_TEST(every_gradient)
{
    FOR_EACH_PATH(isa) check_gradients_of(&whole, isa, "lr=0");
    vt_cpu_isa best = vt_test_gpu_alone() ? PATH_GPU : VT_ISA_AUTO;
    check_gradients_of(&whole, best, "lr=0 grad_accumulation=2");
    check_gradients_of(&whole, best, "lr=0 grad_accumulation=4");
}

/* Steps on the batches in turn. */
static void check_losses(fixture *f, const double *losses)
{
    for (int64_t step = 0; step < f->rig.config->num_iters; step++) {
        const vt_batch batch = batch_of(f, step % f->model->batches);
        EXPECT_NEAR(rig_train(&f->rig, &batch, 1), losses[step], 1e-5 * losses[step]);
    }
}

/* Fifty steps by one of PyTorch's curves. */
static const struct {
    const char *variant, *settings;
} trainings[] = {
    {"adam", "lr=1e-3"},
    {"adam_warmup", "lr=1e-3 warmup=10"},
    {"adamw", "lr=1e-3 optimizer=AdamW weight_decay=0.05"},
    {"sgd", "lr=0.05 optimizer=SGD weight_decay=1e-4"},
    {"adam_clip", "lr=1e-3 grad_clip=0.3"},
    {"adamw_betas", "lr=1e-3 optimizer=AdamW weight_decay=0.05 betas=[0.8,0.999] eps=1e-4"},
    {"sgd_nesterov", "lr=0.02 optimizer=SGD momentum=0.95 nesterov=true weight_decay=1e-4"},
    {"sgd_plain", "lr=0.2 optimizer=SGD momentum=0 weight_decay=1e-4"},
    {"muon", "lr=1e-3 optimizer=Muon"},
    {"muon", "lr=1e-3 optimizer=Muon grad_accumulation=4"},
    {"muon_original",
     "lr=2e-3 optimizer=Muon weight_decay=0 momentum=0.9 nesterov=false muon_adjust=original muon_steps=4"},
    {"adafactor", "lr=2e-2 optimizer=Adafactor weight_decay=0.1"},
    {"adafactor", "lr=2e-2 optimizer=Adafactor weight_decay=0.1 grad_accumulation=4"},
    {"adafactor_numbers",
     "lr=5e-2 optimizer=Adafactor adafactor_decay=-0.5 adafactor_clip=1.2 adafactor_eps=[1e-4,0.1]"},
    {"adafactor_original", "lr=2e-2 optimizer=Adafactor weight_decay=0.1 adafactor=original adafactor_beta1=0.9"},
    {"adam", "lr=1e-3 enable_jit=true"},
    {"adam", "lr=1e-3 grad_accumulation=4"},
};

static void expect_near(double actual, double expected, double tolerance, const char *what, const char *settings)
{
    EXPECT(fabs(actual - expected) <= tolerance, "%s: %s is %.9g, expected %.9g", settings, what, actual, expected);
}

/* At the end of all 50 steps also each parameter's norm. */
static void check_training(vt_cpu_isa isa, const char *variant, const char *settings, int64_t steps)
{
    SCOPED(fixture) f = open_fixture(&whole, isa, settings);
    if (strncmp(variant, "muon", 4) == 0 || strncmp(variant, "adafactor", 9) == 0)
        f.file = golden_open("optimizers.h5");
    double *losses = golden_read(f.file, NULL, "training/%s/losses_float64", variant);
    double *norms = golden_read(f.file, NULL, "training/%s/grad_norms_float64", variant);
    double *rates = golden_read(f.file, NULL, "training/%s/learning_rates", variant);
    for (int64_t step = 0; step < steps; step++) {
        vt_step_figures figures;
        const vt_batch batch = batch_of(&f, step % f.model->batches);
        EXPECT_OK(vt_step_train(f.rig.trainer, &batch, &figures));
        expect_near(figures.loss, losses[step], 1e-5 * losses[step], "a loss", settings);
        expect_near(figures.gradient_norm, norms[step], 1e-4 * norms[step], "a gradient's norm", settings);
        expect_near(figures.learning_rate, rates[step], 1e-12, "a learning rate", settings);
    }
    for (int64_t i = 0; steps == 50 && i < rig_parameters(&f.rig)->count; i++) {
        const vt_parameter *parameter = rig_parameters(&f.rig)->list[i];
        if (strstr(parameter->name, ".k.bias") != NULL) continue;
        double expected = *golden_read(f.file, NULL, "training/%s/final_norms/%s", variant, parameter->name);
        double squares = 0;
        float *values = to_host(&f, parameter->value, parameter->count);
        for (int64_t j = 0; j < parameter->count; j++) squares += (double)values[j] * (double)values[j];
        expect_near(sqrt(squares), expected, 1e-5 * expected, parameter->name, settings);
    }
}

/* The slow paths: the plain loops with all variants, the CUDA kernels on the host with a few. */
static void train_on_slow_paths(int64_t steps)
{
    static const char *const on_host = "adam muon_original adafactor_original";
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++) {
        const char *variant = trainings[i].variant, *settings = trainings[i].settings;
        if (path_is_available(VT_ISA_PLAIN)) check_training(VT_ISA_PLAIN, variant, settings, steps);
        if (strstr(on_host, variant) != NULL && path_is_available(PATH_HOST_CUDA))
            check_training(PATH_HOST_CUDA, variant, settings, steps);
    }
}

GPU_TEST(fifty_steps)
{
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++) FOR_EACH_FAST_PATH(isa)
    if (isa != PATH_HOST_CUDA) check_training(isa, trainings[i].variant, trainings[i].settings, 50);
}

TEST(two_steps_on_slow_paths)
{
    train_on_slow_paths(2);
}

LONG_TEST(six_steps_on_slow_paths)
{
    train_on_slow_paths(6);
}

/* ---- 16 bits ---- */

/* From the input to the loss of this model (two blocks: normed, q, k, v, out, normed, hidden, active and as many
 * weights, each; the ends) there are about 22 roundings on the way, and as many on the way back. What one of them does
 * may well be three times as large as itself here, as weights are eight times the usual. float16's gradients come
 * without a loss scale: they are about 3e-4, whose spacing is still that of normal numbers, and the smaller ones' 2^-25
 * adds less than a tenth to the sum of squares. */
enum { ROUNDINGS = 22 };

static const char *amp_of(vt_type type)
{
    return type == VT_BFLOAT16 ? "bf16" : "fp16";
}

static void check_half(vt_cpu_isa isa, vt_type type)
{
    SCOPED(fixture) f = open_fixture(&whole, isa, SETTINGS("lr=0 amp_mode=%s", amp_of(type)));
    const double loss = *golden_read(f.file, NULL, "forward/loss"),
                 forward = allowed_of_roundings(ROUNDINGS, half_unit(type));
    const double difference = check_prediction(&f, golden_read(f.file, NULL, "forward/prediction"), forward);
    EXPECT(difference > half_unit(type) / 4, "isa %d: prediction differs by %g only: is that %s?", (int)isa, difference,
           half_name(type));
    EXPECT_NEAR(check_gradients(&f, allowed_of_roundings(2 * ROUNDINGS, half_unit(type))), loss, forward * loss);
}

GPU_TEST(forward_and_gradients_in_16_bits)
{
    FOR_EACH_PATH(isa)
    {
        FOR_EACH_HALF(type) check_half(isa, type);
    }
    if (path_is_available(PATH_TILES_MODEL)) check_half(PATH_TILES_MODEL, VT_BFLOAT16);
}

/* Steps in 16 bits, each from the values that float32 has reached: their losses; and those of float32. */
static void check_half_steps(const golden_model *model, vt_cpu_isa isa, vt_type type, const char *settings,
                             const char *of_half, const char *losses_at)
{
    SCOPED(fixture) wide = open_fixture(model, isa, settings);
    SCOPED(fixture) half = open_fixture(model, isa, SETTINGS("%s amp_mode=%s %s", settings, amp_of(type), of_half));
    const double *losses = golden_read(wide.file, NULL, "%s", losses_at);
    for (int64_t step = 0; step < wide.rig.config->num_iters; step++) {
        const vt_batch batch = batch_of(&wide, step % model->batches);
        start_from(half.rig.trainer, wide.rig.trainer);
        EXPECT_NEAR(rig_train(&half.rig, &batch, 1), losses[step],
                    allowed_of_roundings(ROUNDINGS, half_unit(type)) * losses[step]);
        EXPECT_NEAR(rig_train(&wide.rig, &batch, 1), losses[step], 1e-5 * losses[step]);
    }
}

static void check_fifty(vt_cpu_isa isa, vt_type type)
{
    check_half_steps(&whole, isa, type, "lr=1e-3", "", "training/adam/losses_float64");
}

/* Fifty steps, in bfloat16 also with products and attention on tiles (over their model), and on the GPU. */
GPU_TEST(fifty_steps_in_16_bits)
{
    FOR_EACH_HALF(type)
    {
        if (!vt_test_gpu_alone()) check_fifty(VT_ISA_AUTO, type);
        if (type == VT_BFLOAT16 && path_is_available(PATH_TILES_MODEL)) check_fifty(PATH_TILES_MODEL, type);
        if (path_is_available(PATH_GPU)) check_fifty(PATH_GPU, type);
    }
}

/* ---- gaps, and forcings ---- */

static const golden_model *const small[] = {&gaps, &forcings};

GPU_TEST(forward_and_gradients_with_gaps_and_forcings)
{
    FOR_EACH_PATH(isa)
    {
        for (int i = 0; i < 2; i++) {
            SCOPED(fixture) f = open_fixture(small[i], isa, "lr=0");
            const double *losses = golden_read(f.file, NULL, "sample_losses");
            check_prediction(&f, golden_read(f.file, NULL, "prediction"), 1e-5);
            check_evaluation(&f, (losses[0] + losses[1] + losses[2]) / 3, golden_read(f.file, NULL, "channel_rmse"));
            check_gradients(&f, 1e-4);
        }
    }
}

/* In float32, and in 16 bits and micro-batches. */
GPU_TEST(ten_steps_with_gaps_and_forcings)
{
    FOR_EACH_PATH(isa)
    {
        for (int i = 0; i < 2; i++)
            FOR_EACH_HALF(type) check_half_steps(small[i], isa, type, "lr=1e-3", "grad_accumulation=3", "losses");
    }
}

/* Each loss, with weights and without, over the points that are there: ten steps in float32 and in bfloat16, and of
 * those with weights the gradients. */
GPU_TEST(losses_with_gaps_and_weights)
{
    static const char weights[] = "latitude_weights=true channel_weights=1.75,0.25";
    static const char *const losses[][3] = {{"mse", "mse", ""},
                                            {"mae", "mae", ""},
                                            {"relative_l2_weighted", "relative_l2", weights},
                                            {"mse_weighted", "mse", weights},
                                            {"mae_weighted", "mae", weights}};
    FOR_EACH_PATH(isa)
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        const char *name = losses[i][0], *settings = SETTINGS("loss=%s %s", losses[i][1], losses[i][2]);
        fixture f = open_fixture(&gaps, isa, SETTINGS("lr=0 %s", settings));
        const double *curve = golden_read(f.file, NULL, "loss/%s/losses", name);
        check_evaluation(&f, curve[0], NULL);
        if (losses[i][2] == weights) check_gradients_below(&f, SETTINGS("loss/%s/gradients", name), 1e-4);
        fixture_close(&f);
        check_half_steps(&gaps, isa, VT_BFLOAT16, SETTINGS("lr=1e-3 %s", settings), "grad_accumulation=3",
                         SETTINGS("loss/%s/losses", name));
    }
}

/* The average of the weights behind ten steps, and that training goes on as if it had not been used. */
GPU_TEST(average_is_pytorchs)
{
    FOR_EACH_PATH(isa)
    {
        SCOPED(fixture) f = open_fixture(&gaps, isa, "lr=1e-3 ema_decay=0.7");
        check_losses(&f, golden_read(f.file, NULL, "losses"));
        const vt_parameters *parameters = rig_parameters(&f.rig);
        const int64_t count = (int64_t)(rig_value_bytes(&f.rig) / sizeof(float));
        const float *before = to_host(&f, parameters->values, count);
        vt_trainer_exchange_average(f.rig.trainer);
        check_evaluation(&f, *golden_read(f.file, NULL, "average_loss"), NULL);
        vt_trainer_exchange_average(f.rig.trainer);
        const float *after = to_host(&f, parameters->values, count);
        EXPECT(memcmp(before, after, rig_value_bytes(&f.rig)) == 0);
    }
}
