/* Each operation at the shapes of a large model's block, beside its limit: multiply-adds on registers, or a plain loop
 * over arrays of the same sizes, far beyond the caches, that reads and writes as many of them as the kernel does
 * (writing what was not read costs more than writing over it, as its lines are brought into the caches first). A limit
 * is measured just before its kernel, so that both find the caches alike; of each the best round counts, since whatever
 * else the machine does only takes time away. On a GPU the limits are a large product in 16 bits and a copy inside of
 * its memory, and as many repetitions as make starting and waiting small are timed at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/arena.h"
#include "base/clock.h"
#include "command/arguments.h"
#include "command/bench.h"

enum { TOKENS = 4050, DIM = 384, HEADS = 8, WIDE = 4 * DIM, PATCH = 8, CHANNELS = 20 };
enum { LARGE = 8192 }; /* rows and columns of the product that is the limit */

typedef struct {
    vt_backend *backend;
    bool on_gpu;
    vt_type type;                     /* of what enters products and attention */
    int64_t samples, images, product; /* of operations that memory bounds; of patches; of products and attention */
    int64_t repetitions;              /* that are timed at once */
    vt_attention_shape attention;
    vt_patch_grid grid;
    vt_mask no_mask;
    vt_matrix x, y, z;                /* [samples * TOKENS, DIM] */
    vt_matrix half;                   /* the same in 16 bits */
    vt_matrix tokens, hidden, active; /* [product * TOKENS, DIM], [.., WIDE] */
    vt_matrix qkv, dqkv, out;         /* [product * TOKENS, 3 DIM], [.., DIM] */
    vt_matrix weight;
    vt_matrix patches;  /* [images * TOKENS, PATCH * PATCH * CHANNELS] */
    vt_matrix large[3]; /* on a GPU: [LARGE, LARGE] */
    double *squares;
    vt_step_state *state;
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
    w->backend->sum_of_squares(w->backend, w->x.data, w->x.rows * DIM, 1, w->squares);
}

static void update(workplace *w)
{
    const vt_update adam = {.kind = VT_OPTIMIZER_Adam, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    int64_t quarter = w->x.rows / 2 * DIM;
    w->backend->update(w->backend, &adam, w->state, w->x.data, w->y.data, w->z.data, w->z.data + quarter, quarter);
}

/* What bounds a kernel; of memory, the loop that reads and writes as it does. */
typedef enum {
    LIMIT_MULTIPLY_ADDS,
    LIMIT_SUM,
    LIMIT_COPY,
    LIMIT_COPY_FIELDS,
    LIMIT_ADD,
    LIMIT_ADD_TO,
    LIMIT_ADD_TWO,
    LIMIT_ADD_BOTH
} limit_kind;
static const char *const limit_names[] = {
    "multiply-adds on registers", "sum of x", "y = x", "y = x", "z = x + y", "y += x", "z += x + y", "y += x; z = y"};

typedef struct {
    const char *name;
    void (*run)(workplace *w);
    limit_kind limit;
    double work; /* FLOPs, or bytes of each array once, of a sample */
} kernel;

#define TOKENS_ (double)TOKENS
#define ELEMENTS ((double)TOKENS * DIM)

static const kernel kernels[] = {
    {"attention_forward", attention_forward, LIMIT_MULTIPLY_ADDS, 4 * TOKENS_ *TOKENS *DIM},
    {"attention_backward", attention_backward, LIMIT_MULTIPLY_ADDS, 10 * TOKENS_ *TOKENS *DIM},
    {"linear_forward", linear_forward, LIMIT_MULTIPLY_ADDS, 2 * TOKENS_ *DIM *WIDE},
    {"linear_backward_input", linear_backward_input, LIMIT_MULTIPLY_ADDS, 2 * TOKENS_ *DIM *WIDE},
    {"linear_backward_weight", linear_backward_weight, LIMIT_MULTIPLY_ADDS, 2 * TOKENS_ *DIM *WIDE},
    {"layer_norm_forward", layer_norm_forward, LIMIT_COPY, 8 * ELEMENTS},
    {"layer_norm_backward", layer_norm_backward, LIMIT_ADD_TWO, 16 * ELEMENTS},
    {"residual_add", residual_add, LIMIT_ADD, 12 * ELEMENTS},
    {"residual_layer_norm", residual_layer_norm, LIMIT_ADD_BOTH, 16 * ELEMENTS},
    {"gelu_forward", gelu_forward, LIMIT_COPY, 8 * ELEMENTS},
    {"gelu_backward", gelu_backward, LIMIT_ADD_BOTH, 16 * ELEMENTS},
    {"convert to bfloat16", to_bfloat16, LIMIT_COPY, 6 * ELEMENTS},
    {"convert to float32", to_float32, LIMIT_COPY, 6 * ELEMENTS},
    {"convert to float16", to_float16, LIMIT_COPY, 6 * ELEMENTS},
    {"float16 to float32", to_float32, LIMIT_COPY, 6 * ELEMENTS},
    {"patches_load", patches_load, LIMIT_COPY_FIELDS, 8.0 * TOKENS *PATCH *PATCH *CHANNELS},
    {"sum_of_squares", sum_of_squares, LIMIT_SUM, 4 * ELEMENTS},
    {"update (Adam)", update, LIMIT_ADD_TO, 14 * ELEMENTS},
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

/* All of them lie in one arena: counted first, then laid out. */
static vt_status open_workplace(workplace *w, vt_arena *arena)
{
    vt_status status = VT_OK;
    const int64_t rows = w->samples * TOKENS, tokens = w->product * TOKENS, pixels = PATCH * PATCH * CHANNELS;
    const int64_t image_rows = w->images * TOKENS;
    for (int counting = 1; counting >= 0; counting--) {
        size_t needed = arena->peak;
        VT_TRY(vt_arena_open(w->backend, counting ? SIZE_MAX : needed, arena));
        vt_matrix *const large[] = {&w->x, &w->y, &w->z};
        for (int i = 0; i < 3; i++) *large[i] = vt_arena_push_matrix(arena, VT_FLOAT32, rows, DIM);
        w->half = vt_arena_push_matrix(arena, VT_BFLOAT16, rows, DIM);
        w->tokens = vt_arena_push_matrix(arena, w->type, tokens, DIM);
        w->hidden = vt_arena_push_matrix(arena, w->type, tokens, WIDE);
        w->out = vt_arena_push_matrix(arena, w->type, tokens, DIM);
        w->qkv = vt_arena_push_matrix(arena, w->type, tokens, 3 * DIM);
        w->dqkv = vt_arena_push_matrix(arena, w->type, tokens, 3 * DIM);
        w->weight = vt_arena_push_matrix(arena, w->type, WIDE, DIM);
        for (int i = 0; i < 3 && w->on_gpu; i++) w->large[i] = vt_arena_push_matrix(arena, w->type, LARGE, LARGE);
        w->squares = vt_arena_push(arena, sizeof *w->squares);
        w->state = vt_arena_push(arena, sizeof *w->state);
        w->patches = vt_arena_push_matrix(arena, VT_FLOAT32, image_rows, pixels);
        w->fields = vt_arena_push(arena, (size_t)(image_rows * pixels) * sizeof(float));
        w->dweight = vt_arena_push(arena, (size_t)(WIDE * DIM) * sizeof(float));
        w->vector = vt_arena_push(arena, WIDE * sizeof(float));
        w->log_sum = vt_arena_push(arena, (size_t)(tokens * HEADS) * sizeof(float));
        w->mean = vt_arena_push(arena, (size_t)rows * sizeof(float));
        w->rstd = vt_arena_push(arena, (size_t)rows * sizeof(float));
    }
done:
    return status;
}

/* Numbers of sizes 1/16 … 1 in every type (matrix units are faster on zeros, which take less power), and a small
 * factor of gradients. */
static vt_status fill_workplace(workplace *w, const vt_arena *arena)
{
    enum { PATTERN = 1 << 20 };
    vt_status status = VT_OK;
    const vt_step_state state = {.learning_rate = 1e-9, .factor = 1e-3f, .correction1 = 1, .correction2 = 1};
    const size_t bytes = PATTERN * sizeof(uint16_t);
    uint16_t *noise = malloc(bytes);
    VT_ASSERT(noise != NULL);
    for (uint32_t i = 0, draw = 1; i < PATTERN; i++) { /* bfloat16; two of them are a float32 */
        draw = draw * 1664525u + 1013904223u;
        noise[i] = (uint16_t)((draw >> 16 & 0x807f) | (123 + (draw >> 29) % 4) << 7);
    }
    for (size_t at = 0; at < arena->capacity; at += bytes)
        w->backend->copy_from_host(w->backend, arena->base + at, noise,
                                   arena->capacity - at < bytes ? arena->capacity - at : bytes);
    w->backend->copy_from_host(w->backend, w->state, &state, sizeof state);
    VT_TRY(w->backend->check(w->backend));
done:
    free(noise);
    return status;
}

/* Runs a limit's loop over arrays beyond the caches; returns the bytes, of each array once read, once written. */
static double move_bytes(workplace *w, limit_kind limit)
{
    const bool of_fields = limit == LIMIT_COPY_FIELDS;
    const float *x = of_fields ? w->fields : w->x.data;
    float *y = of_fields ? w->patches.data : w->y.data, *z = w->z.data, sum = 0;
    const int64_t count = of_fields ? w->patches.rows * w->patches.columns : w->x.rows * DIM;
    switch (limit) {
    case LIMIT_SUM:
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
        for (int64_t i = 0; i < count; i++) sum += x[i];
        w->vector[0] = sum;
        return 4 * (double)count;
    case LIMIT_COPY:
    case LIMIT_COPY_FIELDS:
        if (w->on_gpu) {
            w->backend->copy_from_host(w->backend, y, x, (size_t)count * sizeof *x);
            return 8 * (double)count;
        }
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < count; i++) y[i] = x[i] + 1;
        return 8 * (double)count;
    case LIMIT_ADD:
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < count; i++) z[i] = x[i] + y[i];
        return 12 * (double)count;
    case LIMIT_ADD_TO:
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < count; i++) y[i] += x[i];
        return 12 * (double)count;
    case LIMIT_ADD_TWO:
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < count; i++) z[i] += x[i] + y[i];
        return 16 * (double)count;
    default:
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < count; i++) z[i] = y[i] += x[i];
        return 16 * (double)count;
    }
}

static double multiply_add(workplace *w)
{
    if (!w->on_gpu) return vt_backend_cpu_multiply_adds(w->backend, VT_FLOAT32, 1000000);
    w->backend->linear_forward(w->backend, w->large[0], w->large[1], NULL, w->large[2]);
    return 2.0 * LARGE * LARGE * LARGE;
}

static void keep_best(double *best, double rate)
{
    if (rate > *best) *best = rate;
}

/* Seconds till a GPU has done all that it was told to. */
static double now_done(workplace *w)
{
    if (w->on_gpu) (void)w->backend->check(w->backend); /* a failure stays noted for the last check */
    return vt_clock_seconds();
}

static bool computes(const kernel *k)
{
    return k->limit == LIMIT_MULTIPLY_ADDS;
}

/* A GPU's memory has one limit. */
static limit_kind limit_of(const workplace *w, const kernel *k)
{
    return w->on_gpu && !computes(k) ? LIMIT_COPY : k->limit;
}

static double work_of(const workplace *w, const kernel *k)
{
    return k->work * (double)(computes(k) ? w->product : k->limit == LIMIT_COPY_FIELDS ? w->images : w->samples);
}

/* Of a kernel and of its limit: FLOPs or bytes a second, of the best round. */
typedef struct {
    double kernel, limit;
} rates;

static void measure(workplace *w, const kernel *k, rates *best)
{
    const limit_kind limit = limit_of(w, k);
    double done = 0, begin = now_done(w);
    for (int64_t j = 0; j < w->repetitions; j++) done += computes(k) ? multiply_add(w) : move_bytes(w, limit);
    double middle = now_done(w);
    for (int64_t j = 0; j < w->repetitions; j++) k->run(w);
    double end = now_done(w);
    keep_best(&best->limit, done / (middle - begin));
    keep_best(&best->kernel, work_of(w, k) * (double)w->repetitions / (end - middle));
}

static void print_head(const workplace *w, int64_t rounds)
{
    printf("%s; best of %lld rounds\n", w->backend->name, (long long)rounds);
    if (w->on_gpu)
        printf("limits: a product of 8192 x 8192 x 8192 in bfloat16, a copy inside of its memory\n%lld samples for "
               "products "
               "and attention (bfloat16), %lld for the others; an H200 is sold for 989000 GFLOP/s, 4800 GB/s\n",
               (long long)w->product, (long long)w->samples);
    printf("\n%-24s %11s %17s %8s  limit\n", "operation", "time", "rate", "of limit");
}

static void print_rates(const workplace *w, const kernel *k, const rates *best)
{
    const char *unit = computes(k) ? "GFLOP/s" : "GB/s";
    const char *limit = w->on_gpu ? computes(k) ? "a product" : "a copy" : limit_names[limit_of(w, k)];
    printf("%-24s %8.*f ms %9.1f %-7s %6.0f %%   %.1f: %s\n", k->name, w->on_gpu ? 4 : 2,
           1e3 * work_of(w, k) / best->kernel, best->kernel / 1e9, unit, 100 * best->kernel / best->limit,
           best->limit / 1e9, limit);
    fflush(stdout);
}

/* The first round warms up: its rates are left out. On a CPU all kernels take turns, as others' work on it comes and
 * goes; on a GPU one after the other, each line as soon as it is known, should a later kernel fail. */
static vt_status measure_all(workplace *w, int64_t rounds)
{
    vt_status status = VT_OK;
    rates best[KERNEL_COUNT] = {{0, 0}}, ignored = {0, 0};
    print_head(w, rounds);
    for (int i = 0; i < KERNEL_COUNT && w->on_gpu; i++) {
        for (int64_t round = 0; round <= rounds; round++) measure(w, &kernels[i], round > 0 ? &best[i] : &ignored);
        status = w->backend->check(w->backend);
        if (status != VT_OK) status = vt_error_context("%s", kernels[i].name);
        VT_TRY(status);
        print_rates(w, &kernels[i], &best[i]);
    }
    for (int64_t round = 0; round <= rounds && !w->on_gpu; round++)
        for (int i = 0; i < KERNEL_COUNT; i++) measure(w, &kernels[i], round > 0 ? &best[i] : &ignored);
    VT_TRY(w->backend->check(w->backend));
    for (int i = 0; i < KERNEL_COUNT && !w->on_gpu; i++) print_rates(w, &kernels[i], &best[i]);
done:
    return status;
}

static vt_status open_device(workplace *w, const char *device, int64_t threads)
{
    vt_status status = VT_OK;
    w->on_gpu = strcmp(device, "cuda") == 0;
    w->type = w->on_gpu ? VT_BFLOAT16 : VT_FLOAT32;
    w->samples = 32;
    w->images = w->on_gpu ? 32 : 8;
    w->product = w->on_gpu ? 16 : 1;
    w->repetitions = w->on_gpu ? 20 : 1;
    w->attention.batch = w->product;
    w->grid.batch = w->images;
    VT_TRY(w->on_gpu ? vt_backend_open_cuda(0, false, &w->backend)
                     : vt_backend_open_cpu(VT_ISA_AUTO, (int)threads, &w->backend));
done:
    return status;
}

vt_status vt_command_bench_kernels(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    int64_t threads = 0, rounds = 5;
    bool help = false;
    const char *what = NULL; /* the word kernels */
    vt_argument_choice device = {"cpu", "cpu|cuda"};
    const vt_argument flags[] = {
        {"device", VT_ARGUMENT_CHOICE, &device, 0, 0, "where to compute"},
        {"threads", VT_ARGUMENT_INTEGER, &threads, 0, 4096, "0: one a core"},
        {"rounds", VT_ARGUMENT_INTEGER, &rounds, 1, 1000, "of which the best counts"},
    };
    workplace w = {.attention = {.heads = HEADS, .head_dim = DIM / HEADS, .queries = TOKENS, .keys = TOKENS},
                   .grid = {.field_channels = CHANNELS,
                            .channels = CHANNELS,
                            .height = 45 * PATCH,
                            .width = 90 * PATCH,
                            .patch = PATCH,
                            .tokens = TOKENS},
                   .no_mask = {.tokens = TOKENS}};
    vt_arena arena = {0};
    VT_TRY(vt_arguments_parse("bench kernels", argument_count, arguments, flags, 3, "word", &what, &help));
    if (help) {
        printf("usage: vitrain bench kernels [--name=value ...]\n\nEvery operation of a back end at the shapes of a "
               "large model's block, beside its limit.\n\n");
        vt_arguments_print(flags, 3);
        goto done;
    }
    VT_TRY(open_device(&w, device.chosen, threads));
    VT_TRY(open_workplace(&w, &arena));
    VT_TRY(fill_workplace(&w, &arena));
    VT_TRY(measure_all(&w, rounds));
done:
    vt_arena_close(&arena);
    vt_backend_close(&w.backend);
    return status;
}
