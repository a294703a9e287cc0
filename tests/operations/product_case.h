/* The products of a linear layer on the same numbers of any type and in float32, for the CUDA back end's tests. */
#ifndef VT_TESTS_OPERATIONS_PRODUCT_CASE_H
#define VT_TESTS_OPERATIONS_PRODUCT_CASE_H

#include "operations/guarded.h"
#include "operations/halves.h"
#include "test.h"

typedef struct {
    int64_t rows, in, out;
    twins x, weight, dy, y, hidden, active, dx;
    guarded dweight[2], dbias[2]; /* of the wide ones, of the own; added to, twice and once */
} product_case;

static inline product_case product_case_open(vt_type type, int64_t rows, int64_t in, int64_t out, twins_place place)
{
    product_case c = {.rows = rows, .in = in, .out = out};
    c.x = twins_random(type, rows, in, 1, 1, place);
    c.weight = twins_random(type, out, in, 2, 1, place);
    c.dy = twins_random(type, rows, out, 3, 1, place);
    twins *const results[] = {&c.y, &c.hidden, &c.active};
    for (int i = 0; i < 3; i++) *results[i] = twins_open(type, rows, out, place);
    c.dx = twins_open(type, rows, in, place);
    for (int i = 0; i < 2; i++) {
        c.dweight[i] = guarded_random(1, out * in, 4, 1);
        c.dbias[i] = guarded_random(1, out, 5, 1);
    }
    return c;
}

/* rounded: the bias in the own ones' 16 bits, or NULL. */
static inline void product_case_run(vt_backend *b, product_case *c, const float *bias, const uint16_t *rounded,
                                    bool wide)
{
    const vt_matrix x = wide ? c->x.wide : c->x.own, weight = wide ? c->weight.wide : c->weight.own;
    const vt_matrix dy = wide ? c->dy.wide : c->dy.own;
    float *dweight = c->dweight[!wide].matrix.data, *dbias = c->dbias[!wide].matrix.data;
    b->linear_forward(b, x, weight, bias, rounded, wide ? c->y.wide : c->y.own);
    b->linear_gelu_forward(b, VT_GELU_ERF, x, weight, bias, rounded, wide ? c->hidden.wide : c->hidden.own,
                           wide ? c->active.wide : c->active.own);
    b->linear_backward_input(b, dy, weight, wide ? c->dx.wide : c->dx.own);
    b->linear_backward_weight(b, x, dy, dweight, dbias);
    b->linear_backward_weight(b, x, dy, dweight, NULL);
}

/* Sums may be rounded, as in against_plain.c, or truncated after every 8 products, as by tensor cores. */
static inline void product_case_compare(const product_case *c)
{
    const double rows = 2 * (double)c->rows, sums = (4 * sqrt(rows) + 4 + rows / 4) * 0x1p-24;
    twins_compare(&c->y, 3.2, "y"); /* roundings of the bias, of the result, and once more where they are added later */
    twins_compare(&c->hidden, 3.2, "hidden");
    twins_compare(&c->active, 4, "active");
    twins_compare(&c->dx, 1.2, "dx");
    guarded_compare(&c->dweight[1], &c->dweight[0], sums, "dweight");
    guarded_compare(&c->dbias[1], &c->dbias[0], sums, "dbias");
    const twins *const inputs[] = {&c->x, &c->weight, &c->dy};
    for (int i = 0; i < 3; i++) twins_compare(inputs[i], 0, "an input");
}

#endif
