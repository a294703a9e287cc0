#include "planning/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/half.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "config/fit.h"
#include "training/trainer.h"

enum { MOST_ROWS = 16384, WIDE_ELEMENTS = 1 << 24, OPTIMIZER_ELEMENTS = 1 << 23, KEPT_BYTES = 1 << 27 };

/* What is measured, and on how much: buffers of one block of the model. */
typedef struct {
    vt_backend *backend; /* that a sequence runs on: the machine's, or the dry one, which counts what it does */
    const vt_config *config;
    vt_type type;
    int64_t samples, tokens, rows, dim, elements; /* the optimizer's block */
    void *inputs, *outputs;                       /* [rows, 4 dim] */
    float *kept;                                  /* [areas, rows, 4 dim]: as activations wait for backward */
    int64_t areas, area;                          /* how many; the one that is next */
    void *weight;                                 /* [4 dim, dim] */
    float *gradients, *statistics, *fields, *channels, *block, *wide;
    double *squares;
    vt_step_state *state;
} bench;

typedef void sequence(bench *b);

static vt_matrix view(void *memory, vt_type type, int64_t rows, int64_t columns)
{
    vt_matrix matrix = vt_matrix_make(memory, rows, columns);
    matrix.type = type;
    return matrix;
}

/* ---- sequences: each as a step has it ---- */

/* What was written longest ago: a step writes activations that backward reads when they have left the caches. */
static void *oldest(bench *b)
{
    void *memory = b->kept + b->area * 4 * b->rows * b->dim;
    b->area = (b->area + 1) % b->areas;
    return memory;
}

static void linear_layer(bench *b, int64_t in, int64_t out)
{
    vt_matrix x = view(b->inputs, b->type, b->rows, in), y = view(oldest(b), b->type, b->rows, out);
    vt_matrix kept_x = view(oldest(b), b->type, b->rows, in), dy = view(b->outputs, b->type, b->rows, out);
    vt_matrix weight = view(b->weight, b->type, out, in);
    b->backend->linear_forward(b->backend, x, weight, NULL, y);
    b->backend->linear_backward_input(b->backend, dy, weight, x);
    b->backend->linear_backward_weight(b->backend, kept_x, dy, b->gradients, NULL);
}

static void run_products(bench *b)
{
    linear_layer(b, b->dim, 3 * b->dim);
    linear_layer(b, b->dim, b->dim);
    linear_layer(b, b->dim, 4 * b->dim);
    linear_layer(b, 4 * b->dim, b->dim);
}

static void run_attention(bench *b)
{
    vt_attention_shape shape = {.batch = b->samples,
                                .heads = b->config->num_heads,
                                .head_dim = b->dim / b->config->num_heads,
                                .queries = b->tokens,
                                .keys = b->tokens};
    vt_matrix qkv = view(oldest(b), b->type, b->rows, 4 * b->dim),
              dqkv = view(b->outputs, b->type, b->rows, 4 * b->dim);
    vt_matrix in[4], out[4];
    for (int i = 0; i < 4; i++) in[i] = vt_matrix_columns(qkv, i * b->dim, b->dim);
    for (int i = 0; i < 4; i++) out[i] = vt_matrix_columns(dqkv, i * b->dim, b->dim);
    b->backend->attention_forward(b->backend, &shape, in[0], in[1], in[2], in[3], b->statistics);
    b->backend->attention_backward(b->backend, &shape, in[0], in[1], in[2], in[3], b->statistics, out[3], out[0],
                                   out[1], out[2]);
}

/* LayerNorm's forward is made once more in backward. */
static void run_norm(bench *b)
{
    float *mean = b->statistics, *rstd = b->statistics + b->rows, *weight = b->channels, *bias = b->channels + b->dim;
    vt_matrix x = view(b->wide, VT_FLOAT32, b->rows, b->dim), y = view(b->outputs, b->type, b->rows, b->dim);
    vt_matrix dy = view(b->inputs, VT_FLOAT32, b->rows, b->dim);
    b->backend->layer_norm_forward(b->backend, x, weight, bias, 1e-6f, y, mean, rstd);
    x = view(oldest(b), VT_FLOAT32, b->rows, b->dim);
    b->backend->layer_norm_forward(b->backend, x, weight, bias, 1e-6f, y, mean, rstd);
    b->backend->layer_norm_backward(b->backend, x, weight, mean, rstd, dy, x, b->gradients, b->gradients + b->dim);
}

static void run_gelu(bench *b)
{
    vt_matrix x = view(b->inputs, b->type, b->rows, 4 * b->dim), y = view(b->outputs, b->type, b->rows, 4 * b->dim);
    b->backend->gelu_forward(b->backend, (vt_gelu)b->config->gelu, x, y);
    x = view(oldest(b), b->type, b->rows, 4 * b->dim);
    b->backend->gelu_backward(b->backend, (vt_gelu)b->config->gelu, x, y, y, view(NULL, b->type, b->rows, 4 * b->dim));
}

static void run_residual(bench *b)
{
    const vt_mask none = {.tokens = b->tokens};
    vt_matrix x = view(b->wide, VT_FLOAT32, b->rows, b->dim), y = view(b->inputs, VT_FLOAT32, b->rows, b->dim);
    b->backend->residual_add(b->backend, x, y, &none, view(oldest(b), VT_FLOAT32, b->rows, b->dim));
}

static void run_patches(bench *b)
{
    const vt_config *config = b->config;
    vt_patch_grid grid = {.batch = 1,
                          .field_channels = config->n_out_channels,
                          .channels = config->n_out_channels,
                          .height = config->img_size[0],
                          .width = config->img_size[1],
                          .patch = config->patch_size,
                          .order = VT_PATCH_CHANNEL_LAST,
                          .tokens = b->tokens};
    int64_t columns = config->n_out_channels * config->patch_size * config->patch_size;
    vt_matrix target = view(b->fields + b->tokens * columns, VT_FLOAT32, b->tokens, columns);
    vt_matrix prediction = view(b->fields + 2 * b->tokens * columns, VT_FLOAT32, b->tokens, columns);
    b->backend->patches_load(b->backend, &grid, b->fields, b->channels, b->channels, target);
    b->backend->squared_norms(b->backend, 1, prediction, target, b->squares);
    b->backend->relative_l2_backward(b->backend, 1, prediction, target, b->squares, 1, NULL, prediction);
}

static void run_optimizer(bench *b)
{
    const vt_update update = {.kind = (vt_optimizer_name)b->config->optimizer,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .epsilon = 1e-8,
                              .gradient_clip = INFINITY};
    float *block = b->block;
    b->backend->zero(b->backend, block, (size_t)b->elements * sizeof *block);
    b->backend->sum_of_squares(b->backend, block, b->elements, 1, b->squares);
    b->backend->update(b->backend, &update, b->state, block, block + b->elements, block + 2 * b->elements,
                       block + 3 * b->elements, b->elements);
}

/* Memory itself: too much for any cache. */
static void run_wide(bench *b)
{
    const vt_mask none = {.tokens = 1};
    vt_matrix x = view(b->wide, VT_FLOAT32, WIDE_ELEMENTS / 4096, 4096);
    b->backend->residual_add(b->backend, x, x, &none, x);
}

/* An operation on next to nothing. */
static void run_start(bench *b)
{
    vt_matrix x = view(b->wide, VT_FLOAT32, 2, 16);
    for (int i = 0; i < 100; i++)
        b->backend->layer_norm_forward(b->backend, x, b->channels, b->channels, 1e-6f, x, b->statistics,
                                       b->statistics + 2);
}

/* ---- taking and giving back ---- */

static vt_status take(vt_backend *backend, int64_t elements, void *memory)
{
    return backend->allocate(backend, VT_MEMORY_WORKSPACE, (size_t)elements * sizeof(float), memory);
}

static vt_status bench_open(bench *b)
{
    vt_status status = VT_OK;
    const vt_config *config = b->config;
    int64_t columns = config->n_out_channels * config->patch_size * config->patch_size;
    int64_t most_channels = config->n_out_channels > b->dim ? config->n_out_channels : b->dim;
    int64_t wide = b->rows * b->dim > WIDE_ELEMENTS ? b->rows * b->dim : WIDE_ELEMENTS;
    VT_TRY(take(b->backend, 4 * b->rows * b->dim, &b->inputs));
    VT_TRY(take(b->backend, 4 * b->rows * b->dim, &b->outputs));
    VT_TRY(take(b->backend, b->areas * 4 * b->rows * b->dim, &b->kept));
    VT_TRY(take(b->backend, 4 * b->dim * b->dim, &b->weight));
    VT_TRY(take(b->backend, 4 * b->dim * b->dim, &b->gradients));
    VT_TRY(take(b->backend, b->rows * (config->num_heads + 2) + 64, &b->statistics));
    VT_TRY(take(b->backend, 3 * b->tokens * columns, &b->fields));
    VT_TRY(take(b->backend, 2 * most_channels + 64, &b->channels));
    VT_TRY(take(b->backend, 4 * b->elements, &b->block));
    VT_TRY(take(b->backend, wide, &b->wide));
    VT_TRY(take(b->backend, 64, &b->squares));
    VT_TRY(take(b->backend, 64, &b->state));
    const vt_step_state state = {.factor = 1, .correction1 = 1, .correction2 = 1};
    b->backend->copy_from_host(b->backend, b->state, &state, sizeof state);
done:
    return status;
}

/* Numbers between -scale and scale, of the type that is measured: matrix units are faster on zeros, which take less
 * power. */
static vt_status fill(bench *b, void *memory, int64_t count, float scale)
{
    enum { PATTERN = 1 << 18 };
    vt_status status = VT_OK;
    size_t size = (size_t)vt_type_size(b->type);
    float *numbers = vt_allocate(PATTERN, sizeof *numbers, "measuring the machine");
    void *rounded = vt_allocate(PATTERN, size, "measuring the machine");
    for (uint32_t i = 0; i < PATTERN; i++) {
        const uint32_t key[2] = {1, 0}, counter[4] = {i, 0, 0, 0};
        numbers[i] = scale * (2 * vt_random_uniform(vt_random_philox(key, counter).word[0]) - 1);
    }
    if (b->type == VT_FLOAT32)
        memcpy(rounded, numbers, PATTERN * size);
    else
        vt_half_round_row(b->type, numbers, PATTERN, rounded);
    for (int64_t at = 0; at < count; at += PATTERN)
        b->backend->copy_from_host(b->backend, (char *)memory + (size_t)at * size, rounded,
                                   size * (size_t)(count - at < PATTERN ? count - at : PATTERN));
    VT_TRY(b->backend->check(b->backend));
done:
    free(numbers);
    free(rounded);
    return status;
}

/* What products and attention work on. The weights are as small as those of a model, so that what is made of results
 * stays of their size. */
static vt_status fill_operands(bench *b)
{
    vt_status status = VT_OK;
    int64_t elements = 4 * b->rows * b->dim;
    VT_TRY(fill(b, b->inputs, elements, 1));
    VT_TRY(fill(b, b->outputs, elements, 1));
    VT_TRY(fill(b, b->kept, b->areas * elements, 1));
    VT_TRY(fill(b, b->weight, 4 * b->dim * b->dim, 1 / sqrtf((float)b->dim)));
done:
    return status;
}

/* Zeros: gradients that pass through the same slope time and again would become denormal. */
static void clear_operands(bench *b)
{
    size_t bytes = (size_t)(4 * b->rows * b->dim) * sizeof(float);
    b->backend->zero(b->backend, b->inputs, bytes);
    b->backend->zero(b->backend, b->outputs, bytes);
    b->backend->zero(b->backend, b->kept, (size_t)b->areas * bytes);
}

static void bench_close(bench *b)
{
    void *const memory[] = {b->inputs, b->outputs,  b->kept,  b->weight, b->gradients, b->statistics,
                            b->fields, b->channels, b->block, b->wide,   b->squares,   b->state};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) b->backend->release(b->backend, memory[i]);
}

/* ---- measuring ---- */

/* The most of any rank. */
static double most(vt_world *world, double own)
{
    double highest = 0, *all = vt_allocate((size_t)vt_world_ranks(world), sizeof *all, "measuring the machine");
    all[vt_world_rank(world)] = own;
    vt_world_sum(world, all, vt_world_ranks(world));
    for (int rank = 0; rank < vt_world_ranks(world); rank++) highest = fmax(highest, all[rank]);
    free(all);
    return highest;
}

/* Seconds of one turn, the median of some. All ranks begin together and do the same, and a turn is over when the
 * slowest is done, as in a step, which goes on when the last message is there. Where ranks share cores, one that is
 * done, or has not begun, leaves its core to the others, so that the ranks' own times would say too little. */
static double seconds_of(bench *b, vt_world *world, sequence *run)
{
    enum { TURNS = 5 };
    static const double LEAST_SECONDS = 0.03;
    double times[TURNS + 1];
    int64_t calls = 1;
    run(b);
    most(world, 0);
    for (int i = 0; i <= TURNS; i++) {
        const double begin = vt_clock_seconds();
        for (int64_t call = 0; call < calls; call++) run(b);
        most(world, 0);
        times[i] = most(world, vt_clock_seconds() - begin) / (double)calls;
        if (i == 0 && times[0] < LEAST_SECONDS) calls = (int64_t)ceil(LEAST_SECONDS / fmax(times[0], 1e-7));
    }
    return vt_median(times + 1, TURNS);
}

/* What one turn does, counted by the dry back end. */
static vt_status count_of(const bench *b, sequence *run, vt_dry_count *count)
{
    vt_status status = VT_OK;
    bench counted = *b;
    VT_TRY(vt_backend_open_dry(&counted.backend));
    run(&counted);
    *count = *vt_backend_dry_count(counted.backend);
done:
    vt_backend_close(&counted.backend);
    return status;
}

static vt_status measure_rates(bench *b, vt_world *world, bool all_types, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    vt_dry_count count;
    vt_type own = b->type;
    for (int type = VT_FLOAT32; type < VT_TYPE_COUNT; type++) {
        if (!all_types && type != (int)own) continue;
        b->type = (vt_type)type;
        VT_TRY(fill_operands(b));
        VT_TRY(count_of(b, run_products, &count));
        hardware->matrix_tflops[type] = 1e-12 * count.flops / seconds_of(b, world, run_products);
        hardware->matrix_fraction[type] = 1;
        VT_TRY(count_of(b, run_attention, &count));
        double rate = 1e-12 * count.flops / seconds_of(b, world, run_attention);
        hardware->attention_fraction[type] = rate / hardware->matrix_tflops[type];
    }
    b->type = own;
done:
    return status;
}

static vt_status measure_memory(bench *b, vt_world *world, vt_hardware *hardware)
{
    static sequence *const sequences[VT_WORK_COUNT] = {[VT_WORK_NORM] = run_norm,
                                                       [VT_WORK_GELU] = run_gelu,
                                                       [VT_WORK_RESIDUAL] = run_residual,
                                                       [VT_WORK_PATCHES] = run_patches,
                                                       [VT_WORK_OPTIMIZER] = run_optimizer};
    vt_status status = VT_OK;
    vt_dry_count count;
    clear_operands(b);
    VT_TRY(count_of(b, run_wide, &count));
    hardware->memory_gb_s = 1e-9 * count.moved[VT_WORK_RESIDUAL] / seconds_of(b, world, run_wide);
    hardware->memory_fraction = 1;
    for (int i = 0; i < VT_WORK_COUNT; i++) {
        VT_TRY(count_of(b, sequences[i], &count));
        double rate = 1e-9 * count.moved[i] / seconds_of(b, world, sequences[i]);
        hardware->work_fraction[i] = rate / hardware->memory_gb_s;
    }
    hardware->operation_us = 1e4 * seconds_of(b, world, run_start);
done:
    return status;
}

/* ---- messages ---- */

/* One of each operation that layouts use, on [elements] in all. */
static void exchange_all(vt_group *group, float *data, int64_t elements, const int64_t *counts, const size_t *bytes)
{
    int64_t own = elements / group->size * group->rank;
    vt_group_all_reduce(group, VT_SUM_FLOAT32, data, elements, NULL);
    vt_group_reduce_scatter(group, data, counts, data + own, NULL);
    vt_group_all_gather(group, data + own, bytes, data, NULL);
}

/* Seconds that a short message takes between ranks that come from computing, which then wait for the slowest and, where
 * there are more of them than cores, for their turn: turns of a product with and without one. */
static double meeting_seconds(bench *b, vt_world *world, vt_group *group)
{
    enum { TURNS = 20, TRIES = 3 };
    vt_matrix x = view(b->inputs, b->type, b->rows, b->dim), y = view(b->outputs, b->type, b->rows, b->dim);
    double seconds[2][TRIES];
    for (int i = 0; i < 2 * TRIES; i++) {
        const bool meets = i % 2 == 1;
        most(world, 0);
        double begin = vt_clock_seconds();
        for (int turn = 0; turn < TURNS; turn++) {
            b->backend->linear_forward(b->backend, x, view(b->weight, b->type, b->dim, b->dim), NULL, y);
            if (meets) vt_group_all_reduce(group, VT_SUM_FLOAT32, b->wide, 1, NULL);
        }
        seconds[meets][i / 2] = most(world, vt_clock_seconds() - begin) / TURNS;
    }
    return vt_median(seconds[1], TRIES) - vt_median(seconds[0], TRIES);
}

/* Latency per doubling of ranks, and bandwidth as vt_volume counts bytes, of messages as large as the residual stream
 * of the whole batch: those that layouts exchange are of that order. */
static void measure_group(bench *b, vt_world *world, vt_group *group, double *gb_s, double *us)
{
    enum { TURNS = 5, SHORT = 40 };
    double figures[2] = {0}, nothing = 0, bytes = 0;
    int64_t elements = b->rows * b->dim * group->size, counts[group->size];
    if (elements > WIDE_ELEMENTS) elements = WIDE_ELEMENTS / group->size * group->size;
    size_t parts[group->size];
    for (int i = 0; i < group->size; i++) counts[i] = elements / group->size;
    for (int i = 0; i < group->size; i++) parts[i] = (size_t)counts[i] * sizeof(float);
    memset(b->wide, 0, (size_t)elements * sizeof *b->wide); /* sums must not overflow */
    exchange_all(group, b->wide, elements, counts, parts);
    vt_world_sum(world, &nothing, 1);
    double begin = vt_clock_seconds(), before = group->volume.bytes;
    for (int i = 0; i < TURNS; i++) exchange_all(group, b->wide, elements, counts, parts);
    figures[0] = (vt_clock_seconds() - begin) / vt_world_ranks(world);
    bytes = group->volume.bytes - before;
    begin = vt_clock_seconds();
    for (int i = 0; i < SHORT; i++) vt_group_all_reduce(group, VT_SUM_FLOAT32, b->wide, 1, NULL);
    figures[1] = (vt_clock_seconds() - begin) / SHORT / vt_world_ranks(world);
    vt_world_sum(world, figures, 2);
    *us = 1e6 * fmax(figures[1], meeting_seconds(b, world, group)) / ceil(log2(group->size));
    *gb_s = 1e-9 * bytes / fmax(1e-9, figures[0] - 3 * TURNS * figures[1]);
}

static vt_status measure_messages(bench *b, vt_world *world, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    vt_group *within = NULL, *between = NULL;
    hardware->within_gb_s = 2; /* guesses, for ranks that aren't there */
    hardware->within_us = 20;
    hardware->between_gb_s = 1;
    hardware->between_us = 50;
    const int here = vt_world_ranks(world) / vt_world_nodes(world);
    hardware->ranks_per_node = here;
    VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_WITHIN_NODE, "calibration", NULL, &within));
    if (within->size > 1) measure_group(b, world, within, &hardware->within_gb_s, &hardware->within_us);
    if (vt_world_nodes(world) > 1) {
        VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_ACROSS_NODES, "calibration", NULL, &between));
        measure_group(b, world, between, &hardware->between_gb_s, &hardware->between_us);
    }
done:
    return status;
}

vt_status vt_calibrate(const vt_config *config, int64_t samples, bool all_types, vt_world *world, vt_backend *backend,
                       vt_hardware *hardware)
{
    vt_status status = VT_OK;
    int64_t tokens = vt_fit_tokens(config);
    int64_t dim = config->embed_dim, most = MOST_ROWS / tokens, parameters = 12 * dim * dim * config->depth;
    bench b = {.backend = backend, .config = config, .type = vt_trainer_type(config), .tokens = tokens, .dim = dim};
    if (samples > most) samples = most > 1 ? most : 1;
    b.samples = samples;
    b.rows = samples * tokens;
    b.areas = 1 + KEPT_BYTES / (4 * b.rows * dim * (int64_t)sizeof(float));
    if (b.areas > 4 * config->depth) b.areas = 4 * config->depth;
    if (b.areas < 2) b.areas = 2;
    b.elements = parameters < OPTIMIZER_ELEMENTS ? parameters : OPTIMIZER_ELEMENTS;
    *hardware = (vt_hardware){.name = "calibrated", .host_memory = backend->shares_host_memory, .head_multiple = 1};
    double memory = backend->available_memory(backend);
    hardware->memory_gib = memory / 1073741824 * vt_world_nodes(world) / vt_world_ranks(world);
    VT_TRY(bench_open(&b));
    VT_TRY(measure_rates(&b, world, all_types, hardware));
    VT_TRY(measure_memory(&b, world, hardware));
    VT_TRY(measure_messages(&b, world, hardware));
    VT_TRY(backend->check(backend));
done:
    bench_close(&b);
    return status;
}
