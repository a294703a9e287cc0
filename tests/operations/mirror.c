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
    vt_test_operation(name);
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
        free(b->host);
        free(now);
    }
}

/* Each operation: its operands are noted, copied, and brought back. */
#define ADD(operand) ADD_##operand
#define ADD_IN(matrix) add_matrix(&c, &matrix, false);
#define ADD_OUT(matrix) add_matrix(&c, &matrix, true);
#define ADD_IN_OUT(matrix) add_matrix(&c, &matrix, true);
#define ADD_IN_OUT_IF(matrix, condition) add_matrix(&c, &matrix, condition);
#define ADD_IN_ARRAY(type, array, count) add(&c, &array, (size_t)(count) * sizeof *array, false);
#define ADD_OUT_ARRAY(type, array, count) add(&c, &array, (size_t)(count) * sizeof *array, true);
#define ADD_IN_OUT_ARRAY ADD_OUT_ARRAY
#define ADD_MASK(mask)                                                                                                 \
    vt_mask own = *mask;                                                                                               \
    add(&c, &own.elements.step, sizeof *own.elements.step, false);                                                     \
    add(&c, &own.path.step, sizeof *own.path.step, false);                                                             \
    mask = &own;
#define ADD_ATTENTION(shape)                                                                                           \
    vt_attention_shape own = *shape;                                                                                   \
    add(&c, &own.dropout.step, sizeof *own.dropout.step, false);                                                       \
    add(&c, &own.drawn, (size_t)vt_attention_drawn_count(&own) * sizeof *own.drawn, false);                            \
    shape = &own;
#define ADD_VALUE(type, value)

#define OPERATION(name, work, ...)                                                                                     \
    static void mirror_##name(vt_backend *backend VT_PARAMETERS(__VA_ARGS__))                                          \
    {                                                                                                                  \
        call c = begin(backend, #name);                                                                                \
        VT_EACH(ADD, __VA_ARGS__)                                                                                      \
        upload(&c);                                                                                                    \
        c.inner->name(c.inner VT_ARGUMENTS(__VA_ARGS__));                                                              \
        download(&c);                                                                                                  \
    }
#include "backend/operations.def"

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
                            .draws_ahead = inner->draws_ahead,
                            .close = mirror_close,
                            .check = mirror_check,
                            .available_memory = mirror_available_memory,
                            .allocate = mirror_allocate,
                            .release = mirror_release,
                            .zero = mirror_zero,
                            .copy_from_host = mirror_copy,
                            .copy_to_host = mirror_copy};
#define OPERATION(name, work, ...)                                                                                     \
    if (inner->name != NULL) backend->name = mirror_##name;
#include "backend/operations.def"
    vt_backend_fill_immediate(backend);
    snprintf(backend->name, sizeof backend->name, "%.100s, mirrored", inner->name);
    *result = backend;
    return VT_OK;
}

/* ---- its own tests, over the plain loops ---- */

/* tests/tenant/operation links this file without paths.c. */
static vt_backend *open_plain(void)
{
    vt_backend *backend = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &backend));
    return backend;
}

/* Aliases, column views, NULL, unaligned addresses: what the mirror makes of them is what the inner back end does. */
TEST(the_mirror_changes_nothing)
{
    enum { ROWS = 5, COLUMNS = 7, STRIDE = 31 };
    SCOPED(vt_backend) *plain = open_plain(), *mirror = NULL;
    float memory[2][ROWS * STRIDE], log_sum[2][ROWS], weight[COLUMNS * COLUMNS], gradient[2][COLUMNS * COLUMNS] = {{0}};
    EXPECT_OK(open_mirror(open_plain(), &mirror));
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
        b->linear_forward(b, out, vt_matrix_make(weight, COLUMNS, COLUMNS), NULL, NULL, v);
        b->linear_backward_weight(b, q, v, gradient[i], NULL);
        EXPECT_OK(b->check(b));
    }
    EXPECT(memcmp(memory[0], memory[1], sizeof memory[0]) == 0);
    EXPECT(memcmp(log_sum[0], log_sum[1], sizeof log_sum[0]) == 0);
    EXPECT(memcmp(gradient[0], gradient[1], sizeof gradient[0]) == 0);
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
    SCOPED(vt_backend) *mirror = NULL;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    if (getenv("VITRAIN_TEST_EXACT") != NULL) return vt_test_skip("VITRAIN_TEST_EXACT: no guard bytes behind a block");
    vt_backend *inner = open_plain();
    inner->gelu_forward = write_astray;
    EXPECT_OK(open_mirror(inner, &mirror));
    for (int i = 0; i < 4; i++) {
        stray = places[i];
        mirror->gelu_forward(mirror, VT_GELU_ERF, vt_matrix_make(x, 1, 4), vt_matrix_make(y, 1, 4));
        EXPECT_ERROR(mirror->check(mirror), i < 3 ? "outside of its operands" : "may only read");
    }
    EXPECT(x[0] == 1, "what may only be read does not come back");
}
