/* float32 to and from bfloat16 and float16: every one of the 65536 halves both ways, every tie between neighbours and
 * its surroundings, against independent arithmetic, the processor's instructions, and on every path of the table. */
#include <math.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The definition of a half by the standard, not a processor's algorithm. */
static double value_of(vt_type type, uint16_t half)
{
    int mantissa_bits = type == VT_BFLOAT16 ? 7 : 10, bias = type == VT_BFLOAT16 ? 127 : 15;
    int exponent = (half & 0x7fff) >> mantissa_bits, mantissa = half & ((1 << mantissa_bits) - 1);
    double value;
    if (exponent == (type == VT_BFLOAT16 ? 255 : 31))
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return half >> 15 ? -value : value;
}

TEST(every_half_widened)
{
    FOR_EACH_HALF(type)
    {
        for (uint32_t half = 0; half < 0x10000; half++) {
            double expected = value_of(type, (uint16_t)half);
            float actual = vt_half_widen(type, (uint16_t)half);
            bool same = isnan(expected) ? isnan(actual) : (double)actual == expected;
            if (!same || bits_of(actual) >> 31 != half >> 15)
                EXPECT(false, "%s 0x%04x: %g, expected %g", half_name(type), half, (double)actual, expected);
            if (!isnan(expected) && vt_half_round(type, actual) != half)
                EXPECT(false, "%s 0x%04x does not come back", half_name(type), half);
        }
    }
}

static void check_rounding(vt_type type, float value, uint32_t expected)
{
    uint16_t positive = vt_half_round(type, value), negative = vt_half_round(type, -value);
    if (positive != expected || negative != (expected | 0x8000))
        EXPECT(false, "%s of %a: 0x%04x and 0x%04x, expected 0x%04x", half_name(type), (double)value, positive,
               negative, expected);
}

/* Between two neighbours: the middle rounds to the even one, the numbers beside it to the nearer one. The number after
 * the largest is the one with the next exponent: from the middle on the result is infinite. */
TEST(ties_go_to_the_even_neighbour)
{
    FOR_EACH_HALF(type)
    {
        uint16_t infinite = type == VT_BFLOAT16 ? 0x7f80 : 0x7c00;
        for (uint16_t half = 0; half < infinite; half++) {
            double low = value_of(type, half), high = value_of(type, half + 1);
            if (isinf(high)) high = 2 * low - value_of(type, half - 1);
            double middle = (low + high) / 2; /* a float32, for both have fewer bits */
            check_rounding(type, (float)low, half);
            check_rounding(type, nextafterf((float)middle, 0), half);
            check_rounding(type, (float)middle, half % 2 == 0 ? half : half + 1);
            check_rounding(type, nextafterf((float)middle, INFINITY), half + 1);
        }
        check_rounding(type, INFINITY, infinite);
        check_rounding(type, 0x1p-149f, 0); /* float32's own subnormals: float16 has none as small */
        EXPECT(isnan(vt_half_widen(type, vt_half_round(type, NAN))));
        EXPECT(isnan(vt_half_widen(type, vt_half_round(type, float_of(0x7f800001))))); /* only the lowest bit */
    }
    check_rounding(VT_FLOAT16, 65504, 0x7bff);
    check_rounding(VT_FLOAT16, 65519.996f, 0x7bff);
    check_rounding(VT_FLOAT16, 65520, 0x7c00);
    check_rounding(VT_FLOAT16, 0x1p-25f, 0);
    check_rounding(VT_FLOAT16, 0x1.000002p-25f, 1);
}

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports does not know the name. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

__attribute__((target("f16c"))) static uint16_t processor_round(float value)
{
    return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}

__attribute__((target("f16c"))) static float processor_widen(uint16_t half)
{
    return _cvtsh_ss(half);
}

/* To the bit, NaNs included: a step of 1021 meets every exponent and all kinds of mantissas. */
TEST(float16_is_the_processors)
{
    if (!has_f16c()) return vt_test_skip("this processor has no F16C");
    for (uint32_t half = 0; half < 0x10000; half++) {
        uint32_t expected = bits_of(processor_widen((uint16_t)half)),
                 actual = bits_of(vt_float16_widen((uint16_t)half));
        if (actual != expected) EXPECT(false, "0x%04x: 0x%08x, expected 0x%08x", half, actual, expected);
    }
    for (uint64_t bits = 0; bits < 0x100000000; bits += 1021) {
        uint16_t expected = processor_round(float_of((uint32_t)bits)),
                 actual = vt_float16_round(float_of((uint32_t)bits));
        if (actual != expected) EXPECT(false, "0x%08x: 0x%04x, expected 0x%04x", (uint32_t)bits, actual, expected);
    }
}
#endif

/* The table's `convert` equals converting one number at a time (a NaN stays NaN): all halves, rows of every length up
 * to two vectors and a rest, unaligned, with nothing written beside them. */
static void check_convert(vt_backend *b, const char *path, vt_type type)
{
    enum { ALL = 0x10000, GUARD = 0x5a5a, MOST = 37 };
    uint16_t *halves = vt_test_owned(malloc((ALL + 1) * sizeof *halves)),
             *back = vt_test_owned(malloc((ALL + 1) * sizeof *back));
    float *wide = vt_test_owned(malloc((ALL + 1) * sizeof *wide));
    for (int i = 0; i < ALL; i++) halves[i + 1] = (uint16_t)i;
    vt_matrix from = {.half = halves + 1, .rows = 16, .columns = ALL / 16, .stride = ALL / 16, .type = type};
    vt_matrix to = vt_matrix_make(wide + 1, from.rows, from.columns), again = from;
    again.half = back + 1;
    b->convert(b, from, to);
    b->convert(b, to, again);
    for (int i = 0; i < ALL; i++) {
        float expected = vt_half_widen(type, (uint16_t)i);
        bool same = isnan(expected) ? isnan(wide[i + 1]) : bits_of(wide[i + 1]) == bits_of(expected);
        if (!same) EXPECT(false, "%s, %s: 0x%04x becomes %g", path, half_name(type), i, (double)wide[i + 1]);
        uint16_t rounded = vt_half_round(type, expected);
        same = isnan(expected) ? isnan(vt_half_widen(type, back[i + 1])) : back[i + 1] == rounded;
        if (!same) EXPECT(false, "%s, %s: 0x%04x comes back as 0x%04x", path, half_name(type), i, back[i + 1]);
    }
    for (int columns = 0; columns <= MOST; columns++) { /* 0: the rest of parameters may be empty */
        for (int i = 0; i < 3 * MOST; i++) {
            wide[i] = (float)(i + 1) / 3;
            back[i] = GUARD;
        }
        from = vt_matrix_make(wide + 1, 2, columns);
        again = (vt_matrix){.half = back + 1, .rows = 2, .columns = columns, .stride = MOST + 1, .type = type};
        b->convert(b, from, again);
        for (int i = 0; i < 3 * MOST; i++) {
            int row = (i - 1) / (MOST + 1), column = (i - 1) % (MOST + 1);
            bool inside = i > 0 && row < 2 && column < columns;
            uint16_t expected = inside ? vt_half_round(type, wide[1 + row * columns + column]) : GUARD;
            if (back[i] != expected) EXPECT(false, "%s, %s: %d columns, element %d", path, half_name(type), columns, i);
        }
    }
    EXPECT_OK(b->check(b));
}

GPU_TEST(convert_on_every_path)
{
    FOR_EACH_BACKEND(isa, b)
    {
        FOR_EACH_HALF(type) check_convert(b, b->name, type);
    }
}

/* Products round their sums as `convert` does. All operands are 0, so the sums are the bias: numbers beside and at the
 * middle between any two neighbours, and NaNs of all kinds. */
static void check_rounded_sums(vt_backend *b, vt_type type)
{
    enum { ROWS = 9, DEEP = 16, COLUMNS = 1536 }; /* ROWS: up to 8 rows have a kernel of their own */
    static const uint32_t below[] = {0x0000, 0x7fff, 0x8000, 0x8001, 0x0fff, 0x1000, 0x1001, 0xffff};
    uint16_t *zeros = vt_test_owned(calloc(COLUMNS * DEEP, sizeof *zeros)),
             *sums = vt_test_owned(malloc(ROWS * COLUMNS * sizeof *sums));
    float *bias = vt_test_owned(malloc(COLUMNS * sizeof *bias));
    const vt_matrix x = {.half = zeros, .rows = ROWS, .columns = DEEP, .stride = DEEP, .type = type};
    const vt_matrix weight = {.half = zeros, .rows = COLUMNS, .columns = DEEP, .stride = DEEP, .type = type};
    const vt_matrix y = {.half = sums, .rows = ROWS, .columns = COLUMNS, .stride = COLUMNS, .type = type};
    for (uint32_t first = 0; first < 0x10000; first += COLUMNS / 8) {
        for (uint32_t c = 0; c < COLUMNS; c++) {
            const uint32_t bits = (first + c / 8) << 16 | below[c % 8];
            bias[c] = (bits & 0x7f800000) == 0 ? 0 : float_of(bits); /* some processors take denormals for 0 */
        }
        b->linear_forward(b, x, weight, bias, NULL, y);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const float sum = bias[i % COLUMNS] + 0.0f;
            const bool same = isnan(sum) ? isnan(vt_half_widen(type, sums[i])) : sums[i] == vt_half_round(type, sum);
            if (!same) EXPECT(false, "%s, %s: %a becomes 0x%04x", b->name, half_name(type), (double)sum, sums[i]);
        }
    }
    EXPECT_OK(b->check(b));
}

TEST(sums_round_as_convert_does)
{
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        FOR_EACH_HALF(type) check_rounded_sums(b, type);
        close_path(&b);
    }
}
