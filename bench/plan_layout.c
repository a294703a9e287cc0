/* Compares what `vitrain plan` predicts for layouts with measurements on this machine.
 *
 *     plan_layout memory [--name=value of a configuration ...]
 *
 * makes two steps in one layout and compares the memory of the rank that takes most.
 *
 *     plan_layout time [--steps=N] [--name=value ...] [-- --name=value ...]...
 *
 * measures the machine with these ranks, makes N steps in each layout, measures the machine again, three times
 * over, and compares the times of steps with those predicted from the measurements before and after them. Each `--`
 * begins a layout, whose settings are those before the first `--` and its own; without one there is one layout.
 *
 * Exit status 3: memory is off by more than 15 %; 4: a time is, by more than 30 %, in a layout during whose steps and
 * measurements others had no more than a tenth of the machine; 5: only times of other layouts are. bench/plan and
 * tests/commands/plan.sh run it, with tests/mpirun on several ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"
#include "planning/layouts.h"
#include "planning/practice.h"

enum { MOST_STEPS = 101, ROUNDS = 3, MOST_LAYOUTS = 16, MOST_SETTINGS = 64 };
enum { WITHIN = 0, MEMORY_OUTSIDE = 3, TIME_OUTSIDE = 4, TIME_OUTSIDE_BUSY = 5 };
#define MEMORY_MARGIN 0.15
#define TIME_MARGIN 0.3
#define BUSY_SHARE 0.1

/* ---- the ranks of one layout, which make training steps on random numbers ---- */

/* This rank's part. */
typedef struct {
    vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_trainer *trainer;
    vt_batch batch;
    float *fields[2]; /* of the batch */
} bench_ranks;

/* Configuration, world, batch and back end; the trainer is opened after them. Collective. */
static vt_status ranks_open(char *const *settings, const vt_launch *launch, bench_ranks *r)
{
    static const char usual[] =
        "usual: {img_size: [64, 128], patch_size: 4, embed_dim: 192, depth: 6, num_heads: 8, global_batch_size: 8}";
    vt_status status = VT_OK;
    int count = 0;
    while (settings[count] != NULL) count++;
    VT_TRY(vt_config_open_text(usual, "bench/plan_layout", count, settings, launch->world_size, &r->config));
    VT_TRY(vt_world_open(r->config, launch, &r->world));
    const vt_config *config = r->config;
    const vt_span rows = vt_model_part(config, &r->world->layout, r->world->rank);
    const int64_t samples = config->global_batch_size / config->data_parallel;
    const int64_t points = samples * rows.count * config->img_size[1];
    r->fields[0] = vt_practice_numbers(points * config->n_in_channels, 0);
    r->fields[1] = vt_practice_numbers(points * config->n_out_channels, 1);
    r->batch = (vt_batch){.sample_count = samples,
                          .global_count = config->global_batch_size,
                          .first_in_batch = samples * r->world->coordinate[VT_AXIS_DATA],
                          .tensors = {r->fields[0], r->fields[1]}};
    VT_TRY(vt_backend_open_cpu(VT_ISA_AUTO, r->world->ranks == 1 ? 0 : r->world->cores, &r->backend));
done:
    return status;
}

/* The trainer, whose learning rate stays almost constant. Collective. */
static vt_status ranks_open_trainer(bench_ranks *r)
{
    const vt_trainer_options options = {.world = r->world, .steps = 100000};
    return vt_trainer_open(r->config, &options, r->backend, &r->trainer);
}

static void ranks_close(bench_ranks *r, bool failed)
{
    vt_trainer_close(&r->trainer);
    vt_backend_close(&r->backend);
    vt_world_close(&r->world, failed);
    vt_config_close(&r->config);
    for (int i = 0; i < 2; i++) free(r->fields[i]);
}

/* Seconds since some moment in the past. */
typedef struct {
    double wall, busy, own; /* the clock's, those of all cores together, and those of the measured processes */
} processor_use;

/* Seconds that all cores have worked since the machine started, including other guests of the same host; 0 if the
 * system doesn't say. */
static double busy_seconds(void)
{
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, stolen = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return 0;
    int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting, &interrupts,
                      &soft, &stolen);
    fclose(file);
    return read < 8 ? 0 : (user + nice + system + interrupts + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

static processor_use processor_use_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (processor_use){vt_clock_seconds(), busy_seconds(),
                           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                               1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)};
}

/* The share of the machine that other processes had in between. */
static double others_share(processor_use begin, processor_use end)
{
    const double all = (end.wall - begin.wall) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    return fmax(0, (end.busy - begin.busy) - (end.own - begin.own)) / all;
}

typedef struct {
    bench_ranks ranks;
    double measured[ROUNDS], predicted[ROUNDS + 1]; /* seconds of a step; one prediction a measurement */
} layout;

static void print_layout(const bench_ranks *l)
{
    const vt_config *config = l->config;
    printf("%d rank%s, tp %ld cp %ld dp %ld zero %ld%s%s, micro-batch %ld: ", l->world->ranks,
           l->world->ranks == 1 ? "" : "s", config->tensor_parallel, config->context_parallel, config->data_parallel,
           config->zero_stage, config->sequence_parallel && config->tensor_parallel > 1 ? " sequence" : "",
           config->recompute == VT_RECOMPUTE_BLOCK ? " recompute" : "", vt_trainer_micro_batch(config));
}

/* ---- memory ---- */

/* Begins to observe the maximum. */
static void watch_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL) return; /* then the maximum since the start counts, which is no less */
    fputs("5", file);
    fclose(file);
}

/* Resident bytes that other processes count, too: the program and its libraries, and the shared memory through which
 * MPI passes messages within a node. */
static double shared_memory(void)
{
    return vt_memory_of_process("RssShmem") + vt_memory_of_process("RssFile");
}

static double own_peak(void)
{
    return vt_memory_of_process("VmHWM") - shared_memory();
}

/* The maximum that this process alone had, in two pairs of steps. The system reports the maximum of all resident
 * memory, from which the memory that is shared at the end is subtracted: this is too much if that memory has grown
 * since, as in the first steps, in which MPI touches what it shares, but not in the second pair. */
static vt_status peak_of_steps(bench_ranks *l, double *peak)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    *peak = 0;
    for (int i = 0; i < 4; i++) {
        VT_TRY(vt_step_train(l->trainer, &l->batch, &figures));
        if (i % 2 == 0) continue;
        *peak = fmax(*peak, own_peak());
        watch_peak();
    }
done:
    return status;
}

static vt_status compare_memory(bench_ranks *l, int *verdict)
{
    vt_status status = VT_OK;
    vt_plan plan;
    double peak = 0;
    watch_peak();
    const double before = vt_memory_of_process("VmRSS") - shared_memory();
    const vt_plan_options options = vt_plan_options_of(l->world, l->backend);
    VT_TRY(vt_plan_make(l->config, &options, &plan));
    VT_TRY(ranks_open_trainer(l));
    VT_TRY(peak_of_steps(l, &peak));
    const double measured = vt_world_most(l->world, peak - before);
    const double shared = vt_world_most(l->world, shared_memory());
    const double planned = /* this program has no readers */
        vt_world_most(l->world, vt_plan_total(&plan) - (double)plan.ring_bytes);
    const double error = planned / measured - 1;
    *verdict = fabs(error) > MEMORY_MARGIN ? MEMORY_OUTSIDE : WITHIN;
    if (l->world->rank > 0) goto done;
    print_layout(l);
    printf("memory %.1f MB, measured %.1f MB (%+.0f %%; shared with others %.1f MB)%s\n", planned / 1e6, measured / 1e6,
           100 * error, shared / 1e6, *verdict == WITHIN ? "" : " OUTSIDE 15 %");
done:
    return status;
}

/* ---- time ---- */

static processor_use used_by_ranks(vt_world *world)
{
    processor_use used = processor_use_now();
    vt_world_sum(world, &used.own, 1);
    return used;
}

/* Measures the machine, once for all layouts: they have the same model and batch. */
static vt_status predict(layout *layouts, int count, int look)
{
    vt_status status = VT_OK;
    vt_hardware hardware;
    vt_option_cost option;
    const bench_ranks *first = &layouts[0].ranks;
    int64_t local = first->config->global_batch_size / first->world->ranks;
    VT_TRY(vt_calibrate(first->config, local > 0 ? local : 1, first->world, first->backend, &hardware));
    for (int i = 0; i < count; i++) { /* like `vitrain plan` */
        VT_TRY(vt_layouts_cost(layouts[i].ranks.config, &hardware, &option));
        layouts[i].predicted[look] = option.cost.step;
    }
done:
    return status;
}

/* Median seconds of a step until the slowest rank has finished; the first step doesn't count. */
static vt_status measure_steps(bench_ranks *l, int steps, double *seconds)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    double times[MOST_STEPS];
    vt_world_most(l->world, 0);
    for (int i = -1; i < steps; i++) {
        double begin = vt_clock_seconds();
        VT_TRY(vt_step_train(l->trainer, &l->batch, &figures));
        vt_world_most(l->world, 0);
        double slowest = vt_world_most(l->world, vt_clock_seconds() - begin);
        if (i >= 0) times[i] = slowest;
    }
    *seconds = vt_median(times, steps);
done:
    return status;
}

static int time_verdict(layout *l, double others)
{
    double ratios[ROUNDS], predicted[ROUNDS], measured[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        measured[i] = l->measured[i];
        predicted[i] = (l->predicted[i] + l->predicted[i + 1]) / 2;
        ratios[i] = predicted[i] / measured[i];
    }
    const double error = vt_median(ratios, ROUNDS) - 1;
    const bool outside = fabs(error) > TIME_MARGIN;
    if (l->ranks.world->rank == 0) {
        print_layout(&l->ranks);
        printf(
            "step %.3f s, measured %.3f s (%+.0f %%; rounds %+.0f … %+.0f %%; others had %.0f %% of the machine)%s\n",
            vt_median(predicted, ROUNDS), vt_median(measured, ROUNDS), 100 * error, 100 * (ratios[0] - 1),
            100 * (ratios[ROUNDS - 1] - 1), 100 * others, outside ? " OUTSIDE 30 %" : "");
    }
    if (!outside) return WITHIN;
    return others > BUSY_SHARE ? TIME_OUTSIDE_BUSY : TIME_OUTSIDE;
}

/* Other load comes and goes, so each round of steps lies between two measurements of the machine. */
static vt_status compare_times(layout *layouts, int count, int steps, int *verdict)
{
    vt_status status = VT_OK;
    vt_world *world = layouts[0].ranks.world;
    for (int i = 0; i < count; i++) VT_TRY(ranks_open_trainer(&layouts[i].ranks));
    const processor_use begin = used_by_ranks(world);
    VT_TRY(predict(layouts, count, 0));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) VT_TRY(measure_steps(&layouts[i].ranks, steps, &layouts[i].measured[round]));
        VT_TRY(predict(layouts, count, round + 1));
    }
    const double others = others_share(begin, used_by_ranks(world));
    for (int i = 0; i < count; i++) {
        int own = time_verdict(&layouts[i], others);
        if (*verdict == WITHIN || own == TIME_OUTSIDE) *verdict = own;
    }
done:
    return status;
}

/* ---- */

/* Splits the arguments at each `--`; returns the number of layouts, 0 for wrong or too many arguments. */
static int take_arguments(int argument_count, char *const *arguments, int64_t *steps,
                          char *settings[MOST_LAYOUTS][MOST_SETTINGS])
{
    char *common[MOST_SETTINGS] = {NULL};
    int count = 0, common_count = 0, used = 0;
    for (int i = 2; i < argument_count; i++) {
        if (strncmp(arguments[i], "--steps=", 8) == 0) {
            if (!vt_text_to_integer(arguments[i] + 8, steps) || *steps < 1 || *steps > MOST_STEPS) return 0;
        } else if (strcmp(arguments[i], "--") == 0) {
            if (count == MOST_LAYOUTS) return 0;
            memcpy(settings[count++], common, sizeof common);
            used = common_count;
        } else {
            if (common_count == MOST_SETTINGS - 1 || used == MOST_SETTINGS - 1) return 0;
            if (count == 0)
                common[common_count++] = arguments[i];
            else
                settings[count - 1][used++] = arguments[i];
        }
    }
    if (count > 0) return count;
    memcpy(settings[0], common, sizeof common);
    return 1;
}

int main(int argument_count, char **arguments)
{
    static layout layouts[MOST_LAYOUTS];
    static char *settings[MOST_LAYOUTS][MOST_SETTINGS];
    vt_status status = VT_OK;
    vt_launch launch = {.rank = 0};
    int64_t steps = 5;
    int verdict = WITHIN, opened = 0;
    int count = take_arguments(argument_count, arguments, &steps, settings);
    const bool memory = argument_count > 1 && strcmp(arguments[1], "memory") == 0;
    const bool time = argument_count > 1 && strcmp(arguments[1], "time") == 0;
    if (count == 0 || (!memory && !time) || (memory && count > 1)) {
        fprintf(stderr, "usage: plan_layout memory [--name=value ...]\n"
                        "       plan_layout time [--steps=N] [--name=value ...] [-- --name=value ...]...\n");
        return 2;
    }
    vt_threads_wait_shortly(arguments);
    VT_TRY(vt_launch_detect(&launch));
    for (; opened < count; opened++) VT_TRY(ranks_open(settings[opened], &launch, &layouts[opened].ranks));
    VT_TRY(memory ? compare_memory(&layouts[0].ranks, &verdict) : compare_times(layouts, count, (int)steps, &verdict));
done:
    if (status != VT_OK) fprintf(stderr, "plan_layout: %s\n", vt_error_text());
    for (int i = opened < count ? opened : count - 1; i >= 0; i--) ranks_close(&layouts[i].ranks, status != VT_OK);
    if (status != VT_OK) return 1;
    return launch.rank == 0 ? verdict : WITHIN; /* one exit status is enough */
}
