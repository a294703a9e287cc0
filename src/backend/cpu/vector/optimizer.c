#include <math.h>

#include "backend/codes.h"
#include "backend/cpu/vector/vector.h"
#include "backend/half.h"

/* Sums are taken over a fixed number of runs, then over the runs in order: the same bits for any number of threads. */
void VT_VECTOR(sum_of_squares)(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    enum { RUNS = 256, SUMS = 32 }; /* so many sums that none waits for the one before */
    double partial[RUNS] = {0};
    int64_t length = (count + RUNS - 1) / RUNS;
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < RUNS; run++) {
        int64_t end = (run + 1) * length < count ? (run + 1) * length : count;
        int64_t i = run * length;
        double sum[SUMS] = {0};
        for (; i + SUMS <= end; i += SUMS)
#pragma GCC unroll 32
            for (int j = 0; j < SUMS; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
        for (; i < end; i++) sum[0] += (double)x[i] * (double)x[i];
        for (int j = 0; j < SUMS; j++) partial[run] += sum[j];
    }
    double total = 0;
    for (int run = 0; run < RUNS; run++) total += partial[run];
    *result += weight * total;
}

/* ---- Adam (Kingma, Ba 2015) and AdamW (Loshchilov, Hutter 2019) ---- */

/* Numbers that are the same for all elements. */
typedef struct {
    float scale, beta1, beta2, rest1, rest2, epsilon, step_size, root_correction, shrink, decay;
} adam_numbers;

static inline adam_numbers adam_numbers_of(const vt_update *update, const vt_step_state *state)
{
    const bool decoupled = update->kind == VT_OPTIMIZER_AdamW;
    return (adam_numbers){.scale = state->factor,
                          .beta1 = (float)update->beta1,
                          .beta2 = (float)update->beta2,
                          .rest1 = (float)(1 - update->beta1),
                          .rest2 = (float)(1 - update->beta2),
                          .epsilon = (float)update->epsilon,
                          .step_size = (float)(state->learning_rate / state->correction1),
                          .root_correction = (float)(1 / sqrt(state->correction2)),
                          .shrink = decoupled ? (float)(state->learning_rate * update->weight_decay) : 0.0f,
                          .decay = decoupled ? 0.0f : (float)update->weight_decay};
}

/* Updates the first `count` numbers, but LANES at most, and returns their new values. */
INLINE vector update_adam(const adam_numbers *n, vector gradient, float *values, float *moment1, float *moment2,
                          int64_t count)
{
    const vector value = load_up_to(values, count), slope = n->scale * gradient + n->decay * value;
    const vector m = n->beta1 * load_up_to(moment1, count) + n->rest1 * slope;
    const vector v = n->beta2 * load_up_to(moment2, count) + n->rest2 * slope * slope;
    store_up_to(moment1, m, count);
    store_up_to(moment2, v, count);
    const vector now =
        value - n->shrink * value - n->step_size * m / (square_root(v) * n->root_correction + n->epsilon);
    store_up_to(values, now, count);
    return now;
}

/* This and the next two update one piece, on one thread. The processor's own prefetching leaves a tenth of memory's
 * rate unused. */
static void update_adam_piece(const adam_numbers *numbers, const float *gradients, float *parameters, float *moment1,
                              float *moment2, int64_t count)
{
    const adam_numbers n = *numbers;
    for (int64_t i = 0; i < count; i += LANES) {
        __builtin_prefetch(parameters + i + 512, 0, 2);
        __builtin_prefetch(moment1 + i + 448, 0, 2);
        __builtin_prefetch(moment2 + i + 384, 0, 2);
        __builtin_prefetch(gradients + i + 320, 0, 2);
        update_adam(&n, load_up_to(gradients + i, count - i), parameters + i, moment1 + i, moment2 + i, count - i);
    }
}

static void update_sgd(const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
                       float *momentum, int64_t count)
{
    float scale = state->factor, rate = (float)state->learning_rate, decay = (float)update->weight_decay,
          keep = (float)update->beta1;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float velocity = keep * momentum[i] + scale * gradients[i] + decay * parameters[i];
        momentum[i] = velocity;
        parameters[i] -= rate * velocity;
    }
}

/* Without momentum, or with Nesterov's. */
static void update_sgd_otherwise(const vt_update *update, const vt_step_state *state, const float *gradients,
                                 float *parameters, float *momentum, int64_t count)
{
    const float scale = state->factor, rate = (float)state->learning_rate, decay = (float)update->weight_decay,
                keep = (float)update->beta1;
    const bool has_momentum = update->beta1 > 0;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float step = scale * gradients[i] + decay * parameters[i];
        if (has_momentum) {
            const float velocity = keep * momentum[i] + step;
            momentum[i] = velocity;
            step += keep * velocity;
        }
        parameters[i] -= rate * step;
    }
}

/* ---- moments in 8 bits ---- */

/* The root of x >= 0, to 2e-7: with AVX-512 by a Newton step after the processor's estimate, because this loop waits
 * for arithmetic more than for memory. */
INLINE vector root(vector x)
{
#if defined(__AVX512F__)
    const vector some = largest(x, splat(FLT_MIN)), near = (vector)_mm512_rsqrt14_ps((__m512)some);
    return x * (near * (1.5f - 0.5f * some * near * near));
#else
    return square_root(x);
#endif
}

INLINE float most_lane(vector x)
{
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

#if defined(__AVX512F__)
/* A map by the highest bit of a place, and by the exponent of a size: tables that fit into registers, read at the
 * lowest bits of a float32's exponent. */
typedef struct {
    float base[16], step[16];               /* of a place, which is a float32: value = step * place + base */
    float slope[16], offset[16], limit[16]; /* vt_code_lines behind a line of 0 */
    uint32_t line[32]; /* added to the bits of a size, 2^-23 … 1, gives its line (one of the 9) above bit 23 */
} code_tables;

enum { MANTISSA = 23, BIAS = 127, LEAST_EXPONENT = -23 };

/* `more` is added to a place so that the codes of each decade begin at a power of two. */
static code_tables code_tables_of(const vt_code_map *map, int more)
{
    const vt_code_lines *lines = &map->lines;
    code_tables t = {.slope = {0}};
    for (int exponent = 0; exponent <= 8; exponent++) {
        const int high = 1 << exponent, at = (BIAS + exponent) % 16;
        const int first = map->zero + high - more, last = first + high - 1;
        if (first >= VT_CODES) break;
        if (high > 1 && last < VT_CODES - 1)
            t.step[at] = (float)(((double)map->value[last] - (double)map->value[first]) / (high - 1));
        t.base[at] = (float)((double)map->value[first] - high * (double)t.step[at]);
    }
    for (int k = 0; k < VT_CODE_DECADES; k++) {
        t.slope[k + 1] = lines->slope[k];
        t.offset[k + 1] = lines->offset[k];
        t.limit[k + 1] = lines->limit[k];
    }
    for (int exponent = LEAST_EXPONENT, line = 0; exponent <= 0; exponent++) {
        const uint32_t own = (uint32_t)(exponent + BIAS);
        uint32_t edge = 0;
        while (line < VT_CODE_DECADES && (double)lines->edge[line] <= ldexp(1, exponent)) line++;
        t.line[own % 32] = ((uint32_t)line - own) << MANTISSA;
        if (line == VT_CODE_DECADES || (double)lines->edge[line] >= ldexp(2, exponent)) continue;
        memcpy(&edge, &lines->edge[line], sizeof edge); /* from here on the next line: a carry */
        t.line[own % 32] += (1u << MANTISSA) - (edge & ((1u << MANTISSA) - 1));
    }
    return t;
}

INLINE __m512 pick(const float *table, __m512i index)
{
    return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
}

INLINE __m512i load_codes(const uint8_t *codes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
}

/* The exponent's lowest bits are an index; what is above them is ignored. */
INLINE __m512i exponent_of(__m512 x)
{
    return _mm512_srli_epi32(_mm512_castps_si512(x), MANTISSA);
}

INLINE vector decode_signed(const code_tables *t, const uint8_t *codes)
{
    const __m512i code = _mm512_sub_epi32(load_codes(codes), _mm512_set1_epi32(127));
    const __m512 place = _mm512_cvtepi32_ps(code);
    const __m512i at = exponent_of(place), sign = _mm512_and_si512(code, _mm512_set1_epi32(INT32_MIN));
    const __m512 base = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(pick(t->base, at)), sign));
    return (vector)_mm512_maskz_fmadd_ps(_mm512_test_epi32_mask(code, code), place, pick(t->step, at), base);
}

INLINE vector decode_unsigned(const code_tables *t, const uint8_t *codes)
{
    const __m512 place = _mm512_cvtepi32_ps(_mm512_add_epi32(load_codes(codes), _mm512_set1_epi32(1)));
    const __m512i at = exponent_of(place);
    return (vector)_mm512_fmadd_ps(place, pick(t->step, at), pick(t->base, at));
}

/* vt_code_place */
INLINE __m512i place_of(const code_tables *t, __m512 size)
{
    const __m512 some = _mm512_max_ps(size, _mm512_set1_ps(0x1p-23f));
    const __m512i line =
        _mm512_permutex2var_epi32(_mm512_loadu_si512(t->line), exponent_of(some), _mm512_loadu_si512(t->line + 16));
    const __m512i own = _mm512_srli_epi32(_mm512_add_epi32(line, _mm512_castps_si512(some)), MANTISSA);
    const __m512 place = _mm512_fmadd_ps(pick(t->slope, own), size, pick(t->offset, own));
    return _mm512_cvttps_epi32(_mm512_min_ps(place, pick(t->limit, own)));
}

INLINE void store_codes(uint8_t *codes, __m512i values)
{
    _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(values));
}

/* vt_code_signed */
INLINE void encode_signed(const code_tables *t, vector ratio, uint8_t *codes)
{
    const __m512i zero = _mm512_set1_epi32(127), place = place_of(t, _mm512_abs_ps((__m512)ratio));
    const __mmask16 negative = _mm512_movepi32_mask((__m512i)ratio);
    const __m512i code = _mm512_mask_sub_epi32(_mm512_add_epi32(zero, place), negative, zero, place);
    store_codes(codes, _mm512_max_epi32(code, _mm512_setzero_si512()));
}

/* vt_code_unsigned */
INLINE void encode_unsigned(const code_tables *t, vector ratio, uint8_t *codes)
{
    const __m512i place = place_of(t, (__m512)ratio);
    const __mmask16 more = _mm512_cmp_ps_mask((__m512)ratio, _mm512_setzero_ps(), _CMP_GT_OQ);
    store_codes(codes, _mm512_mask_max_epi32(place, more, place, _mm512_set1_epi32(1)));
}
#else
typedef uint8_t vector_codes __attribute__((vector_size(LANES)));

typedef struct {
    const float *value;
    vt_code_lines lines;
} code_tables;

static code_tables code_tables_of(const vt_code_map *map, int more)
{
    return (code_tables){map->value, map->lines};
}

INLINE vector decode_signed(const code_tables *t, const uint8_t *codes)
{
    vector value;
    for (int i = 0; i < LANES; i++) value[i] = t->value[codes[i]];
    return value;
}

INLINE vector decode_unsigned(const code_tables *t, const uint8_t *codes)
{
    return decode_signed(t, codes);
}

/* vt_code_place */
INLINE vector_bits place_of(const code_tables *t, vector size)
{
    vector slope = {0}, offset = {0}, limit = {0};
#pragma GCC unroll 8
    for (int k = 0; k < VT_CODE_DECADES; k++) {
        const vector_bits above = size >= splat(t->lines.edge[k]);
        slope = choose(above, splat(t->lines.slope[k]), slope);
        offset = choose(above, splat(t->lines.offset[k]), offset);
        limit = choose(above, splat(t->lines.limit[k]), limit);
    }
    return __builtin_convertvector(-largest(-(slope * size + offset), -limit), vector_bits);
}

INLINE void store_codes(uint8_t *codes, vector_bits values)
{
    const vector_codes bytes = __builtin_convertvector(values, vector_codes);
    memcpy(codes, &bytes, sizeof bytes);
}

/* vt_code_signed; true is -1 in vectors. */
INLINE void encode_signed(const code_tables *t, vector ratio, uint8_t *codes)
{
    const vector_bits negative = ratio < splat(0), place = place_of(t, largest(ratio, -ratio));
    const vector_bits below = 127 - place - (place > 127);
    store_codes(codes, (below & negative) | ((127 + place) & ~negative));
}

/* vt_code_unsigned */
INLINE void encode_unsigned(const code_tables *t, vector ratio, uint8_t *codes)
{
    const vector_bits place = place_of(t, ratio);
    store_codes(codes, place - ((place < 1) & (ratio > splat(0))));
}
#endif

typedef struct {
    adam_numbers adam;
    code_tables first, second;
} code_numbers;

/* LANES neighbours' update; m, v are their new moments. */
INLINE void update_lanes(const code_numbers *c, const float *gradients, float *parameters, const uint8_t *moment1,
                         float scale1, const uint8_t *moment2, float scale2, vector *m, vector *v)
{
    const adam_numbers *n = &c->adam;
    const vector parameter = load(parameters), gradient = n->scale * load(gradients) + n->decay * parameter;
    *m = n->beta1 * (decode_signed(&c->first, moment1) * scale1) + n->rest1 * gradient;
    *v = n->beta2 * (decode_unsigned(&c->second, moment2) * scale2) + n->rest2 * gradient * gradient;
    store(parameters, parameter - n->shrink * parameter -
                          n->step_size * *m * reciprocal(root(*v) * n->root_correction + n->epsilon));
}

/* One block. m, v: scratch memory of whole vectors. */
static void update_block(const code_numbers *n, const float *gradients, float *parameters, uint8_t *moment1,
                         float *scale1, uint8_t *moment2, float *scale2, int64_t count, float *m, float *v)
{
    const int64_t whole = count / LANES * LANES;
    const size_t rest = (size_t)(count - whole);
    float end_gradients[LANES] = {0}, end_parameters[LANES] = {0}; /* what is beyond whole vectors, and zeros */
    uint8_t end1[LANES], end2[LANES] = {0};
    vector largest1 = {0}, least1 = {0}, largest2 = {0}, new1, new2; /* signs of the extremes matter, zeros don't */
    memset(end1, 127, sizeof end1);
    memcpy(end_gradients, gradients + whole, rest * sizeof(float));
    memcpy(end_parameters, parameters + whole, rest * sizeof(float));
    memcpy(end1, moment1 + whole, rest);
    memcpy(end2, moment2 + whole, rest);
    for (int64_t i = 0; i < count; i += LANES) {
        const bool end = i == whole;
        update_lanes(n, end ? end_gradients : gradients + i, end ? end_parameters : parameters + i,
                     end ? end1 : moment1 + i, *scale1, end ? end2 : moment2 + i, *scale2, &new1, &new2);
        store(m + i, new1);
        store(v + i, new2);
        largest1 = largest(largest1, new1);
        least1 = largest(least1, -new1);
        largest2 = largest(largest2, new2);
    }
    memcpy(parameters + whole, end_parameters, rest * sizeof(float));
    *scale1 = vt_code_scale(most_lane(largest1), -most_lane(least1));
    *scale2 = vt_code_scale(most_lane(largest2), 0);
    const float inverse1 = *scale1 == 0 ? 0 : 1 / *scale1, inverse2 = *scale2 == 0 ? 0 : 1 / *scale2;
    const code_tables first = n->first, second = n->second; /* which no store to codes can change */
    for (int64_t i = 0; i < count; i += LANES)
        encode_signed(&first, load(m + i) * inverse1, i == whole ? end1 : moment1 + i);
    for (int64_t i = 0; i < count; i += LANES)
        encode_unsigned(&second, load(v + i) * inverse2, i == whole ? end2 : moment2 + i);
    memcpy(moment1 + whole, end1, rest);
    memcpy(moment2 + whole, end2, rest);
}

void VT_VECTOR(update_in_codes)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                const float *gradients, float *parameters, uint16_t *rounded, uint8_t *moment1,
                                float *scale1, uint8_t *moment2, float *scale2, int64_t count)
{
    const int64_t blocks = vt_update_blocks(update, count), most = update->block;
    if (isnan(state->factor) || !vt_cpu_scratch_reserve(backend, 2 * (size_t)most * sizeof(float))) return;
    const code_numbers numbers = {adam_numbers_of(update, state), code_tables_of(vt_code_map_signed(), 0),
                                  code_tables_of(vt_code_map_unsigned(), 1)};
#pragma omp parallel
    {
        float *m = vt_cpu_scratch(backend), *v = m + most;
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t at = b * most, some = smaller(most, count - at);
            update_block(&numbers, gradients + at, parameters + at, moment1 + at, &scale1[b], moment2 + at, &scale2[b],
                         some, m, v);
            if (rounded != NULL) vt_half_round_row(update->rounded, parameters + at, some, rounded + at);
        }
    }
}

void VT_VECTOR(update)(vt_backend *backend, const vt_update *update, const vt_step_state *state, const float *gradients,
                       float *parameters, uint16_t *rounded, float *moment1, float *moment2, int64_t count)
{
    enum { PIECE = 2048 }; /* values, which are rounded while they are still in the first-level cache */
    if (isnan(state->factor)) return;
    const adam_numbers numbers = adam_numbers_of(update, state);
    const bool is_sgd = update->kind == VT_OPTIMIZER_SGD;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t some = smaller(PIECE, count - at);
        if (is_sgd && update->beta1 == 0)
            update_sgd_otherwise(update, state, gradients + at, parameters + at, NULL, some);
        else if (is_sgd && update->nesterov)
            update_sgd_otherwise(update, state, gradients + at, parameters + at, moment1 + at, some);
        else if (is_sgd)
            update_sgd(update, state, gradients + at, parameters + at, moment1 + at, some);
        else
            update_adam_piece(&numbers, gradients + at, parameters + at, moment1 + at, moment2 + at, some);
        if (rounded != NULL) vt_half_round_row(update->rounded, parameters + at, some, rounded + at);
    }
}
