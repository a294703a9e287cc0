#include "planning/step_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

typedef struct {
    vt_backend *backend;
    const vt_attention_shape *shape;
    vt_matrix qkv, dout, out, dqkv;
    float *log_sum;
} operands;

static vt_status take(vt_backend *backend, int64_t rows, int64_t columns, vt_matrix *matrix)
{
    vt_status status = VT_OK;
    const size_t bytes = (size_t)(rows * columns) * sizeof(uint16_t);
    void *memory = NULL;
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &memory));
    *matrix = (vt_matrix){.half = memory, .rows = rows, .columns = columns, .stride = columns, .type = VT_BFLOAT16};
    VT_TRY(vt_practice_fill(backend, memory, bytes));
done:
    return status;
}

static vt_status open_operands(operands *o)
{
    vt_status status = VT_OK;
    const vt_attention_shape *s = o->shape;
    const int64_t rows = s->batch * s->queries, width = s->heads * s->head_dim;
    void *memory = NULL;
    VT_TRY(take(o->backend, rows, 3 * width, &o->qkv));
    VT_TRY(take(o->backend, rows, 3 * width, &o->dqkv));
    VT_TRY(take(o->backend, rows, width, &o->out));
    VT_TRY(take(o->backend, rows, width, &o->dout));
    VT_TRY(o->backend->allocate(o->backend, VT_MEMORY_WORKSPACE, (size_t)(rows * s->heads) * sizeof(float), &memory));
    o->log_sum = memory;
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
        o->backend->attention_backward(o->backend, o->shape, q, k, v, o->out, o->log_sum, o->dout, third(&o->dqkv, 0),
                                       third(&o->dqkv, 1), third(&o->dqkv, 2));
    else
        o->backend->attention_forward(o->backend, o->shape, q, k, v, o->out, o->log_sum);
}

/* Two products of matrices in forward, five in backward. */
static vt_status print_line(const operands *o, const char *engine, bool backward, int64_t rounds)
{
    vt_status status = VT_OK;
    const vt_attention_shape *s = o->shape;
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

vt_status vt_attention_times_print(vt_backend *backend, const vt_attention_shape *shape, int64_t rounds)
{
    vt_status status = VT_OK;
    operands o = {.backend = backend, .shape = shape};
    const char *engine;
    if (backend->prefer_attention == NULL) goto done;
    VT_TRY(open_operands(&o));
    vt_print("attention of %lld samples, %lld heads of %lld columns, %lld tokens, by engine:\n",
             (long long)shape->batch, (long long)shape->heads, (long long)shape->head_dim, (long long)shape->queries);
    for (int i = 0; (engine = backend->prefer_attention(backend, i)) != NULL; i++) {
        VT_TRY(print_line(&o, engine, false, rounds));
        VT_TRY(print_line(&o, engine, true, rounds));
    }
done:
    if (backend->prefer_attention != NULL) backend->prefer_attention(backend, -1);
    void *const all[] = {o.qkv.data, o.dqkv.data, o.out.data, o.dout.data, o.log_sum};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) backend->release(backend, all[i]);
    return status;
}
