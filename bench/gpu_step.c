/* vitrain's side of bench/gpu: training steps on request, with one batch that lies in the device's memory.
 *
 *     build/bench/gpu_step --device=cuda|cpu [--parameters=FILE.safetensors] [--name=value of vitrain ...]
 *
 *     stdin       stdout
 *                 ready {…}              after the first steps: seconds of the first one, the most memory that was
 *                                        taken, and the memory taken now
 *     step        0.123456 1.23456789    seconds of one step; the loss before its update
 *     classes     {"attention": …}       seconds of one step's operations by class, each operation waited for; how many
 *                                        steps there were, and how many of them were replayed as a CUDA graph
 *     quit, EOF   {…}                    one line, then the end
 *
 * With --parameters no step is made before the first request, so that losses can be compared from the start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef VT_HAS_CUDA
#include <cuda_runtime_api.h>

#include "state.h"
#endif

#include "backend/times.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/profile.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "planning/practice.h"
#include "source/sources.h"
#include "training/plan.h"
#include "training/step.h"
#include "training/trainer_inside.h"

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_trainer *trainer;
    vt_batch batch;
    void *tensors[VT_BATCH_TENSORS]; /* the batch's, in the back end's memory */
    double step_flops, planned_bytes, free_before, batch_seconds;
    const char *parameters; /* a file */
} side;

/* count numbers function(step * i), as bench/pytorch_step.py makes them. */
static void make_wave(float *values, int64_t count, double step, double (*function)(double))
{
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) values[i] = (float)function(step * (double)i);
}

/* A tensor of the batch, in the back end's memory. */
static vt_status make_tensor(side *s, int index, const vt_tensor_spec *spec)
{
    vt_status status = VT_OK;
    vt_backend *backend = s->backend;
    const int64_t samples = s->batch.sample_count, count = samples * vt_tensor_values(spec);
    const size_t bytes = (size_t)samples * vt_tensor_bytes(spec);
    const bool words = spec->type == VT_TENSOR_INT32;
    float *values = words ? vt_practice_numbers(count, (uint32_t)index) : vt_allocate(bytes, 1, "the batch");
    if (words)
        vt_practice_words(values, count, s->config->vocab_size);
    else if (index == VT_TENSOR_INPUT)
        make_wave(values, count, 0.01, sin);
    else
        make_wave(values, count, 0.013, cos);
    VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, bytes, &s->tensors[index]));
    backend->copy_from_host(backend, s->tensors[index], values, bytes);
    VT_TRY(backend->check(backend));
    s->batch.tensors[index] = s->tensors[index];
done:
    free(values);
    return status;
}

static vt_status make_batch(side *s)
{
    vt_status status = VT_OK;
    const vt_config *config = s->config;
    const vt_model_kind *model = vt_model_kind_of(config);
    const int64_t samples = config->global_batch_size;
    vt_tensor_spec specs[VT_BATCH_TENSORS];
    const vt_span all = model->part_needed(config, (vt_span){0, model->tokens(config)});
    const int count = vt_source_kind_of(config)->specs(config, all, specs);
    s->batch = (vt_batch){.sample_count = samples, .global_count = samples};
    for (int i = 0; i < count; i++) VT_TRY(make_tensor(s, i, &specs[i]));
done:
    return status;
}

static void release_batch(side *s)
{
    for (int i = 0; i < VT_BATCH_TENSORS; i++) {
        s->backend->release(s->backend, s->tensors[i]);
        s->batch.tensors[i] = s->tensors[i] = NULL;
    }
}

/* All flags but --parameters are vitrain's. */
static vt_status configure(side *s, int count, char **arguments)
{
    static const char name[] = "--parameters=";
    int own = 0;
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], name, strlen(name)) == 0)
            s->parameters = arguments[i] + strlen(name);
        else
            arguments[own++] = arguments[i];
    }
    return vt_config_open_text("bench: {}", "bench/gpu_step", own, arguments, 1, &s->config);
}

static vt_status open_trainer(side *s)
{
    vt_status status = VT_OK;
    vt_config *config = s->config;
    vt_plan plan;
    /* a cosine so long that the rate stays constant */
    const vt_trainer_options options = {.steps = 1000000000};
    const vt_plan_options planned = {.device_memory = !s->backend->shares_host_memory};
    VT_TRY(vt_plan_make(config, &planned, &plan));
    VT_TRY(vt_budget_keep_outputs(config, &planned, 0, s->backend->available_memory(s->backend), &plan));
    s->step_flops = plan.step.flops;
    s->planned_bytes = vt_plan_total(&plan);
    VT_TRY(vt_trainer_open(config, &options, s->backend, &s->trainer));
    if (s->parameters != NULL) {
        const vt_checkpoint_subject subject = vt_trainer_subject(s->trainer);
        VT_TRY(vt_checkpoint_read_parameters(s->parameters, &subject, NULL));
    }
done:
    return status;
}

/* Puts the batch where a step reads it in the device's memory, as on PyTorch's side: a step then copies nothing, and no
 * memory is reserved for uploads. */
static vt_status place_batch(side *s)
{
    vt_status status = VT_OK;
    if (s->backend->shares_host_memory) return VT_OK;
    VT_TRY(vt_step_keep_batch(s->trainer, &s->batch));
    release_batch(s);
done:
    return status;
}

/* The GPU's free memory when only its context exists. As on the other side, what libraries take later counts as taken.
 */
static double free_beside_context(const vt_config *config)
{
    size_t bytes = 0;
#ifdef VT_HAS_CUDA
    size_t all = 0;
    if (config->device == VT_DEVICE_CPU || cudaFree(NULL) != cudaSuccess || cudaMemGetInfo(&bytes, &all) != cudaSuccess)
        bytes = 0;
#endif
    (void)config;
    return (double)bytes;
}

/* The most memory that was observed to be taken, including that of the first step's trials: the other side's allocator
 * never gives memory back, so its figure is also a maximum. `steady`: what is taken now. */
static double memory_taken(const side *s, double *steady)
{
    vt_backend *backend = s->backend;
    if (backend->shares_host_memory) return *steady = vt_memory_of_process("VmHWM");
    double least = backend->available_memory(backend);
    *steady = s->free_before - least;
#ifdef VT_HAS_CUDA
    const vt_cuda_state *state = backend->state;
    if (state->least_free > 0) least = fmin(least, (double)state->least_free);
#endif
    return s->free_before - least;
}

static vt_status open_side(side *s, int count, char **arguments)
{
    vt_status status = VT_OK;
    VT_TRY(configure(s, count, arguments));
    s->free_before = free_beside_context(s->config);
    VT_TRY(vt_backend_open(s->config, 0, 0, &s->backend));
    const double begin = vt_clock_seconds();
    VT_TRY(make_batch(s));
    s->batch_seconds = vt_clock_seconds() - begin;
    VT_TRY(open_trainer(s));
    VT_TRY(place_batch(s));
done:
    return status;
}

static vt_status run_step(side *s, double *seconds, double *loss)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    double begin = vt_clock_seconds();
    VT_TRY(vt_step_train(s->trainer, &s->batch, &figures));
    VT_TRY(s->backend->check(s->backend));
    *seconds = vt_clock_seconds() - begin;
    *loss = figures.loss;
done:
    return status;
}

/* Classes of operations by the beginning of their names; the first match counts, and the others are the last class's.
 * What linear_gelu_forward and linear_gelu_backward do besides their products is of the products' time. */
static const struct {
    const char *name, *operations[5];
} classes[] = {{"products, with GELU", {"linear"}},
               {"convolutions", {"convolution"}},
               {"attention", {"attention"}},
               {"LayerNorm", {"layer_norm", "residual_layer_norm"}},
               {"GELU alone", {"gelu"}},
               {"bias and activation", {"bias_activation"}},
               {"words and cross entropy", {"embedding", "sinusoid", "cross_entropy"}},
               {"patches and loss", {"patches", "loss", "density_loss"}},
               {"optimizer", {"sum_of_squares", "step_decide", "first_nonfinite", "update"}},
               {"copies", {"zero", "copy"}},
               {"residual", {NULL}}};
enum { CLASS_COUNT = sizeof classes / sizeof classes[0] };

static size_t class_of(const char *operation)
{
    for (size_t i = 0; i < CLASS_COUNT - 1; i++)
        for (const char *const *begin = classes[i].operations; *begin != NULL; begin++)
            if (strncmp(operation, *begin, strlen(*begin)) == 0) return i;
    return CLASS_COUNT - 1;
}

static void print_times(const side *s, double step_seconds)
{
    int count;
    const vt_operation_time *times = vt_times_sorted(s->backend, &count);
    double sum = 0, seconds[CLASS_COUNT] = {0};
    int64_t calls = 0;
    for (int i = 0; i < count; i++) {
        seconds[class_of(times[i].operation)] += times[i].seconds;
        sum += times[i].seconds;
        calls += times[i].calls;
    }
    printf("{");
    for (size_t i = 0; i < CLASS_COUNT; i++)
        if (seconds[i] > 0) printf("\"%s\": %.6f, ", classes[i].name, seconds[i]);
    printf("\"between operations\": %.6f, \"step_seconds\": %.6f, \"calls\": %ld, \"steps\": %ld, \"replayed\": %ld}\n",
           step_seconds - sum, step_seconds, calls, s->trainer->steps_started, s->trainer->steps_replayed);
}

static vt_status print_classes(side *s)
{
    double seconds = 0, loss = 0;
    vt_times_open(s->backend);
    vt_profile_records = true; /* run directly, not replayed */
    vt_status status = run_step(s, &seconds, &loss);
    vt_profile_records = false;
    if (status == VT_OK) print_times(s, seconds);
    vt_times_close(s->backend);
    return status;
}

static vt_status answer(side *s)
{
    vt_status status = VT_OK;
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "quit\n") != 0) {
        double seconds = 0, loss = 0;
        if (strcmp(line, "classes\n") == 0) {
            VT_TRY(print_classes(s));
        } else {
            VT_CHECK(strcmp(line, "step\n") == 0, "unknown request '%s', expected step, classes or quit", line);
            VT_TRY(run_step(s, &seconds, &loss));
            printf("%.6f %.9g\n", seconds, loss);
        }
        fflush(stdout);
    }
done:
    return status;
}

int main(int argument_count, char **arguments)
{
    vt_status status = VT_OK;
    side s = {0};
    double seconds = 0, later = 0, loss = 0, begin = vt_clock_seconds(), opened;
    vt_threads_wait_shortly(arguments);
    VT_TRY(open_side(&s, argument_count, arguments));
    opened = vt_clock_seconds() - begin - s.batch_seconds;
    if (s.parameters == NULL) {
        VT_TRY(run_step(&s, &seconds, &loss));
        /* until the step has been recorded, which takes memory, too */
        for (int i = 0; i < 3; i++) VT_TRY(run_step(&s, &later, &loss));
    }
    double steady, taken = memory_taken(&s, &steady);
    printf("ready {\"device\": \"%s\", \"open_seconds\": %.3f, \"first_step_seconds\": %.3f, \"memory_bytes\": %.0f, "
           "\"steady_bytes\": %.0f, \"planned_bytes\": %.0f, \"step_flops\": %.6g}\n",
           s.backend->name, opened, seconds, taken, steady, s.planned_bytes, s.step_flops);
    fflush(stdout);
    VT_TRY(answer(&s));
    printf("{\"parameters\": %ld, \"steps\": %ld, \"replayed\": %ld}\n", vt_trainer_parameters(s.trainer)->whole_count,
           s.trainer->steps_started, s.trainer->steps_replayed);
done:
    if (status != VT_OK) fprintf(stderr, "bench/gpu_step: %s\n", vt_error_text());
    vt_trainer_close(&s.trainer);
    if (s.backend != NULL) release_batch(&s);
    vt_backend_close(&s.backend);
    vt_config_close(&s.config);
    return status == VT_OK ? 0 : 1;
}
