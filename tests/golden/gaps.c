/* A small ViT of gaps.h5 against PyTorch: missing points in input and target, the mask as channels, and a grid of 11 x
 * 13 points in patches of 4, whose columns wrap around. On every path of the CPU, the CUDA kernels on the host, and the
 * GPU. Tolerances are those of golden/vit.c. */
#include "golden/golden_file.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "settings.h"
#include "task/weather.h"
#include "test.h"
#include "training/step.h"

enum { BATCH = 3, IN = 4, OUT = 2, HEIGHT = 11, WIDTH = 13, STEPS = 10, SIZE = BATCH * OUT * HEIGHT * WIDTH };

typedef struct {
    hid_t file;
    vt_config *config;
    vt_backend *backend;
    vt_task *task;
    vt_trainer *trainer;
    vt_batch batch;
    float *input, *target;
} fixture;

static fixture open_fixture(vt_cpu_isa isa, const char *settings)
{
    static const char model[] = "img_size=[11,13] patch_size=4 pad=wrap missing=mask mask_channels=true n_history=1 "
                                "n_in_channels=4 n_out_channels=2 embed_dim=16 depth=1 num_heads=2 num_iters=10 "
                                "global_batch_size=3";
    static const float means[OUT] = {0}, stds[OUT] = {1, 1};
    fixture f = {.file = golden_open("gaps.h5")};
    double latitudes[HEIGHT];
    int64_t count;
    for (int row = 0; row < HEIGHT; row++) latitudes[row] = 90 - 180.0 * row / (HEIGHT - 1);
    EXPECT_OK(vt_config_open_default(&f.config));
    set_options(f.config, model);
    set_options(f.config, settings);
    EXPECT_OK(vt_config_resolve(f.config));
    EXPECT_OK(path_open_trainers(isa, &f.backend));
    f.task = vt_weather_open(f.config, means, stds, latitudes);
    const vt_trainer_options options = {.task = f.task, .steps = STEPS};
    EXPECT_OK(vt_trainer_open(f.config, &options, f.backend, &f.trainer));
    golden_load(f.file, f.backend, vt_trainer_parameters(f.trainer));
    f.input = golden_read_float(f.file, "inputs", &count);
    EXPECT(count == BATCH * IN * HEIGHT * WIDTH);
    f.target = golden_read_float(f.file, "targets", &count);
    EXPECT(count == SIZE);
    f.batch = (vt_batch){.sample_count = BATCH, .global_count = BATCH, .tensors = {f.input, f.target}};
    return f;
}

static void close_fixture(fixture *f)
{
    vt_trainer_close(&f->trainer);
    vt_task_close(&f->task);
    vt_backend_close(&f->backend);
    vt_config_close(&f->config);
    H5Fclose(f->file);
}

static double *read_golden(const fixture *f, const char *name)
{
    int64_t count;
    return golden_read(f->file, name, &count);
}

static void check_forward(vt_cpu_isa isa)
{
    fixture f = open_fixture(isa, "lr=1e-3");
    double *prediction = read_golden(&f, "prediction"), *losses = read_golden(&f, "sample_losses");
    double *rmse = read_golden(&f, "channel_rmse");
    const double loss = (losses[0] + losses[1] + losses[2]) / BATCH;
    float fields[SIZE];
    vt_evaluation sums;
    EXPECT_OK(vt_step_predict(f.trainer, f.input, BATCH, fields));
    const double difference = golden_difference(fields, prediction, SIZE);
    EXPECT(difference < 1e-5, "isa %d: prediction differs by %g", (int)isa, difference);
    vt_step_evaluation_open(f.trainer, false, &sums);
    EXPECT_OK(vt_step_evaluate(f.trainer, &f.batch, &sums));
    vt_step_evaluation_finish(f.trainer, &sums);
    EXPECT_NEAR(sums.loss, loss, 1e-5 * loss);
    for (int c = 0; c < OUT; c++) EXPECT_NEAR(sums.model.values[1 + c], rmse[c], 1e-5 * rmse[c]);
    vt_evaluation_close(&sums);
    close_fixture(&f);
}

static void check_gradients(vt_cpu_isa isa)
{
    fixture f = open_fixture(isa, "lr=0");
    vt_step_figures figures;
    EXPECT_OK(vt_step_train(f.trainer, &f.batch, &figures));
    for (int64_t i = 0; i < vt_parameters_count(vt_trainer_parameters(f.trainer)); i++) {
        const vt_parameter *parameter = vt_parameters_at(vt_trainer_parameters(f.trainer), i);
        char path[160];
        if (strstr(parameter->name, ".k.bias") != NULL) continue; /* exactly 0: rounding */
        snprintf(path, sizeof path, "gradients/%s", parameter->name);
        double *expected = read_golden(&f, path);
        float *gradient = vt_test_owned(malloc((size_t)parameter->count * sizeof *gradient));
        f.backend->copy_to_host(f.backend, gradient, parameter->gradient, (size_t)parameter->count * sizeof *gradient);
        const double difference = golden_difference(gradient, expected, parameter->count);
        EXPECT(difference < 1e-4, "isa %d: %s differs by %g", (int)isa, parameter->name, difference);
    }
    close_fixture(&f);
}

GPU_TEST(gaps_forward_and_gradients)
{
    FOR_EACH_PATH(isa)
    {
        check_forward(isa);
        check_gradients(isa);
    }
}

GPU_TEST(ten_steps_with_gaps)
{
    FOR_EACH_PATH(isa)
    {
        fixture f = open_fixture(isa, "lr=1e-3");
        double *losses = read_golden(&f, "losses");
        for (int step = 0; step < STEPS; step++) {
            vt_step_figures figures;
            EXPECT_OK(vt_step_train(f.trainer, &f.batch, &figures));
            EXPECT_NEAR(figures.loss, losses[step], 1e-5 * losses[step]);
        }
        close_fixture(&f);
    }
}

/* Half a unit in the last place for each of 22 roundings on the way, and their effect on the result: golden/vit.c. */
GPU_TEST(gaps_in_16_bits_and_micro_batches)
{
    FOR_EACH_PATH(isa)
    {
        for (int half = 0; half < 2; half++) {
            fixture f =
                open_fixture(isa, SETTINGS("lr=1e-3 amp_mode=%s grad_accumulation=3", half == 0 ? "bf16" : "fp16"));
            const double allowed = 3 * sqrt(22) * 0.42 * half_unit(half == 0 ? VT_BFLOAT16 : VT_FLOAT16);
            double *losses = read_golden(&f, "losses");
            for (int step = 0; step < STEPS; step++) {
                vt_step_figures figures;
                EXPECT_OK(vt_step_train(f.trainer, &f.batch, &figures));
                EXPECT_NEAR(figures.loss, losses[step], allowed * losses[step]);
            }
            close_fixture(&f);
        }
    }
}
