/* What `vitrain plan` says of one layout beside what it takes: measures this machine as these ranks find it, reckons
 * memory and time of a step, makes steps, measures the machine again, three times over, and prints both. Exit status 3:
 * memory is off by more than 15 %; 4: time is, by more than 30 %; 5: time is, and other work took more than a tenth of
 * the machine meanwhile. bench/plan and tests/commands/plan.sh run it.
 *
 *     tests/mpirun -np 2 build/bench/plan_layout [--steps=N] [--name=value of a configuration ...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/threads.h"
#include "planning/calibrate.h"
#include "planning/layouts.h"
#include "processor_time.h"
#include "report/memory.h"
#include "training/step.h"

enum { MOST_STEPS = 101, ROUNDS = 3, WITHIN = 0, MEMORY_OUTSIDE = 3, TIME_OUTSIDE = 4, TIME_OUTSIDE_BUSY = 5 };
#define MEMORY_MARGIN 0.15
#define TIME_MARGIN 0.3
#define BUSY_SHARE 0.1

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_trainer *trainer;
    vt_batch batch;
    float *fields[2], *means, *stds;
    double *latitudes;
} bench;

static double most(vt_world *world, double own)
{
    double highest = 0, *all = calloc((size_t)world->ranks, sizeof *all);
    VT_ASSERT(all != NULL);
    all[world->rank] = own;
    vt_world_sum(world, all, world->ranks);
    for (int i = 0; i < world->ranks; i++) highest = fmax(highest, all[i]);
    free(all);
    return highest;
}

typedef struct {
    double wall, busy, own; /* seconds: by the clock, of all cores, and of these ranks */
} cpu_seconds;

static cpu_seconds cpu_used(vt_world *world)
{
    cpu_seconds used = {vt_clock_seconds(), busy_seconds(), own_seconds(RUSAGE_SELF)};
    vt_world_sum(world, &used.own, 1);
    return used;
}

/* The share of the machine that others had between two looks. */
static double others_share(cpu_seconds begin, cpu_seconds end)
{
    double all = (end.wall - begin.wall) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    return fmax(0, (end.busy - begin.busy) - (end.own - begin.own)) / all;
}

static vt_status open_config(int argument_count, char *const *arguments, int64_t ranks, vt_config **config)
{
    static const char *const settings[][2] = {{"img_size", "[64,128]"}, {"patch_size", "4"},
                                              {"embed_dim", "192"},     {"depth", "6"},
                                              {"num_heads", "8"},       {"global_batch_size", "8"}};
    vt_status status = VT_OK;
    VT_TRY(vt_config_open_default(config));
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        VT_TRY(vt_config_set(*config, settings[i][0], settings[i][1]));
    for (int i = 1; i < argument_count; i++) {
        char name[64] = "";
        const char *equals = strchr(arguments[i], '=');
        VT_CHECK(strncmp(arguments[i], "--", 2) == 0 && equals != NULL && equals - arguments[i] < 64,
                 "expected --name=value, found %s", arguments[i]);
        memcpy(name, arguments[i] + 2, (size_t)(equals - arguments[i] - 2));
        if (strcmp(name, "steps") != 0) VT_TRY(vt_config_set(*config, name, equals + 1));
    }
    (*config)->ranks = ranks;
    VT_TRY(vt_config_resolve(*config));
done:
    return status;
}

static void make_batch(bench *b)
{
    const vt_config *config = b->config;
    vt_vit_options model = vt_trainer_model_options(config);
    int64_t tokens = (model.height / model.patch) * (model.width / model.patch);
    vt_run_of rows =
        vt_vit_rows(&model, vt_parallel_tokens(&b->world->layout, b->world->rank, config->sequence_parallel, tokens));
    int64_t local = config->global_batch_size / config->data_parallel, channels = config->n_in_channels;
    int64_t count = local * channels * rows.count * model.width;
    for (int i = 0; i < 2; i++) {
        b->fields[i] = malloc((size_t)count * sizeof(float));
        VT_ASSERT(b->fields[i] != NULL);
        for (int64_t j = 0; j < count; j++) b->fields[i][j] = (float)sin(0.01 * (double)(j + 7 * i));
    }
    b->batch = (vt_batch){.sample_count = local,
                          .global_count = config->global_batch_size,
                          .first_in_batch = local * b->world->coordinate[VT_AXIS_DATA],
                          .input = b->fields[0],
                          .target = b->fields[1]};
    b->means = calloc((size_t)channels, sizeof *b->means);
    b->stds = calloc((size_t)channels, sizeof *b->stds);
    b->latitudes = calloc((size_t)model.height, sizeof *b->latitudes);
    VT_ASSERT(b->means != NULL && b->stds != NULL && b->latitudes != NULL);
    for (int64_t c = 0; c < channels; c++) b->stds[c] = 1;
}

static vt_status predict(bench *b, vt_option_cost *option)
{
    vt_status status = VT_OK;
    vt_hardware hardware;
    int64_t local = b->config->global_batch_size / b->world->ranks; /* as `vitrain plan --calibrate` has it */
    VT_TRY(vt_calibrate(b->config, local > 0 ? local : 1, b->world, b->backend, &hardware));
    VT_TRY(vt_layouts_cost(b->config, &hardware, option));
done:
    return status;
}

/* Seconds of a step of the slowest rank, the median; the first doesn't count. */
static vt_status measure_steps(bench *b, int steps, double *seconds)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    double times[MOST_STEPS];
    for (int i = -1; i < steps; i++) {
        most(b->world, 0);
        double begin = vt_clock_seconds();
        VT_TRY(vt_step_train(b->trainer, &b->batch, &figures));
        double slowest = most(b->world, vt_clock_seconds() - begin);
        if (i >= 0) times[i] = slowest;
    }
    qsort(times, (size_t)steps, sizeof times[0], vt_by_value);
    *seconds = times[steps / 2];
done:
    return status;
}

/* Prints both and returns the exit status. */
static int print_result(const vt_option_cost costs[ROUNDS + 1], double bytes, double measured_bytes,
                        double shared_bytes, const double seconds[ROUNDS], double others)
{
    const vt_option_cost *first = &costs[0];
    double ratios[ROUNDS], predicted[ROUNDS], measured[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        measured[i] = seconds[i];
        predicted[i] = (costs[i].cost.step + costs[i + 1].cost.step) / 2;
        ratios[i] = predicted[i] / measured[i];
    }
    qsort(ratios, ROUNDS, sizeof ratios[0], vt_by_value);
    qsort(predicted, ROUNDS, sizeof predicted[0], vt_by_value);
    qsort(measured, ROUNDS, sizeof measured[0], vt_by_value);
    const double memory_error = bytes / measured_bytes - 1, time_error = ratios[ROUNDS / 2] - 1;
    int verdict = WITHIN;
    if (fabs(time_error) > TIME_MARGIN) verdict = others > BUSY_SHARE ? TIME_OUTSIDE_BUSY : TIME_OUTSIDE;
    if (fabs(memory_error) > MEMORY_MARGIN) verdict = MEMORY_OUTSIDE;
    const char *remark = verdict == MEMORY_OUTSIDE ? " OUTSIDE 15 % of memory" : " OUTSIDE 30 % of time";
    printf("tp %lld cp %lld dp %lld zero %lld%s%s micro-batch %lld: memory %.0f MB, measured %.0f MB (%+.0f %%; MPI's "
           "that the ranks share %.0f MB); step %.3f s, measured %.3f s (%+.0f %%; rounds %+.0f … %+.0f %%; others had "
           "%.0f %% of the machine)%s\n",
           (long long)first->tensor, (long long)first->context, (long long)first->data, (long long)first->zero,
           first->sequence ? " sequence" : "", first->recompute ? " recompute" : "", (long long)first->micro_batch,
           bytes / 1e6, measured_bytes / 1e6, 100 * memory_error, shared_bytes / 1e6, predicted[ROUNDS / 2],
           measured[ROUNDS / 2], 100 * time_error, 100 * (ratios[0] - 1), 100 * (ratios[ROUNDS - 1] - 1), 100 * others,
           verdict == WITHIN ? "" : remark);
    return verdict;
}

static vt_status run(bench *b, const vt_launch *launch, int steps, int *verdict)
{
    vt_status status = VT_OK;
    vt_option_cost costs[ROUNDS + 1];
    vt_plan plan;
    double seconds[ROUNDS], own = 0, shared = 0;
    VT_TRY(vt_world_open(b->config, launch, &b->world));
    VT_TRY(vt_backend_open_cpu(VT_ISA_AUTO, b->world->ranks == 1 ? 0 : b->world->threads, &b->backend));
    make_batch(b);
    const cpu_seconds begin = cpu_used(b->world);
    VT_TRY(predict(b, &costs[0]));
    vt_trainer_data data = {
        .means = b->means, .stds = b->stds, .latitudes = b->latitudes, .steps = 1000, .world = b->world};
    const double own_before = vt_memory_resident() - vt_memory_shared();
    VT_TRY(vt_trainer_plan(b->config, &data, &plan));
    VT_TRY(vt_trainer_open(b->config, &data, b->backend, &b->trainer));
    for (int round = 0; round < ROUNDS;
         round++) { /* other work comes and goes: each between two looks at the machine */
        VT_TRY(measure_steps(b, steps, &seconds[round]));
        if (round == 0) {
            own = most(b->world, vt_memory_resident() - vt_memory_shared() - own_before);
            shared = most(b->world, vt_memory_shared());
        }
        VT_TRY(predict(b, &costs[round + 1]));
    }
    double categories[VT_MEMORY_CATEGORY_COUNT];
    double planned = vt_cost_memory(&plan, categories) - (double)plan.ring_bytes; /* there are no readers here */
    planned = most(b->world, planned);
    const double others = others_share(begin, cpu_used(b->world));
    if (b->world->rank == 0) *verdict = print_result(costs, planned, own, shared, seconds, others);
done:
    return status;
}

int main(int argument_count, char **arguments)
{
    vt_status status = VT_OK;
    bench b = {0};
    vt_launch launch;
    int steps = 3;
    int verdict = WITHIN;
    vt_threads_wait_shortly(arguments);
    for (int i = 1; i < argument_count; i++)
        if (strncmp(arguments[i], "--steps=", 8) == 0) steps = atoi(arguments[i] + 8);
    if (steps < 1 || steps > MOST_STEPS) steps = MOST_STEPS;
    VT_TRY(vt_launch_detect(&launch));
    VT_TRY(open_config(argument_count, arguments, launch.world_size, &b.config));
    VT_TRY(run(&b, &launch, steps, &verdict));
done:
    if (status != VT_OK) fprintf(stderr, "bench/plan: %s\n", vt_error_text());
    vt_trainer_close(&b.trainer);
    vt_backend_close(&b.backend);
    vt_world_close(&b.world, status != VT_OK);
    vt_config_close(&b.config);
    for (int i = 0; i < 2; i++) free(b.fields[i]);
    free(b.means);
    free(b.stds);
    free(b.latitudes);
    return status != VT_OK ? 1 : verdict;
}
