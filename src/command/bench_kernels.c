/* Each operation at the shapes of a large model's block, beside the machine's limits: multiply-adds on registers, and a
 * sum of two arrays far larger than the caches. Limits and kernels run in turn; of each the best round counts, since
 * whatever else the machine does only takes time away. */
#include <stdio.h>

#include "backend/arena.h"
#include "base/clock.h"
#include "command/arguments.h"
#include "command/bench.h"

enum { TOKENS = 4050, DIM = 384, HEADS = 8, WIDE = 4 * DIM, SAMPLES = 8, PATCH = 8, CHANNELS = 20 };

typedef struct {
    vt_backend *backend;
    vt_attention_shape attention;
    vt_patch_grid grid;
    vt_mask no_mask;
    vt_matrix x, y, z;                /* [SAMPLES * TOKENS, DIM] */
    vt_matrix half;                   /* the same in 16 bits */
    vt_matrix tokens, hidden, active; /* [TOKENS, DIM], [TOKENS, WIDE] */
    vt_matrix qkv, dqkv, out;         /* [TOKENS, 3 DIM], [TOKENS, DIM] */
    vt_matrix weight, patches;
    float *vector, *dweight, *log_sum, *mean, *rstd, *fields;
} workplace;

static vt_matrix part(vt_matrix qkv, int index)
{
    return vt_matrix_columns(qkv, index * DIM, DIM);
}

static void attention_forward(workplace *w)
{
    w->backend->attention_forward(w->backend, &w->attention, part(w->qkv, 0), part(w->qkv, 1), part(w->qkv, 2), w->out,
                                  w->log_sum);
}

static void attention_backward(workplace *w)
{
    w->backend->attention_backward(w->backend, &w->attention, part(w->qkv, 0), part(w->qkv, 1), part(w->qkv, 2), w->out,
                                   w->log_sum, w->tokens, part(w->dqkv, 0), part(w->dqkv, 1), part(w->dqkv, 2));
}

static void linear_forward(workplace *w)
{
    w->backend->linear_forward(w->backend, w->tokens, w->weight, w->vector, w->hidden);
}

static void linear_backward_input(workplace *w)
{
    w->backend->linear_backward_input(w->backend, w->hidden, w->weight, w->out);
}

static void linear_backward_weight(workplace *w)
{
    w->backend->linear_backward_weight(w->backend, w->tokens, w->hidden, w->dweight, w->vector);
}

static void layer_norm_forward(workplace *w)
{
    w->backend->layer_norm_forward(w->backend, w->x, w->vector, w->vector, 1e-6f, w->y, w->mean, w->rstd);
}

static void layer_norm_backward(workplace *w)
{
    w->backend->layer_norm_backward(w->backend, w->x, w->vector, w->mean, w->rstd, w->y, w->z, w->dweight,
                                    w->dweight + DIM);
}

static void residual_add(workplace *w)
{
    w->backend->residual_add(w->backend, w->x, w->y, &w->no_mask, w->z);
}

static void residual_layer_norm(workplace *w)
{
    w->backend->residual_layer_norm(w->backend, w->x, w->y, &w->no_mask, w->vector, w->vector, 1e-6f, w->z, w->y,
                                    w->mean, w->rstd);
}

static void gelu_forward(workplace *w)
{
    w->backend->gelu_forward(w->backend, VT_GELU_ERF, w->x, w->y);
}

static void gelu_backward(workplace *w)
{
    w->backend->gelu_backward(w->backend, VT_GELU_ERF, w->x, w->y, w->y, w->z);
}

static void to_bfloat16(workplace *w)
{
    w->half.type = VT_BFLOAT16;
    w->backend->convert(w->backend, w->x, w->half);
}

static void to_float16(workplace *w)
{
    w->half.type = VT_FLOAT16;
    w->backend->convert(w->backend, w->x, w->half);
}

/* From what it was converted to last. */
static void to_float32(workplace *w)
{
    w->backend->convert(w->backend, w->half, w->x);
}

static void patches_load(workplace *w)
{
    w->backend->patches_load(w->backend, &w->grid, w->fields, w->vector, w->vector, w->patches);
}

static void sum_of_squares(workplace *w)
{
    double result = 0;
    w->backend->sum_of_squares(w->backend, w->x.data, w->x.rows * DIM, 1, &result);
}

static void update(workplace *w)
{
    const vt_update adam = {VT_OPTIMIZER_ADAM, 1e-9, 0.9, 0.95, 1e-8, 0, 1000};
    float scale = 1e-3f;
    int64_t quarter = w->x.rows / 2 * DIM;
    w->backend->update(w->backend, &adam, &scale, w->x.data, w->y.data, w->z.data, w->z.data + quarter, quarter);
}

typedef struct {
    const char *name;
    void (*run)(workplace *w);
    double flops, bytes; /* one of the two is 0 */
} kernel;

#define TOKENS_ (double)TOKENS
#define ELEMENTS ((double)SAMPLES * TOKENS * DIM)

static const kernel kernels[] = {
    {"attention_forward", attention_forward, 4 * TOKENS_ *TOKENS *DIM, 0},
    {"attention_backward", attention_backward, 10 * TOKENS_ *TOKENS *DIM, 0},
    {"linear_forward", linear_forward, 2 * TOKENS_ *DIM *WIDE, 0},
    {"linear_backward_input", linear_backward_input, 2 * TOKENS_ *DIM *WIDE, 0},
    {"linear_backward_weight", linear_backward_weight, 2 * TOKENS_ *DIM *WIDE, 0},
    {"layer_norm_forward", layer_norm_forward, 0, 8 * ELEMENTS},
    {"layer_norm_backward", layer_norm_backward, 0, 16 * ELEMENTS},
    {"residual_add", residual_add, 0, 12 * ELEMENTS},
    {"residual_layer_norm", residual_layer_norm, 0, 16 * ELEMENTS},
    {"gelu_forward", gelu_forward, 0, 8 * ELEMENTS},
    {"gelu_backward", gelu_backward, 0, 16 * ELEMENTS},
    {"convert to bfloat16", to_bfloat16, 0, 6 * ELEMENTS},
    {"convert to float32", to_float32, 0, 6 * ELEMENTS},
    {"convert to float16", to_float16, 0, 6 * ELEMENTS},
    {"float16 to float32", to_float32, 0, 6 * ELEMENTS},
    {"patches_load", patches_load, 0, 8.0 * SAMPLES *TOKENS *PATCH *PATCH *CHANNELS},
    {"sum_of_squares", sum_of_squares, 0, 4 * ELEMENTS},
    {"update (Adam)", update, 0, 14 * ELEMENTS},
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

/* All of them lie in one arena: counted first, then laid out. */
static vt_status open_workplace(workplace *w, vt_arena *arena)
{
    vt_status status = VT_OK;
    const int64_t rows = (int64_t)SAMPLES * TOKENS, pixels = PATCH * PATCH * CHANNELS;
    for (int counting = 1; counting >= 0; counting--) {
        size_t needed = arena->peak;
        VT_TRY(vt_arena_open(w->backend, counting ? SIZE_MAX : needed, arena));
        vt_matrix *const large[] = {&w->x, &w->y, &w->z};
        for (int i = 0; i < 3; i++) *large[i] = vt_arena_push_matrix(arena, VT_FLOAT32, rows, DIM);
        w->half = vt_arena_push_matrix(arena, VT_BFLOAT16, rows, DIM);
        w->tokens = vt_arena_push_matrix(arena, VT_FLOAT32, TOKENS, DIM);
        w->hidden = vt_arena_push_matrix(arena, VT_FLOAT32, TOKENS, WIDE);
        w->out = vt_arena_push_matrix(arena, VT_FLOAT32, TOKENS, DIM);
        w->qkv = vt_arena_push_matrix(arena, VT_FLOAT32, TOKENS, 3 * DIM);
        w->dqkv = vt_arena_push_matrix(arena, VT_FLOAT32, TOKENS, 3 * DIM);
        w->weight = vt_arena_push_matrix(arena, VT_FLOAT32, WIDE, DIM);
        w->patches = vt_arena_push_matrix(arena, VT_FLOAT32, rows, pixels);
        w->fields = vt_arena_push(arena, (size_t)(rows * pixels) * sizeof(float));
        w->dweight = vt_arena_push(arena, (size_t)(WIDE * DIM) * sizeof(float));
        w->vector = vt_arena_push(arena, WIDE * sizeof(float));
        w->log_sum = vt_arena_push(arena, (size_t)(TOKENS * HEADS) * sizeof(float));
        w->mean = vt_arena_push(arena, (size_t)rows * sizeof(float));
        w->rstd = vt_arena_push(arena, (size_t)rows * sizeof(float));
    }
done:
    return status;
}

/* y += x over arrays beyond the caches: 12 bytes an element. */
static double add_arrays(workplace *w)
{
    const float *x = w->x.data;
    float *y = w->y.data;
    int64_t count = w->x.rows * DIM;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] += x[i];
    return 12 * (double)count;
}

static void keep_best(double *best, double rate)
{
    if (rate > *best) *best = rate;
}

static void measure(workplace *w, int64_t rounds)
{
    double flops = 0, bytes = 0, best[KERNEL_COUNT] = {0}; /* a second */
    for (int64_t round = 0; round <= rounds; round++) {    /* the first one warms up: its rates are left out */
        for (int i = 0; i < KERNEL_COUNT; i++) {
            double begin = vt_clock_seconds();
            double done = kernels[i].flops > 0 ? vt_backend_cpu_multiply_adds(w->backend, 1000000) : add_arrays(w);
            double middle = vt_clock_seconds();
            kernels[i].run(w);
            double end = vt_clock_seconds();
            if (round == 0) continue;
            keep_best(kernels[i].flops > 0 ? &flops : &bytes, done / (middle - begin));
            keep_best(&best[i], (kernels[i].flops + kernels[i].bytes) / (end - middle));
        }
    }
    printf(
        "%s\nlimits: %.0f GFLOP/s (multiply-adds on registers), %.1f GB/s (sum of two arrays); best of %lld rounds\n\n",
        w->backend->name, flops / 1e9, bytes / 1e9, (long long)rounds);
    for (int i = 0; i < KERNEL_COUNT; i++) {
        bool computes = kernels[i].flops > 0;
        double limit = computes ? flops : bytes;
        printf("%-24s %8.2f ms %8.1f %-8s %4.0f %%\n", kernels[i].name,
               1e3 * (kernels[i].flops + kernels[i].bytes) / best[i], best[i] / 1e9, computes ? "GFLOP/s" : "GB/s",
               limit > 0 ? 100 * best[i] / limit : 0);
    }
}

vt_status vt_command_bench_kernels(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    int64_t threads = 0, rounds = 5;
    bool help = false;
    const char *what = NULL; /* the word kernels */
    const vt_argument flags[] = {
        {"threads", VT_ARGUMENT_INTEGER, &threads, 0, 4096, "0: one a core"},
        {"rounds", VT_ARGUMENT_INTEGER, &rounds, 1, 1000, "of which the best counts"},
    };
    workplace w = {
        .attention = {.batch = 1, .heads = HEADS, .head_dim = DIM / HEADS, .queries = TOKENS, .keys = TOKENS},
        .grid = {.batch = SAMPLES,
                 .field_channels = CHANNELS,
                 .channels = CHANNELS,
                 .height = 45 * PATCH,
                 .width = 90 * PATCH,
                 .patch = PATCH,
                 .tokens = TOKENS},
        .no_mask = {.tokens = TOKENS}};
    vt_arena arena = {0};
    VT_TRY(vt_arguments_parse("bench", argument_count, arguments, flags, 2, "word", &what, &help));
    if (help) {
        printf(
            "usage: vitrain bench kernels [--name=value ...]\n\nEvery operation of the CPU back end at the shapes of a "
            "large model's block, beside its limit.\n\n");
        vt_arguments_print(flags, 2);
        goto done;
    }
    VT_TRY(vt_backend_open_cpu(VT_ISA_AUTO, (int)threads, &w.backend));
    VT_TRY(open_workplace(&w, &arena));
    measure(&w, rounds);
    VT_TRY(w.backend->check(w.backend));
done:
    vt_arena_close(&arena);
    vt_backend_close(&w.backend);
    return status;
}
