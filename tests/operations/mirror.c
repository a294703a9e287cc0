#include "operations/mirror.h"

#include "test.h"

enum { MOST_OPERANDS = 16, BOUNDARY = 256, GUARD = 0xa5 };

typedef struct {
    vt_backend *inner;
    bool exact; /* nothing behind a block */
    bool damaged;
} mirror_state;

/* Bytes of the host that operands of one call cover together. */
typedef struct {
    uintptr_t begin, end;
    bool written; /* by the operation */
    size_t lead;  /* guard bytes before it */
    char *copy;   /* in the inner back end's memory, at the first guard byte */
    char *host;   /* guards and bytes as they were before */
    size_t size;  /* of both */
} block;

typedef struct {
    const void *address; /* of the pointer that is to be exchanged */
    uintptr_t begin, end;
    bool written;
} operand;

typedef struct {
    mirror_state *state;
    vt_backend *inner;
    const char *name;
    int operand_count, block_count;
    operand operands[MOST_OPERANDS];
    block blocks[MOST_OPERANDS];
} call;

static call begin(vt_backend *backend, const char *name)
{
    mirror_state *state = backend->state;
    return (call){.state = state, .inner = state->inner, .name = name};
}

/* The pointer at `address`, to `bytes` bytes. */
static void add(call *c, const void *address, size_t bytes, bool written)
{
    uintptr_t start;
    memcpy(&start, address, sizeof start);
    if (start == 0 || bytes == 0) return;
    VT_ASSERT(c->operand_count < MOST_OPERANDS);
    c->operands[c->operand_count++] = (operand){address, start, start + bytes, written};
}

static void add_matrix(call *c, vt_matrix *m, bool written)
{
    if (m->data == NULL || m->rows == 0) return;
    add(c, &m->data, (size_t)((m->rows - 1) * m->stride + m->columns) * vt_type_size(m->type), written);
}

#define IN(matrix) add_matrix(&c, &(matrix), false)
#define OUT(matrix) add_matrix(&c, &(matrix), true)
#define IN_ARRAY(pointer, count) add(&c, &(pointer), (size_t)(count) * sizeof *(pointer), false)
#define OUT_ARRAY(pointer, count) add(&c, &(pointer), (size_t)(count) * sizeof *(pointer), true)

/* Operands that touch lie in one block. */
static void join_operands(call *c)
{
    for (int i = 0; i < c->operand_count; i++) {
        operand o = c->operands[i];
        block joined = {.begin = o.begin, .end = o.end, .written = o.written};
        int kept = 0;
        for (int j = 0; j < c->block_count; j++) {
            block *b = &c->blocks[j];
            if (b->begin < joined.end && joined.begin < b->end) {
                if (b->begin < joined.begin) joined.begin = b->begin;
                if (b->end > joined.end) joined.end = b->end;
                joined.written = joined.written || b->written;
            } else {
                c->blocks[kept++] = *b;
            }
        }
        c->blocks[kept] = joined;
        c->block_count = kept + 1;
    }
}

static void upload(call *c)
{
    vt_backend *inner = c->inner;
    join_operands(c);
    for (int i = 0; i < c->block_count; i++) {
        block *b = &c->blocks[i];
        size_t bytes = b->end - b->begin;
        void *memory = NULL;
        b->lead = BOUNDARY + b->begin % BOUNDARY;
        b->size = b->lead + bytes + (c->state->exact ? 0 : BOUNDARY);
        b->host = malloc(b->size);
        VT_ASSERT(b->host != NULL);
        memset(b->host, GUARD, b->size);
        memcpy(b->host + b->lead, (const void *)b->begin, bytes);
        EXPECT_OK(inner->allocate(inner, VT_MEMORY_WORKSPACE, b->size, &memory));
        VT_ASSERT(memory != NULL);
        b->copy = memory;
        inner->copy_from_host(inner, b->copy, b->host, b->size);
    }
    for (int i = 0; i < c->operand_count; i++) {
        for (int j = 0; j < c->block_count; j++) {
            const block *b = &c->blocks[j];
            const operand *o = &c->operands[i];
            if (o->begin < b->begin || o->end > b->end) continue;
            char *moved = b->copy + b->lead + (o->begin - b->begin);
            memcpy((void *)(uintptr_t)o->address, &moved, sizeof moved);
        }
    }
}

static void damage(call *c, const block *b, ptrdiff_t offset, bool inside)
{
    if (!c->state->damaged)
        vt_error_note(__FILE__, __LINE__, "%s wrote %s, %td bytes from an operand of %zu bytes", c->name,
                      inside ? "into an operand that it may only read" : "outside of its operands",
                      offset - (ptrdiff_t)b->lead, (size_t)(b->end - b->begin));
    c->state->damaged = true;
}

static void download(call *c)
{
    vt_backend *inner = c->inner;
    for (int i = 0; i < c->block_count; i++) {
        block *b = &c->blocks[i];
        size_t bytes = b->end - b->begin;
        char *now = malloc(b->size);
        VT_ASSERT(now != NULL);
        inner->copy_to_host(inner, now, b->copy, b->size);
        for (size_t j = 0; j < b->size; j++) {
            bool inside = j >= b->lead && j < b->lead + bytes;
            if (now[j] == b->host[j] || (inside && b->written)) continue;
            damage(c, b, (ptrdiff_t)j, inside);
            break;
        }
        if (b->written) memcpy((void *)b->begin, now + b->lead, bytes);
        inner->release(inner, b->copy);
        free(now);
        free(b->host);
    }
}

/* The operation itself, between the two ways. */
#define RUN(operation)                                                                                                 \
    do {                                                                                                               \
        upload(&c);                                                                                                    \
        c.inner->operation;                                                                                            \
        download(&c);                                                                                                  \
    } while (0)

static void mirror_convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    call c = begin(backend, "convert");
    IN(from), OUT(to);
    RUN(convert(c.inner, from, to));
}

static void mirror_linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    call c = begin(backend, "linear_forward");
    IN(x), IN(weight), IN_ARRAY(bias, y.columns), OUT(y);
    RUN(linear_forward(c.inner, x, weight, bias, y));
}

static void mirror_linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    call c = begin(backend, "linear_backward_input");
    IN(dy), IN(weight), OUT(dx);
    RUN(linear_backward_input(c.inner, dy, weight, dx));
}

static void mirror_linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    call c = begin(backend, "linear_backward_weight");
    IN(x), IN(dy), OUT_ARRAY(dweight, dy.columns * x.columns), OUT_ARRAY(dbias, dy.columns);
    RUN(linear_backward_weight(c.inner, x, dy, dweight, dbias));
}

static void mirror_layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias,
                                      float epsilon, vt_matrix y, float *mean, float *rstd)
{
    call c = begin(backend, "layer_norm_forward");
    IN(x), IN_ARRAY(weight, x.columns), IN_ARRAY(bias, x.columns);
    OUT(y), OUT_ARRAY(mean, x.rows), OUT_ARRAY(rstd, x.rows);
    RUN(layer_norm_forward(c.inner, x, weight, bias, epsilon, y, mean, rstd));
}

static void mirror_layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                       const float *rstd, vt_matrix dy, vt_matrix dx, float *dweight, float *dbias)
{
    call c = begin(backend, "layer_norm_backward");
    IN(x), IN_ARRAY(weight, x.columns), IN_ARRAY(mean, x.rows), IN_ARRAY(rstd, x.rows), IN(dy);
    OUT(dx), OUT_ARRAY(dweight, x.columns), OUT_ARRAY(dbias, x.columns);
    RUN(layer_norm_backward(c.inner, x, weight, mean, rstd, dy, dx, dweight, dbias));
}

static void mirror_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    call c = begin(backend, "gelu_forward");
    IN(x), OUT(y);
    RUN(gelu_forward(c.inner, kind, x, y));
}

static void mirror_gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx,
                                 vt_matrix y)
{
    call c = begin(backend, "gelu_backward");
    IN(x), IN(dy), OUT(dx), OUT(y);
    RUN(gelu_backward(c.inner, kind, x, dy, dx, y));
}

static void mirror_gelu_backward_bias(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx,
                                      vt_matrix y, float *dbias)
{
    call c = begin(backend, "gelu_backward_bias");
    IN(x), IN(dy), OUT(dx), OUT(y), OUT_ARRAY(dbias, x.columns);
    RUN(gelu_backward_bias(c.inner, kind, x, dy, dx, y, dbias));
}

static void mirror_attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                     vt_matrix v, vt_matrix out, float *log_sum)
{
    call c = begin(backend, "attention_forward");
    vt_attention_shape own = *shape;
    IN_ARRAY(own.dropout.step, 1);
    IN(q), IN(k), IN(v), OUT(out), OUT_ARRAY(log_sum, shape->batch * shape->heads * shape->queries);
    RUN(attention_forward(c.inner, &own, q, k, v, out, log_sum));
}

static void mirror_attention_merge(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                                   const float *part_log_sum, vt_matrix out, float *log_sum)
{
    call c = begin(backend, "attention_merge");
    int64_t rows = shape->batch * shape->heads * shape->queries;
    IN(part), IN_ARRAY(part_log_sum, rows), OUT(out), OUT_ARRAY(log_sum, rows);
    RUN(attention_merge(c.inner, shape, part, part_log_sum, out, log_sum));
}

static void mirror_attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                      vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                      vt_matrix dk, vt_matrix dv)
{
    call c = begin(backend, "attention_backward");
    vt_attention_shape own = *shape;
    IN_ARRAY(own.dropout.step, 1);
    IN(q), IN(k), IN(v), IN(out), IN_ARRAY(log_sum, shape->batch * shape->heads * shape->queries), IN(dout);
    OUT(dq), OUT(dk), OUT(dv);
    RUN(attention_backward(c.inner, &own, q, k, v, out, log_sum, dout, dq, dk, dv));
}

/* An active mask also overwrites the branch. */
static void mirror_residual_add(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    call c = begin(backend, "residual_add");
    vt_mask own = *mask;
    IN_ARRAY(own.elements.step, 1), IN_ARRAY(own.path.step, 1);
    IN(x), add_matrix(&c, &branch, vt_mask_is_active(mask)), OUT(y);
    RUN(residual_add(c.inner, x, branch, &own, y));
}

static void mirror_mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    call c = begin(backend, "mask_multiply");
    vt_mask own = *mask;
    IN_ARRAY(own.elements.step, 1), IN_ARRAY(own.path.step, 1);
    IN(x), OUT(y);
    RUN(mask_multiply(c.inner, x, &own, y));
}

static void mirror_position_add(vt_backend *backend, vt_matrix x, vt_matrix position)
{
    call c = begin(backend, "position_add");
    OUT(x), IN(position);
    RUN(position_add(c.inner, x, position));
}

static void mirror_position_backward(vt_backend *backend, vt_matrix dx, vt_matrix dposition)
{
    call c = begin(backend, "position_backward");
    IN(dx), OUT(dposition);
    RUN(position_backward(c.inner, dx, dposition));
}

static void mirror_linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight,
                                       const float *bias, vt_matrix hidden, vt_matrix active)
{
    call c = begin(backend, "linear_gelu_forward");
    IN(x), IN(weight), IN_ARRAY(bias, hidden.columns), OUT(hidden), OUT(active);
    RUN(linear_gelu_forward(c.inner, kind, x, weight, bias, hidden, active));
}

static void mirror_residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                       const float *weight, const float *bias, float epsilon, vt_matrix y,
                                       vt_matrix normed, float *mean, float *rstd)
{
    call c = begin(backend, "residual_layer_norm");
    vt_mask own = *mask;
    IN_ARRAY(own.elements.step, 1), IN_ARRAY(own.path.step, 1);
    IN(x), add_matrix(&c, &branch, vt_mask_is_active(mask)), IN_ARRAY(weight, x.columns), IN_ARRAY(bias, x.columns);
    OUT(y), OUT(normed), OUT_ARRAY(mean, x.rows), OUT_ARRAY(rstd, x.rows);
    RUN(residual_layer_norm(c.inner, x, branch, &own, weight, bias, epsilon, y, normed, mean, rstd));
}

static int64_t field_elements(const vt_patch_grid *grid)
{
    return grid->batch * grid->field_channels * grid->height * grid->width;
}

static void mirror_patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                                const float *inverse_std, vt_matrix patches)
{
    call c = begin(backend, "patches_load");
    IN_ARRAY(fields, field_elements(grid)), IN_ARRAY(mean, grid->channels), IN_ARRAY(inverse_std, grid->channels);
    OUT(patches);
    RUN(patches_load(c.inner, grid, fields, mean, inverse_std, patches));
}

static void mirror_patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                                 const float *inverse_std, float *fields)
{
    call c = begin(backend, "patches_store");
    IN(patches), IN_ARRAY(mean, grid->channels), IN_ARRAY(inverse_std, grid->channels);
    OUT_ARRAY(fields, field_elements(grid));
    RUN(patches_store(c.inner, grid, patches, mean, inverse_std, fields));
}

static void mirror_squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 double *squares)
{
    call c = begin(backend, "squared_norms");
    IN(prediction), IN(target), OUT_ARRAY(squares, 2 * batch);
    RUN(squared_norms(c.inner, batch, prediction, target, squares));
}

static void mirror_relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses, double *sum)
{
    call c = begin(backend, "relative_l2");
    IN_ARRAY(squares, 2 * batch), OUT_ARRAY(losses, batch), OUT_ARRAY(sum, 1);
    RUN(relative_l2(c.inner, batch, squares, losses, sum));
}

static void mirror_relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                        const double *squares, float scale, const double *loss_scale,
                                        vt_matrix dprediction)
{
    call c = begin(backend, "relative_l2_backward");
    IN(prediction), IN(target), IN_ARRAY(squares, 2 * batch), IN_ARRAY(loss_scale, 1), OUT(dprediction);
    RUN(relative_l2_backward(c.inner, batch, prediction, target, squares, scale, loss_scale, dprediction));
}

static void mirror_channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction,
                                   vt_matrix target, const float *latitude_weights, double *squares)
{
    call c = begin(backend, "channel_squares");
    IN(prediction), IN(target), IN_ARRAY(latitude_weights, grid->height);
    OUT_ARRAY(squares, 2 * grid->batch * grid->channels);
    RUN(channel_squares(c.inner, grid, prediction, target, latitude_weights, squares));
}

static void mirror_sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    call c = begin(backend, "sum_of_squares");
    IN_ARRAY(x, count), OUT_ARRAY(result, 1);
    RUN(sum_of_squares(c.inner, x, count, weight, result));
}

static void mirror_first_nonfinite(vt_backend *backend, const float *x, const int64_t *ranges, int64_t count,
                                   const double *figure, int32_t *first)
{
    call c = begin(backend, "first_nonfinite");
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++)
        if (ranges[2 * i] + ranges[2 * i + 1] > end) end = ranges[2 * i] + ranges[2 * i + 1];
    IN_ARRAY(x, end), IN_ARRAY(ranges, 2 * count), IN_ARRAY(figure, 1), OUT_ARRAY(first, 1);
    RUN(first_nonfinite(c.inner, x, ranges, count, figure, first));
}

static void mirror_step_decide(vt_backend *backend, const vt_update *update, vt_step_state *state)
{
    call c = begin(backend, "step_decide");
    OUT_ARRAY(state, 1);
    RUN(step_decide(c.inner, update, state));
}

static void mirror_update(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                          const float *gradients, float *parameters, float *moment1, float *moment2, int64_t count)
{
    call c = begin(backend, "update");
    IN_ARRAY(state, 1), IN_ARRAY(gradients, count);
    OUT_ARRAY(parameters, count), OUT_ARRAY(moment1, count), OUT_ARRAY(moment2, count);
    RUN(update(c.inner, update, state, gradients, parameters, moment1, moment2, count));
}

/* ---- what is no operation: the host's memory serves ---- */

static vt_backend *inner_of(vt_backend *backend)
{
    return ((mirror_state *)backend->state)->inner;
}

vt_backend *mirror_inner(vt_backend *backend)
{
    return inner_of(backend);
}

static void mirror_close(vt_backend *backend)
{
    mirror_state *state = backend->state;
    vt_backend_close(&state->inner);
    free(state);
}

static vt_status mirror_check(vt_backend *backend)
{
    mirror_state *state = backend->state;
    vt_status status = state->inner->check(state->inner);
    if (state->damaged) status = VT_ERROR;
    state->damaged = false;
    return status;
}

static double mirror_available_memory(vt_backend *backend)
{
    return inner_of(backend)->available_memory(inner_of(backend));
}

static vt_status mirror_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    (void)backend, (void)category;
    bytes = (bytes + BOUNDARY) / BOUNDARY * BOUNDARY;
    *memory = aligned_alloc(BOUNDARY, bytes);
    VT_ASSERT(*memory != NULL);
    memset(*memory, 0, bytes);
    return VT_OK;
}

static void mirror_release(vt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static void mirror_zero(vt_backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    memset(memory, 0, bytes);
}

static void mirror_copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    (void)backend;
    memcpy(to, from, bytes);
}

vt_status open_mirror(vt_backend *inner, vt_backend **result)
{
    vt_backend *backend = malloc(sizeof *backend);
    mirror_state *state = malloc(sizeof *state);
    VT_ASSERT(backend != NULL && state != NULL && inner != NULL);
    *state = (mirror_state){.inner = inner, .exact = getenv("VITRAIN_TEST_EXACT") != NULL};
    *backend = (vt_backend){.state = state,
                            .shares_host_memory = true,
                            .close = mirror_close,
                            .check = mirror_check,
                            .available_memory = mirror_available_memory,
                            .allocate = mirror_allocate,
                            .release = mirror_release,
                            .zero = mirror_zero,
                            .copy_from_host = mirror_copy,
                            .copy_to_host = mirror_copy,
                            .convert = mirror_convert,
                            .linear_forward = mirror_linear_forward,
                            .linear_backward_input = mirror_linear_backward_input,
                            .linear_backward_weight = mirror_linear_backward_weight,
                            .layer_norm_forward = mirror_layer_norm_forward,
                            .layer_norm_backward = mirror_layer_norm_backward,
                            .gelu_forward = mirror_gelu_forward,
                            .gelu_backward = mirror_gelu_backward,
                            .gelu_backward_bias = mirror_gelu_backward_bias,
                            .attention_forward = mirror_attention_forward,
                            .attention_merge = mirror_attention_merge,
                            .attention_backward = mirror_attention_backward,
                            .residual_add = mirror_residual_add,
                            .mask_multiply = mirror_mask_multiply,
                            .position_add = mirror_position_add,
                            .position_backward = mirror_position_backward,
                            .linear_gelu_forward = mirror_linear_gelu_forward,
                            .residual_layer_norm = mirror_residual_layer_norm,
                            .patches_load = mirror_patches_load,
                            .patches_store = mirror_patches_store,
                            .squared_norms = mirror_squared_norms,
                            .relative_l2 = mirror_relative_l2,
                            .relative_l2_backward = mirror_relative_l2_backward,
                            .channel_squares = mirror_channel_squares,
                            .sum_of_squares = mirror_sum_of_squares,
                            .first_nonfinite = mirror_first_nonfinite,
                            .step_decide = mirror_step_decide,
                            .update = mirror_update};
    vt_backend_fill_immediate(backend);
    snprintf(backend->name, sizeof backend->name, "%.100s, mirrored", inner->name);
    *result = backend;
    return VT_OK;
}

/* ---- its own tests, over the plain loops ---- */

/* Every row of the table from the first to the last operation is there: one that is new and not mirrored is NULL. */
TEST(the_mirror_has_every_operation)
{
    vt_backend *plain = NULL, *mirror = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &plain));
    EXPECT_OK(open_mirror(plain, &mirror));
    const size_t first = offsetof(vt_backend, close), count = (sizeof *mirror - first) / sizeof(void *);
    for (size_t i = 0; i < count; i++) {
        void *row, *own;
        memcpy(&row, (const char *)mirror + first + i * sizeof row, sizeof row);
        memcpy(&own, (const char *)plain + first + i * sizeof own, sizeof own); /* NULL: recording, on the CPU */
        EXPECT(row != NULL || own == NULL, "row %zu of the table is not mirrored", i);
    }
    vt_backend_close(&mirror);
}

/* Aliases, column views, NULL, unaligned addresses: what the mirror makes of them is what the inner back end does. */
TEST(the_mirror_changes_nothing)
{
    enum { ROWS = 5, COLUMNS = 7, STRIDE = 31 };
    vt_backend *plain = NULL, *inner = NULL, *mirror = NULL;
    float memory[2][ROWS * STRIDE], log_sum[2][ROWS], weight[COLUMNS * COLUMNS], gradient[2][COLUMNS * COLUMNS] = {{0}};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &plain));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &inner));
    EXPECT_OK(open_mirror(inner, &mirror));
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weight[i] = 0.1f * (float)(i % 11) - 0.4f;
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? plain : mirror;
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = COLUMNS, .queries = ROWS, .keys = ROWS};
        for (int j = 0; j < ROWS * STRIDE; j++) memory[i][j] = 0.3f * (float)(j * 7 % 23) - 3;
        vt_matrix whole = {.data = memory[i] + 1, .rows = ROWS, .columns = STRIDE - 1, .stride = STRIDE};
        vt_matrix q = vt_matrix_columns(whole, 0, COLUMNS), k = vt_matrix_columns(whole, COLUMNS, COLUMNS);
        vt_matrix v = vt_matrix_columns(whole, 2 * COLUMNS, COLUMNS);
        vt_matrix out = vt_matrix_columns(whole, 3 * COLUMNS, COLUMNS);
        b->gelu_forward(b, VT_GELU_ERF, q, q);
        b->attention_forward(b, &shape, q, k, v, out, log_sum[i]);
        b->linear_forward(b, out, vt_matrix_make(weight, COLUMNS, COLUMNS), NULL, v);
        b->linear_backward_weight(b, q, v, gradient[i], NULL);
        EXPECT_OK(b->check(b));
    }
    EXPECT(memcmp(memory[0], memory[1], sizeof memory[0]) == 0);
    EXPECT(memcmp(log_sum[0], log_sum[1], sizeof log_sum[0]) == 0);
    EXPECT(memcmp(gradient[0], gradient[1], sizeof gradient[0]) == 0);
    vt_backend_close(&plain);
    vt_backend_close(&mirror);
}

static int64_t stray; /* bytes from the operand's beginning */

static void write_astray(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    (void)backend, (void)kind;
    ((char *)(stray < 0 || stray >= 16 ? y.data : x.data))[stray] ^= 1;
}

TEST(the_mirror_sees_what_goes_astray)
{
    static const int64_t places[] = {-1, 16, 30, 3};
    vt_backend *inner = NULL, *mirror = NULL;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    if (getenv("VITRAIN_TEST_EXACT") != NULL) {
        vt_test_skip("VITRAIN_TEST_EXACT: no guard bytes behind a block");
        return;
    }
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &inner));
    inner->gelu_forward = write_astray;
    EXPECT_OK(open_mirror(inner, &mirror));
    for (int i = 0; i < 4; i++) {
        stray = places[i];
        mirror->gelu_forward(mirror, VT_GELU_ERF, vt_matrix_make(x, 1, 4), vt_matrix_make(y, 1, 4));
        EXPECT_ERROR(mirror->check(mirror), i < 3 ? "outside of its operands" : "may only read");
    }
    EXPECT(x[0] == 1, "what may only be read does not come back");
    vt_backend_close(&mirror);
}
