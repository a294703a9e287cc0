/* Strong and weak scaling of training steps over the ranks of this machine.
 *
 *     build/bench/scaling [--rounds=N] [--steps=N] [--ranks=N] [--patience=SECONDS]
 *
 * Starts itself under tests/mpirun once for each layout and round. The layouts take turns, so that all of them meet the
 * same states of the machine; the medians are over all steps of all rounds. In strong scaling the ranks share all cores
 * evenly, as threads; with more ranks than cores (marked) each has one thread. --ranks: the largest number of ranks (4
 * by default). `others` is the share of the machine's processor time that other processes took meanwhile. --patience:
 * the longest wait, before each start, for a time in which they take little. */
#include <omp.h>
#include <string.h>

#include "base/median.h"
#include "base/text.h"
#include "base/threads.h"
#include "parallel/communication.h"
#include "ranks.h"
#include "training/schedule.h"

enum { LAYOUTS = 24, MOST_STEPS = 1024 };
static const char model[] = "medium: {img_size: [90, 180], patch_size: 6, embed_dim: 256, depth: 6, num_heads: 8}";

/* ---- a rank: one layout, some steps ---- */

/* Two steps to warm up, then `steps`; seconds [steps]. *waited: the fraction of that time in messages, mean over the
 * ranks. */
static vt_status time_steps(const bench_ranks *ranks, int steps, double *seconds, double *waited)
{
    vt_status status = VT_OK;
    vt_world *world = ranks->world;
    vt_volume before[VT_TRAFFIC_COUNT], after[VT_TRAFFIC_COUNT];
    vt_step_figures figures;
    for (int i = 0; i < 2; i++) VT_TRY(vt_step_train(ranks->trainer, &ranks->batch, &figures));
    vt_communication_counted(world, before);
    double begin = vt_clock_seconds(), last = begin;
    for (int i = 0; i < steps; i++) {
        VT_TRY(vt_step_train(ranks->trainer, &ranks->batch, &figures));
        double now = vt_clock_seconds();
        seconds[i] = now - last;
        last = now;
    }
    vt_communication_counted(world, after);
    *waited = 0;
    for (int i = 0; i < VT_TRAFFIC_COUNT; i++) *waited += after[i].seconds - before[i].seconds;
    *waited /= (last - begin) * vt_world_ranks(world);
    vt_world_sum(world, waited, 1);
done:
    return status;
}

/* scaling --rank STEPS THREADS --name=value... */
static vt_status run_rank(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_launch launch;
    bench_ranks ranks = {0};
    double seconds[MOST_STEPS], waited;
    int steps = atoi(arguments[0]);
    VT_CHECK(steps > 0 && steps <= MOST_STEPS, "%s steps: expected 1 to %d", arguments[0], MOST_STEPS);
    VT_TRY(vt_launch_detect(&launch));
    VT_TRY(ranks_open(model, "bench/scaling", argument_count - 2, arguments + 2, &launch, &ranks));
    VT_TRY(vt_backend_open_cpu(VT_ISA_AUTO, atoi(arguments[1]), &ranks.backend));
    VT_TRY(ranks_open_trainer(&ranks));
    VT_TRY(time_steps(&ranks, steps, seconds, &waited));
    if (vt_world_rank(ranks.world) > 0) goto done;
    printf("report %.9g", waited); /* one line */
    for (int i = 0; i < steps; i++) printf(" %.6f", seconds[i]);
    printf("\n");
done:
    ranks_close(&ranks, status != VT_OK);
    return status;
}

/* ---- all layouts ---- */

typedef struct {
    const char *name;
    const char *flags;
    int ranks, threads;
    int64_t batch;
    double ideal;               /* the efficiency that the wait for the first and last micro-batches leaves */
    double seconds[MOST_STEPS]; /* of all rounds' steps */
    double waited[MOST_STEPS];  /* of all rounds */
    double others[MOST_STEPS];  /* the same */
    int count, rounds;
} measured;

static bool read_report(measured *layout, char *text)
{
    char *next = NULL;
    layout->waited[layout->rounds] = strtod(text, &next);
    for (char *end = next;; next = end) {
        double value = strtod(next, &end);
        if (end == next) break;
        if (layout->count < MOST_STEPS) layout->seconds[layout->count++] = value;
    }
    layout->rounds++;
    return layout->count > 0;
}

static void wait_for_quiet(int cores, double patience)
{
    double end = vt_clock_seconds() + patience;
    while (vt_clock_seconds() < end) {
        double begin = vt_clock_seconds(), busy = busy_seconds();
        usleep(300000);
        if (busy_seconds() - busy < 0.15 * cores * (vt_clock_seconds() - begin)) return;
    }
}

static bool run_layout(const char *program, measured *layout, int steps, int cores, double patience)
{
    wait_for_quiet(cores, patience);
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    char *command = vt_text_format("OMP_NUM_THREADS=%d tests/mpirun -np %d %s --rank %d %d --global_batch_size=%lld %s",
                                   layout->threads, layout->ranks, program, steps, layout->threads,
                                   (long long)layout->batch, layout->flags);
    const processor_use begin = processor_use_of(RUSAGE_CHILDREN);
    FILE *pipe = popen(command, "r");
    while (pipe != NULL && getline(&line, &room, pipe) > 0) {
        char *start = strstr(line, "report ");
        if (start != NULL) found = read_report(layout, start + strlen("report "));
    }
    if (pipe == NULL || pclose(pipe) != 0 || !found) {
        fprintf(stderr, "bench/scaling: this command failed: %s\n", command);
        found = false;
    }
    if (found) layout->others[layout->rounds - 1] = others_share(begin, processor_use_of(RUSAGE_CHILDREN));
    free(command);
    free(line);
    return found;
}

static void print_times(measured *layouts, int count, int cores, bool weak)
{
    double one = 0;
    printf("\n%-34s %5s %7s %6s %8s %9s %10s %10s %12s %7s\n", weak ? "weak scaling" : "strong scaling", "ranks",
           "threads", "batch", "s/step", "fastest", "samples/s", "efficiency", "in messages", "others");
    for (int i = 0; i < count; i++) {
        measured *layout = &layouts[i];
        double seconds = vt_median(layout->seconds, layout->count), rate = (double)layout->batch / seconds;
        if (i == 0) one = rate;
        double efficiency = weak ? rate / one / layout->ranks : rate / one;
        printf("%-34s %5d %7d %6lld %8.3f %9.3f %10.2f %8.0f %% %10.1f %% %5.0f %%", layout->name, layout->ranks,
               layout->threads, (long long)layout->batch, seconds, layout->seconds[0], rate, 100 * efficiency,
               100 * vt_median(layout->waited, layout->rounds), 100 * vt_median(layout->others, layout->rounds));
        if (layout->ideal < 1) printf("  %.2f of the ideal %.0f %%", efficiency / layout->ideal, 100 * layout->ideal);
        printf("%s\n", layout->ranks > cores ? "  more ranks than cores" : "");
    }
}

enum { MICRO_BATCHES = 8 }; /* of stages */
static const struct {
    const char *name, *flags; /* %d: ranks */
    int ranks;                /* 0: any number */
    bool weak, stages;        /* also timed in weak scaling; its batch is MICRO_BATCHES samples, one after another */
} kinds[] = {{"dp", "--zero_stage=0", 0, true, false},
             {"tp", "--tensor_parallel=%d", 0, true, false},
             {"tp, sequence_parallel", "--tensor_parallel=%d --sequence_parallel=true", 0, true, false},
             {"cp, allgather", "--context_parallel=%d", 0, true, false},
             {"cp, ring", "--context_parallel=%d --cp_comm=ring", 0, true, false},
             {"pp, 8 micro-batches", "--pipeline_parallel=%d --grad_accumulation=8", 0, true, true},
             {"dp, zero_stage 1", "--zero_stage=1", 0, false, false},
             {"dp, zero_stage 2", "--zero_stage=2", 0, false, false},
             {"dp, zero_stage 3", "--zero_stage=3", 0, false, false},
             {"tp 2, cp 2", "--tensor_parallel=2 --context_parallel=2", 4, false, false},
             {"tp 2, dp 2", "--tensor_parallel=2", 4, false, false}};

/* One rank first. Strong: the same batch on all cores; weak: as many samples and threads for each rank as one rank
 * has. Stages take one sample at a time, and enough of them to be busy; samples/s compare. */
static int make_layouts(measured *layouts, int most_ranks, int cores, bool weak)
{
    int count = 0;
    char flags[128];
    layouts[count++] = (measured){.name = "one rank", .flags = "", .ranks = 1, .threads = weak ? 1 : cores, .ideal = 1};
    layouts[0].batch = weak ? 2 : 4;
    for (int ranks = 2; ranks <= most_ranks; ranks *= 2) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            bool wanted = kinds[i].ranks == 0 || kinds[i].ranks == ranks;
            if (!wanted || count == LAYOUTS || (weak && (!kinds[i].weak || ranks > cores))) continue;
            measured *layout = &layouts[count++];
            snprintf(flags, sizeof flags, kinds[i].flags, ranks); /* --ranks may exclude this number */
            *layout = (measured){.name = kinds[i].name, .flags = vt_text_copy(flags), .ranks = ranks, .ideal = 1};
            layout->threads = weak || ranks > cores ? 1 : cores / ranks;
            layout->batch = kinds[i].stages ? MICRO_BATCHES : weak ? 2 * ranks : 4;
            const vt_step_shape shape = {.stages = ranks, .micro_batches = MICRO_BATCHES};
            if (kinds[i].stages) layout->ideal = 1 - vt_schedule_idle(vt_schedule_1f1b, &shape);
        }
    }
    return count;
}

static int flag_value(int count, char *const *arguments, const char *name, int otherwise)
{
    size_t length = strlen(name);
    for (int i = 1; i < count; i++)
        if (strncmp(arguments[i], name, length) == 0 && atoi(arguments[i] + length) > 0)
            otherwise = atoi(arguments[i] + length);
    return otherwise;
}

static void print_load(const char *when)
{
    double load[3] = {0};
    if (getloadavg(load, 3) == 3) printf("load %s: %.2f (1 minute), %.2f (5 minutes)\n", when, load[0], load[1]);
}

int main(int argument_count, char **arguments)
{
    vt_threads_wait_shortly(arguments);
    if (argument_count > 3 && strcmp(arguments[1], "--rank") == 0) {
        vt_status status = run_rank(argument_count - 2, arguments + 2);
        if (status != VT_OK) fprintf(stderr, "bench/scaling: %s\n", vt_error_text());
        return status == VT_OK ? 0 : 1;
    }
    static measured layouts[2][LAYOUTS]; /* of strong scaling, of weak scaling */
    int counts[2], rounds = flag_value(argument_count, arguments, "--rounds=", 5);
    int steps = flag_value(argument_count, arguments, "--steps=", 3), cores = omp_get_num_procs();
    if (rounds * steps > MOST_STEPS) rounds = MOST_STEPS / steps > 0 ? MOST_STEPS / steps : 1;
    int patience = flag_value(argument_count, arguments, "--patience=", 0);
    int most = flag_value(argument_count, arguments, "--ranks=", 4);
    if (!vt_engine_has_mpi()) {
        printf("scaling: built without MPI, so there is one rank only\n");
        return 0;
    }
    for (int weak = 0; weak < 2; weak++) counts[weak] = make_layouts(layouts[weak], most, cores, weak);
    printf("%d cores; medium model (90x180, patch 6, embed 256, depth 6, 8 heads), float32; medians of %d x %d steps\n",
           cores, rounds, steps);
    print_load("before");
    for (int round = 0; round < rounds; round++)
        for (int weak = 0; weak < 2; weak++)
            for (int i = 0; i < counts[weak]; i++)
                if (!run_layout(arguments[0], &layouts[weak][i], steps, cores, patience)) return 1;
    print_load("after (this program's own included)");
    for (int weak = 0; weak < 2; weak++) print_times(layouts[weak], counts[weak], cores, weak);
    return 0;
}
