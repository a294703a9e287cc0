#include "planning/practice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/arena.h"
#include "backend/times.h"
#include "base/bfloat16.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/text.h"

/* Memory full of random bfloat16 numbers; two of them, read as one float32, lie between -1 and 1, too. */
static vt_status open_noise(vt_backend *backend, size_t bytes, vt_arena *arena)
{
    static uint16_t noise[1 << 16];
    enum { COUNT = sizeof noise / sizeof noise[0] };
    vt_status status = VT_OK;
    float *numbers = vt_practice_numbers(COUNT, 0);
    for (int i = 0; i < COUNT; i++) noise[i] = vt_bfloat16_round(numbers[i]);
    free(numbers);
    VT_TRY(vt_arena_open(backend, bytes, arena));
    for (size_t at = 0; at < bytes; at += sizeof noise)
        backend->copy_from_host(backend, arena->base + at, noise,
                                bytes - at < sizeof noise ? bytes - at : sizeof noise);
    VT_TRY(backend->check(backend));
done:
    return status;
}

/* What cores and memory can do is measured between the steps, in short pieces: their speed changes with what others on
 * the processor do, so the best of all moments is no limit of the others. Medians are taken. */
enum { PIECES = 4, MOST_PIECES = 20 * PIECES, AREAS = 3 };
enum { LARGE = 8192, LARGE_ROWS = 3072 }; /* matrices are [LARGE, LARGE], of a CPU 3072 rows of that: 96 MB */

typedef struct {
    vt_backend *backend;
    vt_type type;
    double flops[MOST_PIECES], bytes[MOST_PIECES]; /* a second */
    int count;
    vt_arena arena;
    vt_matrix areas[AREAS]; /* float32 [rows, LARGE] */
} limits;

static vt_status limits_open(limits *l)
{
    const int64_t rows = l->backend->shares_host_memory ? LARGE_ROWS : LARGE;
    const vt_status status = open_noise(l->backend, AREAS * (size_t)(rows * LARGE) * sizeof(float), &l->arena);
    for (int i = 0; i < AREAS && status == VT_OK; i++)
        l->areas[i] = vt_arena_push_matrix(&l->arena, VT_FLOAT32, rows, LARGE);
    return status;
}

/* Multiply-adds on the registers of a CPU, or a large product of a GPU; then y += x. */
static vt_status measure(limits *l)
{
    vt_status status = VT_OK;
    vt_backend *b = l->backend;
    const vt_mask none = {.tokens = 1};
    const vt_matrix x = l->areas[0], y = l->areas[2]; /* in float32; the product's operands stay as they are */
    vt_matrix matrix[AREAS] = {l->areas[0], l->areas[1], l->areas[2]};
    double flops = 2.0 * LARGE * LARGE * LARGE;
    for (int i = 0; i < AREAS; i++) matrix[i].type = l->type;
    VT_TRY(b->check(b));
    const double begin = vt_clock_seconds();
    if (b->shares_host_memory)
        flops = vt_backend_cpu_multiply_adds(b, l->type, 300000);
    else
        b->linear_forward(b, matrix[0], matrix[1], NULL, NULL, matrix[2]);
    VT_TRY(b->check(b));
    const double middle = vt_clock_seconds();
    b->residual_add(b, x, y, &none, y);
    VT_TRY(b->check(b));
    if (l->count == MOST_PIECES) goto done;
    l->flops[l->count] = flops / (middle - begin);
    l->bytes[l->count++] = 3.0 * (double)(x.rows * LARGE) * sizeof(float) / (vt_clock_seconds() - middle);
done:
    return status;
}

static void print_table(vt_backend *backend, double seconds, double steps, double flops, double bytes)
{
    int count;
    double rest = seconds, least = 0;
    const vt_operation_time *times = vt_times_sorted(backend, &count);
    vt_print("\n  where a step's time goes; limits: %.0f GFLOP/s, %.1f GB/s\n", 1e-9 * flops, 1e-9 * bytes);
    vt_print("  %-24s %-19s %6s %10s %6s %10s %8s %9s\n", "operation", "rows x cols x depth", "calls", "ms", "share",
             "GFLOP/s", "GB/s", "of limit");
    for (int i = 0; i < count; i++) {
        const vt_operation_time *t = &times[i];
        char size[64] = "";
        const double bound = fmax(flops > 0 ? t->flops / flops : 0, t->bytes / bytes);
        if (t->work.is_product)
            snprintf(size, sizeof size, "%ldx%ldx%ld", t->work.rows, t->work.columns, t->work.depth);
        vt_print("  %-24s %-19s %6.0f %10.2f %5.1f%% %10.1f %8.1f %8.0f%%\n", t->operation, size,
                 (double)t->calls / steps, 1e3 * t->seconds / steps, 100 * t->seconds / seconds,
                 1e-9 * t->flops / t->seconds, 1e-9 * t->bytes / t->seconds, 100 * bound / t->seconds);
        rest -= t->seconds;
        least += bound;
    }
    vt_print("  %-24s %-19s %6s %10.2f %5.1f%%\n", "all else", "", "", 1e3 * rest / steps, 100 * rest / seconds);
    vt_print("  the step takes %.1f ms; at the limits its operations would take %.1f ms, %.0f%% of it\n\n",
             1e3 * seconds / steps, 1e3 * least / steps, 100 * least / seconds);
}

vt_status vt_step_times_print(vt_practice *practice, vt_backend *backend, vt_type type, int64_t steps)
{
    vt_status status = VT_OK;
    double seconds = 0;
    vt_backend untimed = *backend;
    limits l = {.backend = &untimed, .type = type};
    vt_times_open(backend);
    VT_TRY(limits_open(&l));
    for (int64_t step = -1; step < steps; step++) {
        for (int i = 0; i < PIECES; i++) VT_TRY(measure(&l));
        if (step <= 0) vt_times_open(backend);
        const double begin = vt_clock_seconds();
        VT_TRY(vt_practice_step(practice));
        if (step >= 0) seconds += vt_clock_seconds() - begin;
    }
    print_table(backend, seconds, (double)steps, vt_median(l.flops, l.count), vt_median(l.bytes, l.count));
done:
    vt_times_close(backend);
    vt_arena_close(&l.arena);
    return status;
}

/* ---- attention on each engine ---- */

typedef struct {
    vt_backend *backend;
    vt_attention_shape shape;
    vt_arena arena;
    vt_matrix qkv, dout, out, dqkv;
    float *log_sum;
    uint16_t *drawn;
    void *step; /* of dropout */
} operands;

static vt_status open_operands(operands *o)
{
    vt_status status = VT_OK;
    const vt_attention_shape *s = &o->shape;
    const int64_t rows = s->batch * s->queries, width = s->heads * s->head_dim;
    const size_t sums = (size_t)(rows * s->heads) * sizeof(float);
    const size_t drawn = (size_t)vt_attention_drawn_count(s) * sizeof *o->drawn;
    const size_t gaps = 4096; /* the arena aligns each part */
    VT_TRY(open_noise(o->backend, (size_t)(8 * rows * width) * sizeof(uint16_t) + sums + drawn + gaps, &o->arena));
    o->qkv = vt_arena_push_matrix(&o->arena, VT_BFLOAT16, rows, 3 * width);
    o->dqkv = vt_arena_push_matrix(&o->arena, VT_BFLOAT16, rows, 3 * width);
    o->out = vt_arena_push_matrix(&o->arena, VT_BFLOAT16, rows, width);
    o->dout = vt_arena_push_matrix(&o->arena, VT_BFLOAT16, rows, width);
    o->log_sum = vt_arena_push(&o->arena, sums);
    o->drawn = vt_arena_push(&o->arena, drawn);
    o->step = vt_arena_push(&o->arena, sizeof(uint32_t));
done:
    return status;
}

static vt_matrix third(const vt_matrix *m, int i)
{
    return vt_matrix_columns(*m, i * m->columns / 3, m->columns / 3);
}

static void attend(const operands *o, bool backward)
{
    const vt_matrix q = third(&o->qkv, 0), k = third(&o->qkv, 1), v = third(&o->qkv, 2);
    if (backward)
        o->backend->attention_backward(o->backend, &o->shape, q, k, v, o->out, o->log_sum, o->dout, third(&o->dqkv, 0),
                                       third(&o->dqkv, 1), third(&o->dqkv, 2));
    else
        o->backend->attention_forward(o->backend, &o->shape, q, k, v, o->out, o->log_sum);
}

/* Two products of matrices in forward, five in backward. */
static vt_status print_line(const operands *o, const char *engine, bool backward, int64_t rounds)
{
    vt_status status = VT_OK;
    const vt_attention_shape *s = &o->shape;
    const double product = 2.0 * (double)(s->batch * s->heads * s->head_dim) * (double)s->queries * (double)s->keys;
    attend(o, backward);
    VT_TRY(o->backend->check(o->backend));
    const char *ran = o->backend->attention_ran(o->backend);
    if (strcmp(ran, engine) != 0) {
        vt_print("  attention %-8s by %-6s does not serve this shape\n", backward ? "backward" : "forward", engine);
        goto done;
    }
    const double begin = vt_clock_seconds();
    for (int64_t i = 0; i < rounds; i++) attend(o, backward);
    VT_TRY(o->backend->check(o->backend));
    const double seconds = (vt_clock_seconds() - begin) / (double)rounds;
    vt_print("  attention %-8s by %-6s %8.3f ms %8.0f GFLOP/s\n", backward ? "backward" : "forward", engine,
             1e3 * seconds, 1e-9 * (backward ? 5 : 2) * product / seconds);
done:
    return status;
}

static vt_status print_engines(const operands *o, int64_t rounds)
{
    vt_status status = VT_OK;
    const char *engine;
    for (int i = 0; (engine = o->backend->prefer_attention(o->backend, i)) != NULL; i++) {
        VT_TRY(print_line(o, engine, false, rounds));
        VT_TRY(print_line(o, engine, true, rounds));
    }
done:
    return status;
}

/* Draws what dropout keeps, which a step does once a layer. */
static vt_status draw(operands *o, int64_t rounds)
{
    vt_status status = VT_OK;
    double begin = 0;
    o->shape.dropout = (vt_dropout){.rate = 0.1f, .step = o->step};
    o->shape.drawn = o->drawn;
    for (int64_t i = 0; i <= rounds; i++) {
        o->backend->attention_draw(o->backend, &o->shape, o->drawn);
        if (i == 0 || i == rounds) VT_TRY(o->backend->check(o->backend));
        if (i == 0) begin = vt_clock_seconds();
    }
    vt_print("with dropout, whose drawing takes %.3f ms:\n", 1e3 * (vt_clock_seconds() - begin) / (double)rounds);
done:
    return status;
}

vt_status vt_attention_times_print(vt_backend *backend, const vt_attention_shape *shape, int64_t rounds)
{
    vt_status status = VT_OK;
    operands o = {.backend = backend, .shape = *shape};
    if (backend->prefer_attention == NULL) goto done;
    VT_TRY(open_operands(&o));
    vt_print("attention of %ld samples, %ld heads of %ld columns, %ld tokens, by engine:\n", shape->batch, shape->heads,
             shape->head_dim, shape->queries);
    VT_TRY(print_engines(&o, rounds));
    VT_TRY(draw(&o, rounds));
    VT_TRY(print_engines(&o, rounds));
done:
    if (backend->prefer_attention != NULL) backend->prefer_attention(backend, -1);
    vt_arena_close(&o.arena);
    return status;
}
