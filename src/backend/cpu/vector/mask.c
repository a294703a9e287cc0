/* Dropout, a vector of random blocks at a time: each block has the numbers of four neighbouring elements. */
#include "backend/cpu/vector/elements.h"
#include "backend/dropout.h"

#if defined(__SSE2__)

/* The upper halves of the products of all lanes; *low gets the lower ones. */
INLINE vector_word multiply_words(vector_word words, uint32_t factor, vector_word *low)
{
    typedef uint64_t pairs __attribute__((vector_size(LANES * 4)));
    const pairs all = (pairs)words, other = all >> 32, factors = (pairs){0} + factor;
#if defined(__AVX512F__)
    const pairs even = (pairs)_mm512_mul_epu32((__m512i)all, (__m512i)factors);
    const pairs odd = (pairs)_mm512_mul_epu32((__m512i)other, (__m512i)factors);
#elif defined(__AVX2__)
    const pairs even = (pairs)_mm256_mul_epu32((__m256i)all, (__m256i)factors);
    const pairs odd = (pairs)_mm256_mul_epu32((__m256i)other, (__m256i)factors);
#else
    const pairs even = (pairs)_mm_mul_epu32((__m128i)all, (__m128i)factors);
    const pairs odd = (pairs)_mm_mul_epu32((__m128i)other, (__m128i)factors);
#endif
    *low = (vector_word)((even & 0xffffffffu) | odd << 32);
    return (vector_word)(even >> 32 | (odd & ~(uint64_t)0xffffffffu));
}

/* vt_dropout_block of the quads first, first + 1, …; block[i]: word i of each. */
INLINE void random_blocks(const vt_dropout *dropout, uint32_t sample, uint32_t row, uint32_t first,
                          vector_word block[4])
{
    uint32_t key0 = (uint32_t)dropout->seed ^ (dropout->layer * 0x9E3779B9u);
    uint32_t key1 = (uint32_t)(dropout->seed >> 32) ^ (dropout->site * 0x85EBCA6Bu + 1);
    vector_word c0 = {0}, c1 = c0 + row, c2 = c0 + sample, c3 = c0 + *dropout->step;
    for (uint32_t i = 0; i < LANES; i++) c0[i] = first + i;
    for (int round = 0; round < 10; round++) {
        vector_word low0, low1;
        const vector_word high0 = multiply_words(c0, 0xD2511F53u, &low0);
        const vector_word high1 = multiply_words(c2, 0xCD9E8D57u, &low1);
        c0 = high1 ^ c1 ^ key0;
        c2 = high0 ^ c3 ^ key1;
        c1 = low1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    block[0] = c0;
    block[1] = c1;
    block[2] = c2;
    block[3] = c3;
}

/* What 4 · LANES elements are multiplied by. */
INLINE void make_factors(const vt_dropout *dropout, uint32_t sample, uint32_t row, uint32_t first, float keep,
                         vector factors[4])
{
    vector_word words[4];
    vector made[4];
    random_blocks(dropout, sample, row, first, words);
    for (int i = 0; i < 4; i++) {
        const vector_bits bits = (vector_bits)(words[i] >> 9);
        const vector uniform = (__builtin_convertvector(bits, vector) + splat(0.5f)) * splat(0x1p-23f);
        made[i] = choose(uniform < splat(dropout->rate), splat(0), splat(keep));
    }
    for (int half = 0; half < 2; half++) { /* a quad's four side by side */
        const vector even = interleave(made[0], made[2], half), odd = interleave(made[1], made[3], half);
        factors[2 * half] = interleave(even, odd, 0);
        factors[2 * half + 1] = interleave(even, odd, 1);
    }
}

/* A row of y = factors · x. */
INLINE void mask_row(const vt_mask *mask, uint32_t sample, uint32_t token, float path, const vt_matrix *x,
                     const vt_matrix *y, int64_t row)
{
    const float keep = path / (1.0f - mask->elements.rate);
    for (int64_t c = 0; c < x->columns;) {
        const int64_t first = mask->first_column + c, skipped = first % 4;
        const int64_t end = smaller(x->columns, c + 4 * LANES - skipped);
        float factors[4 * LANES];
        vector made[4];
        make_factors(&mask->elements, sample, token, (uint32_t)(first / 4), keep, made);
        memcpy(factors, made, sizeof factors);
        for (const float *at = factors + skipped; c < end; c += LANES, at += LANES) {
            const int64_t count = smaller(end - c, LANES);
            const vector factor = load_up_to(at, count),
                         kept = factor * load_elements_up_to(x, row * x->stride + c, count);
            store_elements_up_to(y, row * y->stride + c, choose(factor == splat(0), splat(0), kept), count);
        }
        c = end;
    }
}

static void mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const uint32_t place = (uint32_t)(r / mask->tokens), token = (uint32_t)(mask->first_token + r % mask->tokens);
        const float path = vt_dropout_sample_factor(&mask->path, mask->path.first_sample + place);
        if (mask->elements.rate > 0) {
            mask_row(mask, mask->elements.first_sample + place, token, path, &x, &y, r);
            continue;
        }
        for (int64_t c = 0; c < x.columns; c += LANES) {
            const int64_t count = x.columns - c;
            const vector value = splat(path) * load_elements_up_to(&x, r * x.stride + c, count);
            store_elements_up_to(&y, r * y.stride + c, value, count);
        }
    }
}
#endif

void VT_KERNEL(vt_vector_mask_fill)(vt_backend *backend)
{
#if defined(__SSE2__)
    backend->mask_multiply = mask_multiply;
#else
    (void)backend;
#endif
}
