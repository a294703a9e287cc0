/* The small ViT of vit.h5 against PyTorch: forward, loss, every gradient, and 50 training steps, on every path of the
 * CPU back end, and on the GPU where there is one. Tolerances are the contract's: losses 1e-5, gradients 1e-4,
 * relative; rounding alone reaches 5e-7 (README.md). */
#include "backend/cpu/cpu.h"
#include "golden/golden_file.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "settings.h"
#include "task/weather.h"
#include "test.h"
#include "training/step.h"

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_task *task;
    vt_trainer *trainer;
    float *inputs, *targets; /* [10, 4, 6, 20, 12], [10, 4, 3, 20, 12] */
} fixture;

static const int64_t batch_size = 4, input_size = 6 * 20 * 12, target_size = 3 * 20 * 12, batches = 10;

/* Until the test ends. */
static float *to_host(vt_backend *backend, const float *values, int64_t count)
{
    float *host = vt_test_owned(malloc((size_t)count * sizeof *host));
    backend->copy_to_host(backend, host, values, (size_t)count * sizeof *host);
    return host;
}

static fixture open_fixture(hid_t file, vt_cpu_isa isa, const char *settings)
{
    static const char model[] = "img_size=[20,12] patch_size=4 n_in_channels=6 n_history=1 n_out_channels=3 "
                                "embed_dim=24 depth=2 num_heads=3 global_batch_size=4 num_iters=50";
    static const float means[6] = {0}, stds[6] = {1, 1, 1, 1, 1, 1};
    fixture f = {0};
    int64_t count;
    double latitudes[20];
    for (int row = 0; row < 20; row++) latitudes[row] = 90 - 180.0 * row / 19;
    EXPECT_OK(vt_config_open_default(&f.config));
    set_options(f.config, model);
    set_options(f.config, settings);
    EXPECT_OK(vt_config_resolve(f.config));
    EXPECT_OK(path_open_trainers(isa, &f.backend));
    f.task = vt_weather_open(f.config, means, stds, latitudes);
    const vt_trainer_options options = {.task = f.task, .steps = 50};
    EXPECT_OK(vt_trainer_open(f.config, &options, f.backend, &f.trainer));
    golden_load(file, f.backend, vt_trainer_parameters(f.trainer));
    f.inputs = golden_read_float(file, "inputs", &count);
    f.targets = golden_read_float(file, "targets", &count);
    return f;
}

static void close_fixture(fixture *f)
{
    vt_trainer_close(&f->trainer);
    vt_task_close(&f->task);
    vt_backend_close(&f->backend);
    vt_config_close(&f->config);
}

static vt_batch batch_of(const fixture *f, int64_t index)
{
    return (vt_batch){
        .sample_count = batch_size,
        .global_count = batch_size,
        .tensors = {f->inputs + index * batch_size * input_size, f->targets + index * batch_size * target_size}};
}

static void check_forward(vt_cpu_isa isa, const char *gelu, const char *path, double loss)
{
    hid_t file = golden_open("vit.h5");
    fixture f = open_fixture(file, isa, SETTINGS("gelu=%s", gelu));
    int64_t count;
    float fields[4 * 3 * 20 * 12];
    double *expected = golden_read(file, path, &count), *rmse = golden_read(file, "forward/channel_rmse", &count);
    EXPECT_OK(vt_step_predict(f.trainer, f.inputs, batch_size, fields)); /* means are 0, deviations 1 */
    double difference = golden_difference(fields, expected, 4 * 3 * 20 * 12);
    EXPECT(difference < 1e-5, "isa %d gelu %s: prediction differs by %g", (int)isa, gelu, difference);

    vt_evaluation sums;
    vt_batch batch = batch_of(&f, 0);
    vt_step_evaluation_open(f.trainer, false, &sums);
    EXPECT_OK(vt_step_evaluate(f.trainer, &batch, &sums));
    vt_step_evaluation_finish(f.trainer, &sums);
    EXPECT_NEAR(sums.loss, loss, 1e-5 * loss);
    if (strcmp(gelu, "erf") == 0)
        for (int c = 0; c < 3; c++) EXPECT_NEAR(sums.model.values[1 + c], rmse[c], 1e-5 * rmse[c]);
    vt_evaluation_close(&sums);
    close_fixture(&f);
    H5Fclose(file);
}

GPU_TEST(forward_loss_and_rmse)
{
    hid_t file = golden_open("vit.h5");
    int64_t count;
    double *loss = golden_read(file, "forward/loss", &count),
           *tanh_loss = golden_read(file, "forward/loss_tanh", &count);
    FOR_EACH_PATH(isa)
    {
        check_forward(isa, "erf", "forward/prediction", loss[0]);
        check_forward(isa, "tanh", "forward/prediction_tanh", tanh_loss[0]);
    }
    H5Fclose(file);
}

/* k.bias has the exact gradient 0; what is there must be rounding: below 1e-5 of q.bias's (parallel.md §4). */
static void check_key_bias(fixture *f, const vt_parameter *k_bias)
{
    char name[VT_PARAMETER_NAME];
    snprintf(name, sizeof name, "%s", k_bias->name);
    *strstr(name, ".k.bias") = '\0';
    strcat(name, ".q.bias");
    const vt_parameter *q_bias = vt_parameters_find(vt_trainer_parameters(f->trainer), name);
    double k_squares = 0, q_squares = 0;
    float *k = to_host(f->backend, k_bias->gradient, k_bias->count);
    float *q = to_host(f->backend, q_bias->gradient, q_bias->count);
    for (int64_t i = 0; i < k_bias->count; i++) {
        k_squares += (double)k[i] * (double)k[i];
        q_squares += (double)q[i] * (double)q[i];
    }
    EXPECT(sqrt(k_squares) < 1e-5 * sqrt(q_squares), "%s: %g beside %g", k_bias->name, sqrt(k_squares),
           sqrt(q_squares));
}

static double gradient_difference(fixture *f, const vt_parameter *parameter, const double *expected)
{
    float *gradient = to_host(f->backend, parameter->gradient, parameter->count);
    const double scale =
        vt_optimizer_progress_of(vt_trainer_optimizer(f->trainer)).loss_scale; /* fp16's, a power of two */
    for (int64_t i = 0; i < parameter->count && scale > 0; i++) gradient[i] /= (float)scale;
    double difference = golden_difference(gradient, expected, parameter->count);
    return difference;
}

static void check_gradients(hid_t file, vt_cpu_isa isa, const char *accumulation)
{
    fixture f = open_fixture(file, isa, SETTINGS("lr=0 grad_accumulation=%s", accumulation));
    vt_step_figures figures;
    vt_batch batch = batch_of(&f, 0);
    EXPECT_OK(vt_step_train(f.trainer, &batch, &figures));
    for (int64_t i = 0; i < vt_parameters_count(vt_trainer_parameters(f.trainer)); i++) {
        const vt_parameter *parameter = vt_parameters_at(vt_trainer_parameters(f.trainer), i);
        char path[160];
        int64_t count;
        if (strstr(parameter->name, ".k.bias") != NULL) {
            check_key_bias(&f, parameter);
            continue;
        }
        snprintf(path, sizeof path, "gradients/%s", parameter->name);
        double *expected = golden_read(file, path, &count);
        double difference = gradient_difference(&f, parameter, expected);
        EXPECT(difference < 1e-4, "isa %d, accumulation %s, %s differs by %g", (int)isa, accumulation, parameter->name,
               difference);
    }
    close_fixture(&f);
}

GPU_TEST(every_gradient)
{
    hid_t file = golden_open("vit.h5");
    FOR_EACH_PATH(isa) check_gradients(file, isa, "1");
    vt_cpu_isa best = vt_test_gpu_alone() ? PATH_GPU : VT_ISA_AUTO;
    check_gradients(file, best, "2");
    check_gradients(file, best, "4");
    H5Fclose(file);
}

static void check_training(hid_t file, vt_cpu_isa isa, const char *variant, const char *settings)
{
    fixture f = open_fixture(file, isa, settings);
    char path[160];
    int64_t count;
    snprintf(path, sizeof path, "training/%s/losses_float64", variant);
    double *losses = golden_read(file, path, &count);
    snprintf(path, sizeof path, "training/%s/grad_norms_float64", variant);
    double *norms = golden_read(file, path, &count);
    snprintf(path, sizeof path, "training/%s/learning_rates", variant);
    double *rates = golden_read(file, path, &count);
    for (int64_t step = 0; step < 50; step++) {
        vt_step_figures figures;
        vt_batch batch = batch_of(&f, step % batches);
        EXPECT_OK(vt_step_train(f.trainer, &batch, &figures));
        EXPECT_NEAR(figures.loss, losses[step], 1e-5 * losses[step]);
        EXPECT_NEAR(figures.gradient_norm, norms[step], 1e-4 * norms[step]);
        EXPECT_NEAR(figures.learning_rate, rates[step], 1e-12);
    }
    for (int64_t i = 0; i < vt_parameters_count(vt_trainer_parameters(f.trainer)); i++) {
        const vt_parameter *parameter = vt_parameters_at(vt_trainer_parameters(f.trainer), i);
        if (strstr(parameter->name, ".k.bias") != NULL) continue;
        snprintf(path, sizeof path, "training/%s/final_norms/%s", variant, parameter->name);
        double *expected = golden_read(file, path, &count), squares = 0;
        float *values = to_host(f.backend, parameter->value, parameter->count);
        for (int64_t j = 0; j < parameter->count; j++) squares += (double)values[j] * (double)values[j];
        EXPECT(fabs(sqrt(squares) - *expected) < 1e-5 * *expected, "%s %s: %.9g, expected %.9g", variant,
               parameter->name, sqrt(squares), *expected);
    }
    close_fixture(&f);
}

static void check_training_on_all_paths(const char *variant, const char *settings)
{
    hid_t file = golden_open("vit.h5");
    FOR_EACH_CPU_PATH(isa) check_training(file, isa, variant, settings);
    bool on_host = strcmp(variant, "adam") == 0 && path_is_available(PATH_HOST_CUDA); /* once: its threads are slow */
    if (on_host) check_training(file, PATH_HOST_CUDA, variant, settings);
    if (path_is_available(PATH_GPU)) check_training(file, PATH_GPU, variant, settings);
    H5Fclose(file);
}

/* A rounding is off by at most u = half_unit(type) of the number; in the root mean square by 0.42 u, as the error is
 * uniform between neighbours (1/√3) and mantissas lie evenly in their logarithm (0.74). From the input to the loss of
 * this model (two blocks: normed, q, k, v, out, normed, hidden, active and as many weights, each; the ends) there are
 * about 22 roundings on the way, and as many on the way back. Independent errors add up as the root of their number;
 * what one of them does to the result may be up to about three times as large as itself (weights here are eight times
 * the usual). float16's gradients come without a loss scale: they are about 3e-4, whose spacing is still that of normal
 * numbers, and the smaller ones' 2^-25 adds less than a tenth to the sum of squares. */
static double allowed(vt_type type, int roundings)
{
    return 3 * sqrt(roundings) * 0.42 * half_unit(type);
}

static const char *amp_of(vt_type type)
{
    return type == VT_BFLOAT16 ? "bf16" : "fp16";
}

static void check_half(hid_t file, vt_cpu_isa isa, vt_type type)
{
    int64_t count;
    double *loss = golden_read(file, "forward/loss", &count),
           *expected = golden_read(file, "forward/prediction", &count);
    double forward = allowed(type, 22), backward = allowed(type, 44);
    fixture f = open_fixture(file, isa, SETTINGS("lr=0 amp_mode=%s", amp_of(type)));
    float fields[4 * 3 * 20 * 12];
    vt_step_figures figures;
    vt_batch batch = batch_of(&f, 0);
    EXPECT_OK(vt_step_predict(f.trainer, f.inputs, batch_size, fields)); /* means are 0, deviations 1 */
    double difference = golden_difference(fields, expected, 4 * 3 * 20 * 12);
    EXPECT(difference < forward, "isa %d, %s: prediction differs by %g, allowed %g", (int)isa, half_name(type),
           difference, forward);
    EXPECT(difference > half_unit(type) / 4, "isa %d: prediction differs by %g only: is that %s?", (int)isa, difference,
           half_name(type));
    EXPECT_OK(vt_step_train(f.trainer, &batch, &figures));
    EXPECT_NEAR(figures.loss, *loss, forward * *loss);
    for (int64_t i = 0; i < vt_parameters_count(vt_trainer_parameters(f.trainer)); i++) {
        const vt_parameter *parameter = vt_parameters_at(vt_trainer_parameters(f.trainer), i);
        char path[160];
        if (strstr(parameter->name, ".k.bias") != NULL) continue;
        snprintf(path, sizeof path, "gradients/%s", parameter->name);
        double *gradient = golden_read(file, path, &count);
        difference = gradient_difference(&f, parameter, gradient);
        EXPECT(difference < backward, "isa %d, %s: %s differs by %g, allowed %g", (int)isa, half_name(type),
               parameter->name, difference, backward);
    }
    close_fixture(&f);
}

GPU_TEST(forward_and_gradients_in_16_bits)
{
    hid_t file = golden_open("vit.h5");
    FOR_EACH_PATH(isa)
    {
        FOR_EACH_HALF(type) check_half(file, isa, type);
    }
    if (path_is_available(PATH_TILES_MODEL)) check_half(file, PATH_TILES_MODEL, VT_BFLOAT16);
    H5Fclose(file);
}

static void check_half_steps(hid_t file, vt_cpu_isa isa, vt_type type)
{
    fixture f = open_fixture(file, isa, SETTINGS("lr=1e-3 amp_mode=%s", amp_of(type)));
    int64_t count;
    const double *losses = golden_read(file, "training/adam/losses_float64", &count);
    for (int64_t step = 0; step < 50; step++) {
        vt_step_figures figures;
        vt_batch batch = batch_of(&f, step % batches);
        EXPECT_OK(vt_step_train(f.trainer, &batch, &figures));
        EXPECT_NEAR(figures.loss, losses[step], allowed(type, 22) * losses[step]);
    }
    close_fixture(&f);
}

/* Fifty steps, in bfloat16 also with products and attention on tiles (over their model), and on the GPU: each loss
 * within the forward tolerance of the float64 curve. */
GPU_TEST(fifty_steps_in_16_bits)
{
    hid_t file = golden_open("vit.h5");
    FOR_EACH_HALF(type)
    {
        if (!vt_test_gpu_alone()) check_half_steps(file, VT_ISA_AUTO, type);
        if (type == VT_BFLOAT16 && path_is_available(PATH_TILES_MODEL)) check_half_steps(file, PATH_TILES_MODEL, type);
        if (path_is_available(PATH_GPU)) check_half_steps(file, PATH_GPU, type);
    }
    H5Fclose(file);
}

GPU_TEST(fifty_steps_adam)
{
    check_training_on_all_paths("adam", "lr=1e-3");
}

GPU_TEST(fifty_steps_adam_with_warmup)
{
    check_training_on_all_paths("adam_warmup", "lr=1e-3 warmup=10");
}

GPU_TEST(fifty_steps_adamw)
{
    check_training_on_all_paths("adamw", "lr=1e-3 optimizer=AdamW weight_decay=0.05");
}

GPU_TEST(fifty_steps_sgd)
{
    check_training_on_all_paths("sgd", "lr=0.05 optimizer=SGD weight_decay=1e-4");
}

GPU_TEST(fifty_steps_adam_with_clipping)
{
    check_training_on_all_paths("adam_clip", "lr=1e-3 grad_clip=0.3");
}

GPU_TEST(fifty_steps_with_fused_layers)
{
    check_training_on_all_paths("adam", "lr=1e-3 enable_jit=true");
}

GPU_TEST(fifty_steps_in_micro_batches)
{
    check_training_on_all_paths("adam", "lr=1e-3 grad_accumulation=4");
}
