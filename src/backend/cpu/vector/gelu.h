/* GELU and its derivative, of a vector. */
#ifndef VT_BACKEND_CPU_VECTOR_GELU_H
#define VT_BACKEND_CPU_VECTOR_GELU_H

#include "backend/cpu/vector/vector.h"

typedef struct {
    vector value;
    vector slope;
} gelu_result;

/* Φ(x) = ½ erfc(-x/√2). With z = |x|/√2: erfc(z) = e^(-z²) erfcx(z), erfcx(z) = t P(t), t = 1 / (1 + 0.3 z); P is our
 * own minimax fit of degree 8 over 0 <= z <= 10, relative error 2e-8 (bench/fit_erfcx.py); p is half of it. The density
 * shares the e^(-x²/2). */
INLINE gelu_result gelu_erf(vector x)
{
    vector t = reciprocal(1.0f + splat(0.3f * 0.70710678f) * size_up_to(100.0f, x)), t2 = t * t, t4 = t2 * t2;
    vector p01 = splat(0.5f * 0.17071526f) * t + splat(0.5f * 0.16918801f);
    vector p23 = splat(0.5f * 0.21492825f) * t + splat(0.5f * 0.14833876f);
    vector p45 = splat(0.5f * 0.54773058f) * t + splat(0.5f * -0.09465702f);
    vector p67 = splat(0.5f * 0.48556870f) * t + splat(0.5f * -0.51228843f);
    vector p = t4 * (splat(0.5f * -0.12952413f) * t4 + (p67 * t2 + p45)) + (p23 * t2 + p01);
    vector bell = exp2_vector(splat(-0.5f * 1.44269504f) * x * x);
    vector tail = bell * (t * p);
    vector cumulative = choose(x > 0.0f, 1.0f - tail, tail);
    return (gelu_result){x * cumulative, cumulative + x * bell * splat(0.39894228f)};
}

/* ½ (1 + tanh u) = 1 / (1 + e^(-2u)), u = √(2/π) (x + 0.044715 x³). Its complement is written as e^(-2u) times itself,
 * since 1 - gate cancels. */
INLINE gelu_result gelu_tanh(vector x)
{
    vector square = x * x;
    vector twice = splat(2 * 0.79788456f) * x * (1.0f + splat(0.044715f) * square);
    vector bounded = largest(-largest(-twice, splat(-80.0f)), splat(-80.0f));
    vector decay = exp2_vector(splat(-1.44269504f) * bounded), gate = 1.0f / (1.0f + decay);
    vector slope = splat(2 * 0.79788456f) * (1.0f + splat(3 * 0.044715f) * square);
    return (gelu_result){x * gate, gate + x * (decay * gate * gate) * slope};
}

INLINE gelu_result gelu(vt_gelu kind, vector x)
{
    return kind == VT_GELU_ERF ? gelu_erf(x) : gelu_tanh(x);
}

#endif
