/* The products beside a GELU, forward and backward, on numbers of 16 bits and the same in float32. */
#ifndef VT_TESTS_OPERATIONS_GELU_CASE_H
#define VT_TESTS_OPERATIONS_GELU_CASE_H

#include "operations/guarded.h"
#include "operations/halves.h"
#include "test.h"

enum { GELU_CASE_MOST = 1536 }; /* columns */

typedef struct {
    vt_gelu kind;
    twins x, weight, hidden, active; /* forward */
    twins dy, dweight, dhidden;      /* dy [rows, 8 more], with the second layer's weight */
    float bias[GELU_CASE_MOST], sums[2][GELU_CASE_MOST];
    _Alignas(16) uint16_t rounded[GELU_CASE_MOST];
} gelu_case;

static inline void gelu_case_open(gelu_case *c, vt_type type, vt_gelu kind, int64_t rows, int64_t in, int64_t out,
                                  twins_place place)
{
    *c = (gelu_case){.kind = kind,
                     .x = twins_random(type, rows, in, 1, 1, place),
                     .weight = twins_random(type, out, in, 2, 1, place),
                     .hidden = twins_open(type, rows, out, place),
                     .active = twins_open(type, rows, out, place),
                     .dy = twins_random(type, rows, in + 8, 3, 1, place),
                     .dweight = twins_random(type, in + 8, out, 4, 1, place),
                     .dhidden = twins_open(type, rows, out, place)};
    for (int64_t i = 0; i < out; i++) {
        c->rounded[i] = vt_half_round(type, 0.01f * (float)(i % 50 - 20));
        c->bias[i] = vt_half_widen(type, c->rounded[i]);
        c->sums[0][i] = c->sums[1][i] = (float)(i % 50);
    }
}

static inline void gelu_case_run(vt_backend *b, gelu_case *c)
{
    b->linear_gelu_forward(b, c->kind, c->x.own, c->weight.own, c->bias, c->rounded, c->hidden.own, c->active.own);
    b->linear_gelu_backward(b, c->kind, c->dy.own, c->dweight.own, c->hidden.own, c->dhidden.own, c->sums[1]);
}

/* Beside the oracle in float32, whose backward begins with the hidden numbers that forward stored. */
static inline void gelu_case_compare(vt_backend *plain, gelu_case *c)
{
    const vt_matrix none = {0};
    vt_matrix hidden = c->hidden.wide, dhidden = c->dhidden.wide;
    plain->linear_gelu_forward(plain, c->kind, c->x.wide, c->weight.wide, c->bias, NULL, hidden, c->active.wide);
    twins_compare(&c->hidden, 1.2, "hidden");
    twins_compare(&c->active, 4, "active");
    plain->convert(plain, c->hidden.own, hidden);
    plain->linear_backward_input(plain, c->dy.wide, c->dweight.wide, dhidden);
    plain->gelu_backward(plain, c->kind, hidden, dhidden, dhidden, none);
    twins_compare(&c->dhidden, 1.2, "dhidden");
    plain->convert(plain, c->dhidden.own, dhidden);
    plain->position_backward(plain, dhidden, vt_matrix_make(c->sums[0], 1, dhidden.columns));
    double largest = 1; /* sums of `rows` terms, in another order: as in cuda_kernels.c */
    for (int64_t i = 0; i < dhidden.columns; i++) largest = fmax(largest, fabs((double)c->sums[0][i]));
    for (int64_t i = 0; i < dhidden.columns; i++)
        EXPECT_NEAR(c->sums[1][i], c->sums[0][i], 4 * sqrt((double)dhidden.rows) * 0x1p-24 * largest);
}

#endif
