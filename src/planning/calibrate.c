#include "planning/practice.h"

#include <math.h>

#include "backend/times.h"
#include "base/clock.h"
#include "base/median.h"
#include "config/fit.h"

enum { MOST_ROWS = 16384, WIDE_ELEMENTS = 1 << 24, KEPT_BYTES = 1 << 27, GRADIENT_BYTES = 1 << 25 };

typedef struct {
    vt_backend *backend;
    vt_world *world;
    float *wide;       /* zeros, beyond any cache: WIDE_ELEMENTS, or room for a product of rows × dim by dim × dim */
    int64_t rows, dim; /* of a rank's tokens */
} bench;

/* ---- steps ---- */

/* Kinds of operations that have a rate of their own: FLOPs a second, or bytes a second of each vt_work. */
enum { PRODUCTS = VT_WORK_COUNT, ATTENTION, KINDS };

enum { TURNS = 5 }; /* whose median counts */

/* rates[kind][turn] of steps that took this rank's operations so far, and all ranks together `wall` seconds. The
 * seconds of all ranks are added up, and the part of `wall` that no operation took is charged to all of them in
 * proportion. */
static void add_rates(const bench *b, double wall, int turn, double rates[KINDS][TURNS])
{
    double done[KINDS] = {0}, seconds[KINDS] = {0}, sum = 0;
    int count;
    const vt_operation_time *times = vt_times_sorted(b->backend, &count);
    for (int i = 0; i < count; i++) {
        const vt_operation_work *work = &times[i].work;
        sum += times[i].seconds;
        if (times[i].flops == 0 && times[i].bytes == 0) continue;
        const int kind = work->is_product ? PRODUCTS : work->attention_flops > 0 ? ATTENTION : (int)work->kind;
        done[kind] += kind < VT_WORK_COUNT ? times[i].bytes : times[i].flops;
        seconds[kind] += times[i].seconds;
    }
    vt_world_sum(b->world, seconds, KINDS);
    vt_world_sum(b->world, &sum, 1);
    for (int kind = 0; kind < KINDS; kind++) rates[kind][turn] = done[kind] / (seconds[kind] / sum * wall);
}

/* The median of some turns of a practice run's steps; the first turn doesn't count. All ranks begin together and do the
 * same, and a turn is over when the slowest is done, as in a step, which goes on when the last message is there. Where
 * ranks share cores, one that is done, or has not begun, leaves its core to the others, so that the ranks' own times
 * would say too little. */
static vt_status measure_steps(const bench *b, const vt_config *config, int64_t samples, double median[KINDS])
{
    static const double LEAST_SECONDS = 0.1;
    vt_status status = VT_OK;
    vt_practice *practice = NULL;
    double rates[KINDS][TURNS];
    int64_t steps = 1;
    vt_times_open(b->backend);
    VT_TRY(vt_world_agree(b->world, vt_practice_open(config, samples, b->backend, &practice)));
    for (int turn = -1; turn < TURNS; turn++) {
        vt_times_open(b->backend);
        vt_world_most(b->world, 0);
        const double begin = vt_clock_seconds();
        for (int64_t step = 0; step < steps && status == VT_OK; step++) status = vt_practice_step(practice);
        VT_TRY(vt_world_agree(b->world, status));
        const double wall = vt_world_most(b->world, vt_clock_seconds() - begin);
        if (turn < 0)
            steps = wall < LEAST_SECONDS ? (int64_t)ceil(LEAST_SECONDS / wall) : 1;
        else
            add_rates(b, wall, turn, rates);
    }
    for (int kind = 0; kind < KINDS; kind++) median[kind] = vt_median(rates[kind], TURNS);
done:
    vt_times_close(b->backend);
    vt_practice_close(&practice);
    return status;
}

/* Leaves as few blocks as make activations and the optimizer's arrays leave the caches between their uses, as in the
 * whole model. */
static vt_status take_off_blocks(vt_config *config, int64_t samples)
{
    vt_status status = VT_OK;
    vt_plan plan;
    const int64_t all = config->depth;
    for (config->depth = 1; config->depth < all; config->depth++) {
        VT_TRY(vt_practice_plan(config, samples, &plan));
        if (plan.arena_bytes > KEPT_BYTES && plan.bytes[VT_MEMORY_GRADIENTS] > GRADIENT_BYTES) break;
    }
done:
    return status;
}

/* Operations one by one: a fused one would be of two kinds. */
static vt_status measure_rates(const bench *b, const vt_config *config, int64_t samples, vt_hardware *hardware)
{
    static const vt_amp_mode modes[VT_TYPE_COUNT] = {
        [VT_FLOAT32] = VT_AMP_NONE, [VT_BFLOAT16] = VT_AMP_BF16, [VT_FLOAT16] = VT_AMP_FP16};
    vt_status status = VT_OK;
    const vt_type own_type = vt_trainer_type(config);
    vt_config own = *config;
    double rate[KINDS];
    own.enable_jit = false;
    VT_TRY(take_off_blocks(&own, samples));
    for (int type = VT_FLOAT32; type < VT_TYPE_COUNT; type++) {
        own.amp_mode = (int)modes[type];
        VT_TRY(measure_steps(b, &own, samples, rate));
        hardware->matrix_tflops[type] = 1e-12 * rate[PRODUCTS];
        hardware->matrix_fraction[type] = 1;
        hardware->attention_fraction[type] = rate[ATTENTION] / rate[PRODUCTS];
        if (type != (int)own_type) continue;
        for (int i = 0; i < VT_WORK_COUNT; i++) hardware->work_fraction[i] = 1e-9 * rate[i] / hardware->memory_gb_s;
    }
done:
    return status;
}

/* ---- a single operation ---- */

/* Seconds of x + x over [rows, columns], timed as steps are in measure_steps. */
static double seconds_of_sum(const bench *b, int64_t rows, int64_t columns, int calls)
{
    const vt_mask none = {.tokens = 1};
    const vt_matrix x = vt_matrix_make(b->wide, rows, columns);
    double times[TURNS + 1];
    for (int i = 0; i <= TURNS; i++) {
        vt_world_most(b->world, 0);
        const double begin = vt_clock_seconds();
        for (int call = 0; call < calls; call++) b->backend->residual_add(b->backend, x, x, &none, x);
        vt_world_most(b->world, 0);
        times[i] = vt_world_most(b->world, vt_clock_seconds() - begin) / calls;
    }
    return vt_median(times + 1, TURNS);
}

/* ---- messages ---- */

/* One of each operation that layouts use, on [elements] in all. */
static void exchange_all(vt_group *group, float *data, int64_t elements, const int64_t *counts, const size_t *bytes)
{
    vt_group_all_reduce(group, VT_SUM_FLOAT32, data, elements, NULL);
    vt_group_reduce_scatter(group, data, counts, NULL);
    vt_group_all_gather(group, data, bytes, NULL);
}

/* Seconds that a short message takes between ranks that come from computing, which then wait for the slowest and, where
 * there are more of them than cores, for their turn: rounds of a product with and without one. */
static double meeting_seconds(const bench *b, vt_group *group)
{
    enum { ROUNDS = 20, TRIES = 3 };
    const vt_matrix x = vt_matrix_make(b->wide, b->rows, b->dim);
    const vt_matrix y = vt_matrix_make(b->wide + b->rows * b->dim, b->rows, b->dim);
    const vt_matrix weight = vt_matrix_make(b->wide + 2 * b->rows * b->dim, b->dim, b->dim);
    double seconds[2][TRIES];
    for (int i = 0; i < 2 * TRIES; i++) {
        const bool meets = i % 2 == 1;
        vt_world_most(b->world, 0);
        double begin = vt_clock_seconds();
        for (int round = 0; round < ROUNDS; round++) {
            b->backend->linear_forward(b->backend, x, weight, NULL, NULL, y);
            if (meets) vt_group_all_reduce(group, VT_SUM_FLOAT32, b->wide, 1, NULL);
        }
        seconds[meets][i / 2] = vt_world_most(b->world, vt_clock_seconds() - begin) / ROUNDS;
    }
    return vt_median(seconds[1], TRIES) - vt_median(seconds[0], TRIES);
}

/* Latency per doubling of ranks, and bandwidth as vt_volume counts bytes, of messages as large as the residual stream
 * of the whole batch: those that layouts exchange are of that order. */
static void measure_group(const bench *b, vt_group *group, double *gb_s, double *us)
{
    enum { SHORT = 40 };
    double figures[2] = {0};
    int64_t elements = b->rows * b->dim * group->size, counts[group->size];
    if (elements > WIDE_ELEMENTS) elements = WIDE_ELEMENTS / group->size * group->size;
    size_t parts[group->size];
    for (int i = 0; i < group->size; i++) counts[i] = elements / group->size;
    for (int i = 0; i < group->size; i++) parts[i] = (size_t)counts[i] * sizeof(float);
    exchange_all(group, b->wide, elements, counts, parts);
    vt_world_most(b->world, 0);
    double begin = vt_clock_seconds(), before = group->volume.bytes;
    for (int i = 0; i < TURNS; i++) exchange_all(group, b->wide, elements, counts, parts);
    figures[0] = (vt_clock_seconds() - begin) / b->world->ranks;
    const double bytes = group->volume.bytes - before;
    begin = vt_clock_seconds();
    for (int i = 0; i < SHORT; i++) vt_group_all_reduce(group, VT_SUM_FLOAT32, b->wide, 1, NULL);
    figures[1] = (vt_clock_seconds() - begin) / SHORT / b->world->ranks;
    vt_world_sum(b->world, figures, 2);
    *us = 1e6 * fmax(figures[1], meeting_seconds(b, group)) / ceil(log2(group->size));
    /* on a busy machine short messages may take as long as long ones */
    *gb_s = 1e-9 * bytes / fmax(0.5 * figures[0], figures[0] - 3 * TURNS * figures[1]);
}

static vt_status measure_messages(const bench *b, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    vt_world *world = b->world;
    vt_group *within = NULL, *between = NULL;
    hardware->within_gb_s = 2; /* guesses, for ranks that aren't there */
    hardware->within_us = 20;
    hardware->between_gb_s = 1;
    hardware->between_us = 50;
    const int here = world->ranks / world->nodes;
    hardware->ranks_per_node = here;
    VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_WITHIN_NODE, "calibration", NULL, &within));
    if (within->size > 1) measure_group(b, within, &hardware->within_gb_s, &hardware->within_us);
    if (world->nodes > 1) {
        VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_ACROSS_NODES, "calibration", NULL, &between));
        measure_group(b, between, &hardware->between_gb_s, &hardware->between_us);
    }
done:
    return status;
}

vt_status vt_calibrate(const vt_config *config, int64_t samples, vt_world *world, vt_backend *backend,
                       vt_hardware *hardware)
{
    vt_status status = VT_OK;
    const int64_t tokens = vt_fit_tokens(config), dim = config->embed_dim;
    int64_t most_samples = MOST_ROWS / tokens > 1 ? MOST_ROWS / tokens : 1;
    if (samples > most_samples) samples = most_samples;
    bench b = {.backend = backend, .world = world, .rows = samples * tokens, .dim = dim};
    int64_t product = 2 * b.rows * dim + dim * dim, elements = product > WIDE_ELEMENTS ? product : WIDE_ELEMENTS;
    void *wide = NULL;
    *hardware = (vt_hardware){.name = "calibrated",
                              .kind = backend->shares_host_memory ? VT_MACHINE_CPU : VT_MACHINE_GPU,
                              .head_multiple = 1};
    double memory = backend->available_memory(backend);
    hardware->memory_gib = memory / 1073741824 * world->nodes / world->ranks;
    VT_TRY(vt_world_agree(world,
                          backend->allocate(backend, VT_MEMORY_WORKSPACE, (size_t)elements * sizeof(float), &wide)));
    b.wide = wide;
    /* the speed of memory, with more numbers than any cache holds; the start of an operation, with very few */
    hardware->memory_gb_s =
        1e-9 * 3 * sizeof(float) * WIDE_ELEMENTS / seconds_of_sum(&b, WIDE_ELEMENTS / 4096, 4096, 3);
    hardware->memory_fraction = 1;
    hardware->operation_us = 1e6 * seconds_of_sum(&b, 2, 16, 300);
    VT_TRY(measure_messages(&b, hardware));
    backend->release(backend, wide);
    wide = NULL;
    VT_TRY(measure_rates(&b, config, samples, hardware));
    VT_TRY(backend->check(backend));
done:
    backend->release(backend, wide);
    return status;
}
