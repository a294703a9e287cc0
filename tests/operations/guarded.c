#include "operations/guarded.h"

#include "base/random.h"
#include "operations/halves.h"
#include "test.h"

static const float guard = 12345.678f;
enum { AROUND = 37, GAP = 3 }; /* odd, so that rows begin at unaligned addresses */

guarded guarded_open(int64_t rows, int64_t columns)
{
    guarded g;
    int64_t stride = columns + GAP;
    g.size = 2 * AROUND + rows * stride;
    g.memory = vt_test_owned(malloc((size_t)g.size * sizeof *g.memory));
    for (int64_t i = 0; i < g.size; i++) g.memory[i] = guard;
    g.matrix = vt_matrix_make(g.memory + AROUND, rows, columns);
    g.matrix.stride = stride;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) g.matrix.data[r * stride + c] = NAN;
    return g;
}

void fill_random(float *values, int64_t count, uint64_t seed, float scale)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * (float)vt_random_normal_quantile(vt_random_element(seed, 1, (uint64_t)i));
}

guarded guarded_random(int64_t rows, int64_t columns, uint64_t seed, float scale)
{
    guarded g = guarded_open(rows, columns);
    for (int64_t r = 0; r < rows; r++)
        fill_random(g.matrix.data + r * g.matrix.stride, columns, seed * 1000003 + (uint64_t)r, scale);
    return g;
}

guarded guarded_copy(const guarded *other)
{
    guarded g = guarded_open(other->matrix.rows, other->matrix.columns);
    memcpy(g.memory, other->memory, (size_t)g.size * sizeof *g.memory);
    return g;
}

void guarded_check(const guarded *g, const char *name)
{
    for (int64_t i = 0; i < g->size; i++) {
        int64_t inside = i - AROUND, row = inside / g->matrix.stride, column = inside % g->matrix.stride;
        bool is_guard = inside < 0 || row >= g->matrix.rows || column >= g->matrix.columns;
        EXPECT(!is_guard || g->memory[i] == guard, "%s: wrote outside, at row %ld, column %ld", name, row, column);
    }
}

guarded_rounded guarded_rounded_open(vt_type type, int64_t count)
{
    guarded_rounded r = {.type = type, .count = count};
    if (!vt_type_is_half(type)) return r;
    r.memory = vt_test_owned(malloc((size_t)(count + 2 * AROUND) * sizeof *r.memory));
    memset(r.memory, 0x5a, (size_t)(count + 2 * AROUND) * sizeof *r.memory);
    r.at = r.memory + AROUND;
    return r;
}

void guarded_rounded_check(const guarded_rounded *r, const float *values, const char *name)
{
    for (int64_t i = -AROUND; i < r->count + AROUND && r->at != NULL; i++) {
        const bool inside = i >= 0 && i < r->count && values != NULL;
        const uint16_t expected = inside ? vt_half_round(r->type, values[i]) : 0x5a5a;
        EXPECT(r->at[i] == expected, "%s: rounded value %ld of %ld is %04x, expected %04x", name, i, r->count, r->at[i],
               expected);
    }
}

void guarded_compare(const guarded *actual, const guarded *expected, double tolerance, const char *name)
{
    double largest = 0, worst = 0;
    bool is_nan = false;
    for (int64_t r = 0; r < expected->matrix.rows; r++) {
        for (int64_t c = 0; c < expected->matrix.columns; c++) {
            double a = (double)actual->matrix.data[r * actual->matrix.stride + c];
            double e = (double)expected->matrix.data[r * expected->matrix.stride + c];
            if (isnan(a) || isnan(e)) is_nan = true;
            if (fabs(e) > largest) largest = fabs(e);
            if (fabs(a - e) > worst) worst = fabs(a - e);
        }
    }
    EXPECT(!is_nan, "%s: NaN, an element was not written", name);
    EXPECT(worst <= tolerance * largest, "%s: differs by %.3g of its largest element, allowed %.3g", name,
           worst / largest, tolerance);
    guarded_check(actual, name);
}

guarded guarded_part(vt_matrix whole, int64_t batch, part p)
{
    guarded block = guarded_open(batch * p.tokens, p.columns);
    for (int64_t r = 0; r < block.matrix.rows; r++) {
        int64_t row = r / p.tokens * (whole.rows / batch) + p.first_token + r % p.tokens;
        memcpy(block.matrix.data + r * block.matrix.stride, whole.data + row * whole.stride + p.first_column,
               (size_t)p.columns * sizeof(float));
    }
    return block;
}

void guarded_compare_part(const guarded *actual, const guarded *whole, int64_t batch, part p, double tolerance,
                          const char *name)
{
    guarded expected = guarded_part(whole->matrix, batch, p);
    guarded_compare(actual, &expected, tolerance, name);
}

void guarded_draw(vt_backend *b, vt_attention_shape *shape)
{
    if (!b->draws_ahead || shape->dropout.rate <= 0) return;
    const int64_t count = vt_attention_drawn_count(shape);
    const guarded room = guarded_open(1, (count + 1) / 2);
    shape->drawn = (uint16_t *)room.matrix.data;
    b->attention_draw(b, shape, (uint16_t *)room.matrix.data);
    guarded_check(&room, "attention_draw");
}

guarded_attention guarded_attention_open(const vt_attention_shape *shape, float scale)
{
    const int64_t width = shape->heads * shape->head_dim;
    const int64_t queries = shape->batch * shape->queries, keys = shape->batch * shape->keys;
    guarded_attention a = {.shape = *shape,
                           .q = guarded_random(queries, width, 1, scale),
                           .k = guarded_random(keys, width, 2, 1),
                           .v = guarded_random(keys, width, 3, 1),
                           .dout = guarded_random(queries, width, 4, 1)};
    guarded_attention_renew(&a);
    return a;
}

void guarded_attention_renew(guarded_attention *a)
{
    const int64_t queries = a->q.matrix.rows, keys = a->k.matrix.rows, width = a->q.matrix.columns;
    a->out = guarded_open(queries, width);
    a->log_sum = guarded_open(1, queries * a->shape.heads);
    a->dq = guarded_open(queries, width);
    a->dk = guarded_open(keys, width);
    a->dv = guarded_open(keys, width);
}

void guarded_attention_forward(vt_backend *b, guarded_attention *a)
{
    guarded_draw(b, &a->shape);
    b->attention_forward(b, &a->shape, a->q.matrix, a->k.matrix, a->v.matrix, a->out.matrix, a->log_sum.matrix.data);
}

void guarded_attention_backward(vt_backend *b, guarded_attention *a, const guarded_attention *from)
{
    b->attention_backward(b, &a->shape, a->q.matrix, a->k.matrix, a->v.matrix, from->out.matrix,
                          from->log_sum.matrix.data, a->dout.matrix, a->dq.matrix, a->dk.matrix, a->dv.matrix);
}

void guarded_attention_compare(const guarded_attention *actual, const guarded_attention *expected,
                               const double tolerance[5])
{
    static const char *const names[] = {"attention out", "attention log_sum", "attention dq", "attention dk",
                                        "attention dv"};
    const guarded *const of[] = {&actual->out, &actual->log_sum, &actual->dq, &actual->dk, &actual->dv};
    const guarded *const wanted[] = {&expected->out, &expected->log_sum, &expected->dq, &expected->dk, &expected->dv};
    for (int i = 0; i < 5; i++) {
        if (tolerance[i] >= 0)
            guarded_compare(of[i], wanted[i], tolerance[i], names[i]);
        else
            guarded_check(of[i], names[i]);
    }
}

/* ---- twins ---- */

enum { TWINS_GUARD = 0x5a, TWINS_AHEAD = 256 };

static double element(vt_matrix m, int64_t row, int64_t column)
{
    const int64_t at = row * m.stride + column;
    return m.type == VT_FLOAT32 ? (double)m.data[at] : (double)vt_half_widen(m.type, m.half[at]);
}

twins twins_open(vt_type type, int64_t rows, int64_t columns, twins_place place)
{
    const size_t size = vt_type_size(type);
    const int64_t stride = place == TWINS_TIGHT     ? columns
                           : place == TWINS_ALIGNED ? (columns + 15) / 8 * 8
                                                    : columns + 3;
    const size_t lead = TWINS_AHEAD + (place == TWINS_APART ? 7 * size : 0);
    twins t = {.bytes = (lead + (size_t)(rows * stride) * size + 2 * TWINS_AHEAD) / TWINS_AHEAD * TWINS_AHEAD};
    t.memory = vt_test_owned(aligned_alloc(TWINS_AHEAD, t.bytes));
    memset(t.memory, TWINS_GUARD, t.bytes);
    t.own = (vt_matrix){
        .data = (float *)(void *)(t.memory + lead), .rows = rows, .columns = columns, .stride = stride, .type = type};
    for (int64_t r = 0; r < rows; r++)
        memset(t.memory + lead + (size_t)(r * stride) * size, 0xff, (size_t)columns * size); /* NaN of every type */
    t.wide = vt_matrix_make(vt_test_owned(malloc((size_t)(rows * columns) * sizeof(float))), rows, columns);
    return t;
}

twins twins_random(vt_type type, int64_t rows, int64_t columns, uint64_t seed, float scale, twins_place place)
{
    twins t = twins_open(type, rows, columns, place);
    fill_random(t.wide.data, rows * columns, seed, scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            float *value = &t.wide.data[r * columns + c];
            if (type == VT_FLOAT32) {
                t.own.data[r * t.own.stride + c] = *value;
                continue;
            }
            t.own.half[r * t.own.stride + c] = vt_half_round(type, *value);
            *value = vt_half_widen(type, t.own.half[r * t.own.stride + c]);
        }
    return t;
}

static void check_guards(const twins *t, const char *name)
{
    const int64_t size = (int64_t)vt_type_size(t->own.type), first = (const unsigned char *)t->own.data - t->memory;
    for (int64_t i = 0; i < (int64_t)t->bytes; i++) {
        const int64_t row = (i - first) / size / t->own.stride, column = (i - first) / size % t->own.stride;
        const bool is_inside = i >= first && row < t->own.rows && column < t->own.columns;
        EXPECT(is_inside || t->memory[i] == TWINS_GUARD, "%s: wrote outside, at row %ld, column %ld", name, row,
               column);
    }
}

void twins_compare(const twins *t, double units, const char *name)
{
    const vt_type type = t->own.type;
    const double unit = type == VT_FLOAT32 ? 0x1p-20 : half_unit(type);
    double largest = 0, worst = 0;
    check_guards(t, name);
    for (int64_t r = 0; r < t->own.rows && units >= 0; r++)
        for (int64_t c = 0; c < t->own.columns; c++) {
            double expected = element(t->wide, r, c);
            largest = fmax(largest, fabs(expected));
            if (units <= 0 && type != VT_FLOAT32)
                expected = (double)vt_half_widen(type, vt_half_round(type, (float)expected));
            const double error = fabs(element(t->own, r, c) - expected);
            worst = error <= worst ? worst : error; /* a NaN counts as worst */
        }
    EXPECT(worst <= units * unit * largest || units < 0, "%s in %s: off by %g of %g", name, half_name(type), worst,
           largest);
}

twins_attention twins_attention_open(vt_type type, const vt_attention_shape *s, float scale, twins_place place)
{
    const int64_t width = s->heads * s->head_dim, queries = s->batch * s->queries, keys = s->batch * s->keys;
    return (twins_attention){.shape = *s,
                             .q = twins_random(type, queries, width, 1, scale, place),
                             .k = twins_random(type, keys, width, 2, 1, place),
                             .v = twins_random(type, keys, width, 3, 1, place),
                             .dout = twins_random(type, queries, width, 4, 1, place),
                             .out = twins_open(type, queries, width, place),
                             .dq = twins_open(type, queries, width, place),
                             .dk = twins_open(type, keys, width, place),
                             .dv = twins_open(type, keys, width, place),
                             .log_sum = {guarded_open(1, queries * s->heads), guarded_open(1, queries * s->heads)}};
}

static vt_matrix side(const twins *t, bool wide)
{
    return wide ? t->wide : t->own;
}

void twins_attention_forward(vt_backend *b, twins_attention *a, bool wide)
{
    guarded_draw(b, &a->shape);
    b->attention_forward(b, &a->shape, side(&a->q, wide), side(&a->k, wide), side(&a->v, wide), side(&a->out, wide),
                         a->log_sum[!wide].matrix.data);
}

void twins_attention_backward(vt_backend *b, twins_attention *a, bool wide, vt_matrix out, const guarded *log_sum)
{
    b->attention_backward(b, &a->shape, side(&a->q, wide), side(&a->k, wide), side(&a->v, wide), out,
                          log_sum->matrix.data, side(&a->dout, wide), side(&a->dq, wide), side(&a->dk, wide),
                          side(&a->dv, wide));
}

void twins_attention_compare(const twins_attention *a, bool backward, const char *name)
{
    const double of_scores = a->shape.keys > 1 ? 4 : -1; /* of one key these gradients are rounding noise */
    const twins *const compared[] = {&a->q, &a->k, &a->v, &a->dout, &a->out, &a->dq, &a->dk, &a->dv};
    const double units[] = {0, 0, 0, 0, 2, of_scores, of_scores, 4};
    for (int i = 0; i < (backward ? 8 : 5); i++) twins_compare(compared[i], units[i], name);
    for (int64_t i = 0; i < a->log_sum[0].matrix.columns; i++) {
        const float own = a->log_sum[1].matrix.data[i], expected = a->log_sum[0].matrix.data[i];
        EXPECT(isinf(expected) ? own == expected
                               : fabs((double)own - (double)expected) <= 1e-5 * (1 + fabs((double)expected)),
               "%s: log_sum %ld is %g, expected %g", name, i, (double)own, (double)expected);
    }
    guarded_check(&a->log_sum[1], name);
}
