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

/* Sums over samples. The Fourier components of a cube are sorted into shells: shell m has those with m waves along the
 * cube, rounded. Of each: the powers of prediction and target; what both have, the real part of prediction · conjugate
 * of target; and how many components were added. */
enum { PREDICTED, TRUE, COMMON, COMPONENTS, SUMS };

typedef struct {
    int64_t side, count; /* count: of shells */
    vt_fourier *fourier;
    vt_complex *waves[2];   /* [side³] of prediction and target */
    double (*shells)[SUMS]; /* [count] */
} spectra;

typedef struct {
    const vt_trained *model;
    vt_inference inference;
    vt_source *source;
    vt_loader *loader;
    vt_evaluation sums;
    spectra spectra;
    float *prediction; /* [channels, side³]; its first channel is the density */
    float *density;    /* [side³], of the target */
} cubes;

/* ---- spectra ---- */

static spectra open_spectra(int64_t side)
{
    const char *what = "power spectra";
    const size_t points = (size_t)(side * side * side);
    spectra s = {.side = side, .count = side / 2 + 1, .fourier = vt_fourier_open(side)};
    s.shells = vt_allocate((size_t)s.count, sizeof *s.shells, what);
    for (int i = 0; i < 2; i++) s.waves[i] = vt_allocate(points, sizeof *s.waves[i], what);
    return s;
}

/* The density relative to its mean, less 1, as waves. */
static void transform(const spectra *s, const float *field, vt_complex *waves)
{
    enum { LOGARITHM = 14 }; /* the field is the density's logarithm divided by this */
    const int64_t points = s->side * s->side * s->side;
    double mean = 0;
    for (int64_t i = 0; i < points; i++) mean += exp(LOGARITHM * (double)field[i]) / (double)points;
    for (int64_t i = 0; i < points; i++) waves[i] = (vt_complex){exp(LOGARITHM * (double)field[i]) / mean - 1, 0};
    vt_fourier_transform_cube(s->fourier, waves);
}

static void add_spectra(spectra *s, const float *prediction, const float *target)
{
    const int64_t n = s->side;
    transform(s, prediction, s->waves[0]);
    transform(s, target, s->waves[1]);
    for (int64_t i = 0; i < n * n * n; i++) {
        const int64_t at[3] = {i / (n * n), i / n % n, i % n};
        double square = 0;
        for (int a = 0; a < 3; a++) square += pow((double)(at[a] <= n / 2 ? at[a] : n - at[a]), 2);
        const int64_t shell = (int64_t)lrint(sqrt(square));
        const vt_complex p = s->waves[0][i], t = s->waves[1][i];
        if (shell == 0 || shell >= s->count) continue;
        s->shells[shell][PREDICTED] += p.real * p.real + p.imaginary * p.imaginary;
        s->shells[shell][TRUE] += t.real * t.real + t.imaginary * t.imaginary;
        s->shells[shell][COMMON] += p.real * t.real + p.imaginary * t.imaginary;
        s->shells[shell][COMPONENTS] += 1;
    }
}

/* ---- the phases ---- */

/* The spectra of this rank's cubes. */
static vt_status add_own_spectra(cubes *c, const vt_batch *batch)
{
    vt_status status = VT_OK;
    const int64_t points = c->spectra.side * c->spectra.side * c->spectra.side,
                  channels = c->model->config->N_out_channels;
    const int64_t inputs = vt_tensor_values(&c->source->specs[VT_TENSOR_INPUT]);
    for (int64_t i = 0; i < batch->sample_count; i++) {
        const float *target = (const float *)batch->tensors[VT_TENSOR_TARGET] + i * points * channels;
        const vt_batch one = {.sample_count = 1,
                              .global_count = 1,
                              .tensors = {(const float *)batch->tensors[VT_TENSOR_INPUT] + i * inputs}};
        VT_TRY(vt_step_predict(c->inference.trainer, &one, c->prediction));
        for (int64_t p = 0; p < points; p++) c->density[p] = target[p * channels];
        add_spectra(&c->spectra, c->prediction, c->density);
    }
done:
    return status;
}

static vt_status go_through(cubes *c)
{
    vt_status status = VT_OK;
    vt_world *world = c->inference.world;
    int64_t replaced = 0;
    vt_step_evaluation_open(c->inference.trainer, true, &c->sums);
    vt_loader_begin(c->loader, 0, 0);
    for (;;) {
        const vt_batch *batch = NULL;
        VT_TRY(vt_reader_next(c->inference.trainer, c->loader, &batch, &replaced));
        if (batch == NULL) break;
        VT_TRY(vt_world_agree(world, vt_step_evaluate(c->inference.trainer, batch, &c->sums)));
        VT_TRY(vt_world_agree(world, add_own_spectra(c, batch)));
    }
    vt_world_sum(world, *c->spectra.shells, SUMS * c->spectra.count);
    vt_step_evaluation_finish(c->inference.trainer, &c->sums);
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
    const spectra *s = &c->spectra;
    const double points = pow((double)s->side, 3);
    vt_text_append(file, "waves,predicted,true,ratio,correlation\n");
    vt_print("\ndensity: waves along a cube, predicted power / true, correlation\n");
    for (int64_t m = 1; m < s->count; m++) {
        const double *sums = s->shells[m], scale = 1 / (points * sums[COMPONENTS]);
        const double ratio = sums[PREDICTED] / sums[TRUE];
        const double correlation = sums[COMMON] / sqrt(sums[PREDICTED] * sums[TRUE]);
        vt_text_append(file, "%lld,%.9g,%.9g,%.9g,%.9g\n", (long long)m, sums[PREDICTED] * scale, sums[TRUE] * scale,
                       ratio, correlation);
        vt_print("%4lld %8.4f %8.4f\n", (long long)m, ratio, correlation);
    }
}

static vt_status report(const cubes *c, const char *output)
{
    vt_status status = VT_OK;
    vt_text errors = {0}, spectrum = {0};
    char *paths[] = {vt_text_format("%s/l1.csv", output), vt_text_format("%s/spectrum.csv", output)};
    vt_print_wrapped("%s (%s), %lld cubes of %s\n", c->model->checkpoint, c->model->how_far,
                     (long long)c->source->sample_count, c->source->path);
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
    const size_t points = (size_t)(config->data_size * config->data_size * config->data_size);
    VT_TRY(vt_world_agree(world, vt_reader_open_source(config, world, VT_SET_VALIDATION, &c->source)));
    VT_TRY(vt_source_check_same(world, (const vt_source *const[]){c->source}, 1, NULL));
    vt_source_add_files(c->source, &place->made_from);
    VT_TRY(vt_place_take(place, world));
    VT_TRY(vt_world_agree(world, vt_task_open(config, NULL, c->source, &with->task)));
    VT_TRY(vt_inference_open(c->model, with));
    VT_TRY(vt_world_agree(
        world, vt_reader_open_loader(config, world, with->backend, (vt_reader_use){0}, c->source, &c->loader)));
    c->prediction = vt_allocate((size_t)config->N_out_channels * points, sizeof(float), "the evaluation");
    c->density = vt_allocate(points, sizeof(float), "the evaluation");
    c->spectra = open_spectra(config->data_size);
    VT_TRY(go_through(c));
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
    for (int i = 0; i < 2; i++) free(c.spectra.waves[i]);
    free(c.spectra.shells);
    vt_fourier_close(&c.spectra.fourier);
    free(c.prediction);
    free(c.density);
    vt_loader_close(&c.loader);
    vt_inference_close(&c.inference, status);
    vt_source_close(&c.source);
    return status;
}
