#include "base/random.h"

#include <math.h>

uint64_t vt_random_name_key(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

static uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    vt_random_block block = vt_random_philox(key, counter);
    return (uint64_t)block.word[0] << 32 | block.word[1];
}

double vt_random_element(uint64_t seed, uint64_t name_key, uint64_t index)
{
    return ((double)(random_bits(seed, name_key, index) >> 11) + 0.5) * 0x1p-53;
}

/* p(x) / q(x), coefficients from the constant term up. */
static double rational(double x, const double numerator[8], const double denominator[8])
{
    double p = 0, q = 0;
    for (int i = 7; i >= 0; i--) {
        p = p * x + numerator[i];
        q = q * x + denominator[i];
    }
    return p / q;
}

double vt_random_normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static const double b[8] = {1.0000000000000000000e0,  4.2313330701600911252e+1, 6.8718700749205790830e+2,
                                5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                                2.8729085735721942674e+4, 5.2264952788528545610e+3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.00000000000000000000e0,  2.05319162663775882187e0,  1.67638483018380384940e0,
                                6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
                                5.47593808499534494600e-4, 1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.00000000000000000000e0,  5.99832206555887937690e-1, 1.36929880922735805310e-1,
                                1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
                                1.42151175831644588870e-7, 2.04426310338993978564e-15};
    double centred = p - 0.5;
    if (fabs(centred) <= 0.425) return centred * rational(0.180625 - centred * centred, a, b);
    double tail = sqrt(-log(centred < 0 ? p : 1 - p));
    double magnitude = tail <= 5 ? rational(tail - 1.6, c, d) : rational(tail - 5, e, f);
    return centred < 0 ? -magnitude : magnitude;
}

void vt_random_permutation(uint64_t seed, uint64_t epoch, int64_t count, int64_t *order)
{
    uint64_t stream = vt_random_name_key("order of samples") + epoch;
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        /* the high 64 bits of a 128-bit product: uniform over 0..i up to 2^-64 */
        uint64_t bits = random_bits(seed, stream, (uint64_t)i);
        int64_t j = (int64_t)(((unsigned __int128)bits * (uint64_t)(i + 1)) >> 64);
        int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

int64_t vt_random_permuted(uint64_t seed, uint64_t epoch, int64_t count, int64_t index)
{
    enum { ROUNDS = 4 };
    const uint64_t stream = vt_random_name_key("order of many samples") + epoch;
    int half = 1;
    while ((uint64_t)1 << (2 * half) < (uint64_t)count) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t place = (uint64_t)index;
    do { /* what falls beyond `count` goes on, and comes back in the end */
        for (int round = 0; round < ROUNDS; round++) {
            const uint64_t left = place >> half, right = place & mask;
            const uint64_t bits = random_bits(seed, stream, right << 2 | (uint64_t)round);
            place = right << half | ((left ^ bits) & mask);
        }
    } while (place >= (uint64_t)count);
    return (int64_t)place;
}
