/* The time of each optimizer's step (norm of the gradients, and update) beside plain loops that read and write as many
 * bytes, in turn:
 *
 *     build/bench/optimizers [rounds]
 *
 * 24 matrices of 1024 × 1024 numbers. Bytes are those that the planner counts: each operand read or written once. What
 * a step and a loop read was last touched gigabytes ago, so that no cache holds it, however large. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/work.h"
#include "base/clock.h"
#include "base/median.h"
#include "optimizer/optimizer.h"
#include "parallel/region.h"

enum { MATRICES = 24, SIDE = 1024, MOST_ROUNDS = 99, LOOP = 256 << 20, MOST_ARRAYS = 7 };

/* An optimizer, and how many arrays the loop beside it only reads, and how many it reads and writes: in the proportion
 * in which the optimizer reads and writes bytes. */
static const struct {
    const char *flags[2];
    int read, updated;
} kinds[] = {
    {{"--optimizer=Adam"}, 2, 3},      /* reads gradients twice; updates values and two moments */
    {{"--optimizer=Adam8bit"}, 4, 3},  /* a number: reads 8 bytes of gradients; updates 4 of values, 2 of codes */
    {{"--optimizer=SGD"}, 2, 2},       /* reads gradients twice; updates values and momentum */
    {{"--optimizer=Muon"}, 1, 1},      /* mostly products, which no such loop resembles */
    {{"--optimizer=Adafactor"}, 4, 1}, /* reads gradients three times, values once; updates values */
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_parallel *parallel;
    vt_parameters *parameters;
    vt_optimizer *optimizer;
} side;

static void check(vt_status status)
{
    if (status == VT_OK) return;
    fprintf(stderr, "bench/optimizers: %s\n", vt_error_text());
    exit(1);
}

static void open_side(side *s, vt_backend *backend, const char *const *words)
{
    const vt_launch launch = {.world_size = 1, .local_size = 1};
    char *arguments[4] = {NULL};
    int count = 0;
    for (int i = 0; i < 2 && words[i] != NULL; i++) arguments[count++] = (char *)(uintptr_t)words[i];
    check(vt_config_open_text("bench: {}", "bench", count, arguments, 1, &s->config));
    check(vt_world_open(s->config, &launch, &s->world));
    check(vt_parallel_open(s->config, s->world, backend, 1, &s->parallel));
    check(vt_parameters_open(backend, s->parallel, &s->parameters));
    for (int i = 0; i < MATRICES; i++) {
        char name[32];
        const int64_t shape[2] = {SIDE, SIDE};
        snprintf(name, sizeof name, "blocks.%d.weight", i);
        (void)vt_parameters_add(s->parameters, "", name, 2, shape, VT_START_NORMAL, 0.02);
    }
    const vt_optimizer_kind *kind = vt_optimizer_kinds[s->config->optimizer];
    const vt_parameters_storage storage = {25e6, 0, 1, 0, kind->grain != NULL ? kind->grain(s->config) : 1};
    check(vt_parameters_allocate(s->parameters, VT_FLOAT32, &storage));
    check(vt_optimizer_open(s->config, backend, s->parameters, &s->optimizer));
    vt_parameters_start(s->parameters, 1, "");
    backend->copy(backend, s->parameters->gradients, s->parameters->values,
                  (size_t)MATRICES * SIDE * SIDE * sizeof(float));
}

static void close_side(side *s)
{
    vt_optimizer_close(&s->optimizer);
    vt_parameters_close(&s->parameters);
    vt_parallel_close(&s->parallel);
    vt_world_close(&s->world, false);
    vt_config_close(&s->config);
}

static double step_seconds(side *s, int64_t step)
{
    const double begin = vt_clock_seconds();
    vt_optimizer_begin(s->optimizer, step, 1e-4);
    vt_optimizer_step(s->optimizer);
    return vt_clock_seconds() - begin;
}

/* What a step reads and writes, by the planner. */
static double step_bytes(const char *const *words)
{
    vt_backend *dry = NULL;
    side s = {0};
    check(vt_backend_open_dry(&dry));
    open_side(&s, dry, words);
    const double before = vt_backend_dry_count(dry)->moved[VT_WORK_OPTIMIZER];
    (void)step_seconds(&s, 0);
    const double bytes = vt_backend_dry_count(dry)->moved[VT_WORK_OPTIMIZER] - before;
    close_side(&s);
    vt_backend_close(&dry);
    return bytes;
}

#define EACH(sum, ...)                                                                                                 \
    do {                                                                                                               \
        _Pragma("omp parallel for simd schedule(static)") for (int64_t i = first; i < end; i++)                        \
        {                                                                                                              \
            const float term = sum;                                                                                    \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

/* Adds the sum of the arrays that are only read to each of the others. */
static void add_arrays(int kind, float *const *a, int64_t first, int64_t end)
{
    const int read = kinds[kind].read, updated = kinds[kind].updated;
    if (read == 1)
        EACH(a[0][i], a[1][i] += term);
    else if (read == 2 && updated == 2)
        EACH(a[0][i] + a[1][i], a[2][i] += term, a[3][i] += term);
    else if (read == 2)
        EACH(a[0][i] + a[1][i], a[2][i] += term, a[3][i] += term, a[4][i] += term);
    else if (updated == 1)
        EACH(a[0][i] + a[1][i] + a[2][i] + a[3][i], a[4][i] += term);
    else
        EACH(a[0][i] + a[1][i] + a[2][i] + a[3][i], a[4][i] += term, a[5][i] += term, a[6][i] += term);
}

/* Goes on from where the kind's last call ended, until so many bytes have moved. memory [LOOP]: the arrays. */
static double loop_seconds(int kind, float *memory, int64_t *place, double bytes)
{
    const int arrays = kinds[kind].read + kinds[kind].updated, moved = arrays + kinds[kind].updated;
    const int64_t length = LOOP / arrays;
    float *a[MOST_ARRAYS];
    for (int k = 0; k < arrays; k++) a[k] = memory + k * length;
    const double begin = vt_clock_seconds();
    for (int64_t left = (int64_t)(bytes / moved / 4); left > 0;) {
        const int64_t first = *place, end = left < length - first ? first + left : length;
        add_arrays(kind, a, first, end);
        left -= end - first;
        *place = end % length;
    }
    return vt_clock_seconds() - begin;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) <= MOST_ROUNDS ? atoi(argv[1]) : 7;
    static double steps[KINDS][MOST_ROUNDS], loops[KINDS][MOST_ROUNDS];
    double bytes[KINDS], adam = 0;
    side sides[KINDS] = {{0}};
    vt_backend *backend = NULL;
    void *memory = NULL;
    int64_t places[KINDS] = {0};
    check(vt_backend_open_cpu(VT_ISA_AUTO, 0, &backend));
    check(backend->allocate(backend, VT_MEMORY_WORKSPACE, LOOP * sizeof(float), &memory));
    backend->zero(backend, memory, LOOP * sizeof(float));
    printf("%s, %d rounds\n%-24s %8s %10s %10s %6s %8s\n", backend->name, rounds, "step of", "MB", "s", "loop s",
           "share", "/ Adam");
    for (int k = 0; k < KINDS; k++) {
        bytes[k] = step_bytes(kinds[k].flags);
        open_side(&sides[k], backend, kinds[k].flags);
        (void)step_seconds(&sides[k], 0);
    }
    for (int round = 0; round < rounds; round++)
        for (int k = 0; k < KINDS; k++) {
            steps[k][round] = step_seconds(&sides[k], round + 1);
            loops[k][round] = loop_seconds(k, memory, &places[k], bytes[k]);
        }
    for (int k = 0; k < KINDS; k++) {
        const double step = vt_median(steps[k], rounds), loop = vt_median(loops[k], rounds);
        if (k == 0) adam = step;
        printf("%-24s %8.0f %10.4f %10.4f %6.2f %8.2f\n", kinds[k].flags[0] + 12, bytes[k] / 1e6, step, loop,
               loop / step, step / adam);
        close_side(&sides[k]);
    }
    check(backend->check(backend));
    backend->release(backend, memory);
    vt_backend_close(&backend);
    return 0;
}
