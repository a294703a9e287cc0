#include "forecast/evaluation.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/fourier.h"
#include "base/memory.h"
#include "base/text.h"
#include "forecast/forecaster.h"
#include "training/reader.h"
#include "training/step.h"

/* Sums over cubes. The Fourier components of a cube are sorted into shells: shell m has those with m waves along the
 * cube, to the nearest whole number. Of each: the powers of prediction and target; what both have, the real part of
 * prediction · conjugate of target; and how many components were added. */
enum { PREDICTED, TRUE, COMMON, COMPONENTS, SUMS };

typedef struct {
    const vt_trained *model;
    vt_inference inference;
    vt_source *source;
    vt_loader *loader;
    vt_evaluation sums;
    int64_t side, points, channels; /* of a cube; points: side³ */
    float *prediction;              /* [channels, points]; the first channel is the density, also of a target */
    vt_fourier *fourier;
    vt_complex *waves[2]; /* [points] of prediction and target */
    int64_t shell_count;
    double (*shells)[SUMS];
} cubes;

static void take_memory(cubes *c)
{
    const vt_config *config = c->model->config;
    const char *what = "power spectra";
    c->side = config->data_size;
    c->points = c->side * c->side * c->side;
    c->channels = config->N_out_channels;
    c->prediction = vt_allocate((size_t)(c->channels * c->points), sizeof *c->prediction, "the evaluation");
    c->fourier = vt_fourier_open(c->side);
    for (int i = 0; i < 2; i++) c->waves[i] = vt_allocate((size_t)c->points, sizeof *c->waves[i], what);
    c->shell_count = c->side / 2 + 1;
    c->shells = vt_allocate((size_t)c->shell_count, sizeof *c->shells, what);
}

/* ---- spectra ---- */

/* The density relative to its mean, less 1, as waves; the field's values are `stride` apart. */
static void transform(const cubes *c, const float *field, int64_t stride, vt_complex *waves)
{
    enum { LOGARITHM = 14 }; /* the field is the density's logarithm divided by this */
    double mean = 0;
    for (int64_t i = 0; i < c->points; i++) mean += exp(LOGARITHM * (double)field[i * stride]) / (double)c->points;
    for (int64_t i = 0; i < c->points; i++)
        waves[i] = (vt_complex){exp(LOGARITHM * (double)field[i * stride]) / mean - 1, 0};
    vt_fourier_transform_cube(c->fourier, waves);
}

/* target: [points, channels] */
static void add_spectra(cubes *c, const float *target)
{
    const int64_t n = c->side;
    transform(c, c->prediction, 1, c->waves[0]);
    transform(c, target, c->channels, c->waves[1]);
    for (int64_t i = 0; i < c->points; i++) {
        const int64_t at[3] = {i / (n * n), i / n % n, i % n};
        double square = 0;
        for (int a = 0; a < 3; a++) square += pow((double)(at[a] <= n / 2 ? at[a] : n - at[a]), 2);
        const int64_t shell = (int64_t)lrint(sqrt(square));
        const vt_complex p = c->waves[0][i], t = c->waves[1][i];
        if (shell == 0 || shell >= c->shell_count) continue;
        c->shells[shell][PREDICTED] += p.real * p.real + p.imaginary * p.imaginary;
        c->shells[shell][TRUE] += t.real * t.real + t.imaginary * t.imaginary;
        c->shells[shell][COMMON] += p.real * t.real + p.imaginary * t.imaginary;
        c->shells[shell][COMPONENTS] += 1;
    }
}

/* ---- the phases ---- */

/* The spectra of this rank's cubes. */
static vt_status add_own_spectra(void *context, const vt_batch *batch)
{
    vt_status status = VT_OK;
    cubes *c = context;
    const int64_t inputs = vt_tensor_values(&c->source->specs[VT_TENSOR_INPUT]);
    for (int64_t i = 0; i < batch->sample_count; i++) {
        const vt_batch one = {.sample_count = 1,
                              .global_count = 1,
                              .tensors = {(const float *)batch->tensors[VT_TENSOR_INPUT] + i * inputs}};
        VT_TRY(vt_step_predict(c->inference.trainer, &one, c->prediction));
        add_spectra(c, (const float *)batch->tensors[VT_TENSOR_TARGET] + i * c->points * c->channels);
    }
done:
    return status;
}

/* ---- what is said of it ---- */

/* On standard output, and with all digits as lines of a file. */
static void tell_errors(const cubes *c, vt_text *file)
{
    const vt_score_names *names = &c->inference.task->scores;
    const vt_evaluation *sums = &c->sums;
    vt_text_append(file, "channel,l1,copying\nloss,%.9g,%.9g\n", sums->loss, sums->baseline_loss);
    vt_print("%-12s %10s %10s\n%-12s %10.6f %10.6f\n", "channel", "L1", "copying", "loss", sums->loss,
             sums->baseline_loss);
    for (int64_t i = 0; i < names->count; i++) {
        const double model = sums->model.values[1 + i], copying = sums->baseline.values[1 + i];
        vt_csv_append(file, names->names[i]);
        vt_text_append(file, ",%.9g,%.9g\n", model, copying);
        vt_print("%-12s %10.6f %10.6f\n", names->names[i], model, copying);
    }
}

static void tell_spectra(const cubes *c, vt_text *file)
{
    vt_text_append(file, "waves,predicted,true,ratio,correlation\n");
    vt_print("\ndensity: waves along a cube, predicted power / true, correlation\n");
    for (int64_t m = 1; m < c->shell_count; m++) {
        const double *sums = c->shells[m], scale = 1 / ((double)c->points * sums[COMPONENTS]);
        const double ratio = sums[PREDICTED] / sums[TRUE];
        const double correlation = sums[COMMON] / sqrt(sums[PREDICTED] * sums[TRUE]);
        vt_text_append(file, "%ld,%.9g,%.9g,%.9g,%.9g\n", m, sums[PREDICTED] * scale, sums[TRUE] * scale, ratio,
                       correlation);
        vt_print("%4ld %8.4f %8.4f\n", m, ratio, correlation);
    }
}

static vt_status report(const cubes *c, const char *output)
{
    vt_status status = VT_OK;
    vt_text errors = {0}, spectrum = {0};
    char *paths[] = {vt_text_format("%s/l1.csv", output), vt_text_format("%s/spectrum.csv", output)};
    vt_print_wrapped("%s (%s), %ld cubes of %s\n", c->model->checkpoint, c->model->how_far, c->source->sample_count,
                     c->source->path);
    tell_errors(c, &errors);
    tell_spectra(c, &spectrum);
    VT_TRY(vt_file_write(paths[0], errors.characters, errors.length));
    VT_TRY(vt_file_write(paths[1], spectrum.characters, spectrum.length));
    vt_print_wrapped("written: l1.csv and spectrum.csv in %s\n", output);
done:
    for (int i = 0; i < 2; i++) free(paths[i]);
    vt_text_close(&errors);
    vt_text_close(&spectrum);
    return status;
}

static vt_status run_phases(cubes *c, vt_place *place)
{
    vt_status status = VT_OK;
    const vt_config *config = c->model->config;
    vt_inference *with = &c->inference;
    vt_world *world = with->world;
    VT_TRY(vt_world_agree(world, vt_reader_open_source(config, world, VT_SET_VALIDATION, &c->source)));
    VT_TRY(vt_source_check_same(world, (const vt_source *const[]){c->source}, 1, NULL));
    vt_source_add_files(c->source, &place->made_from);
    VT_TRY(vt_place_take(place, world));
    VT_TRY(vt_world_agree(world, vt_task_kind_of(config)->open(config, NULL, c->source, &with->task)));
    VT_TRY(vt_inference_open(c->model, with));
    VT_TRY(vt_world_agree(
        world, vt_reader_open_loader(config, world, with->backend, (vt_reader_use){0}, c->source, &c->loader)));
    take_memory(c);
    VT_TRY(vt_validate(with->trainer, c->loader, true, add_own_spectra, c, &c->sums));
    vt_world_sum(world, *c->shells, SUMS * c->shell_count);
    VT_TRY(vt_world_agree(world, world->rank == 0 ? report(c, place->directory) : VT_OK));
done:
    return status;
}

vt_status vt_cubes_evaluate(const vt_trained *model, vt_place *place, const vt_launch *launch)
{
    vt_status status = VT_OK;
    cubes c = {.model = model};
    VT_TRY(vt_world_open(model->config, launch, &c.inference.world));
    status = run_phases(&c, place);
done:
    vt_evaluation_close(&c.sums);
    for (int i = 0; i < 2; i++) free(c.waves[i]);
    free(c.shells);
    vt_fourier_close(&c.fourier);
    free(c.prediction);
    vt_loader_close(&c.loader);
    vt_inference_close(&c.inference, status);
    vt_source_close(&c.source);
    return status;
}
