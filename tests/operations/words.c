/* Words: the embedding, the places' sines, and cross entropy, on every back end that has them, against their
 * definitions in float64: windows of which a rank has a run of places, a vocabulary shared out over ranks, places
 * without a target, matrices that begin in the middle of a sample. The gradient of cross entropy is that of finite
 * differences. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

enum { SAMPLES = 3, WINDOW = 11, FIRST = 2, TOKENS = 7, WORDS = 41, COLUMNS = 38, ROWS = SAMPLES * TOKENS };

static int32_t numbers[SAMPLES * WINDOW];

/* Some words often, some never; with `gaps` some places have none. */
static void make_numbers(bool gaps)
{
    for (int i = 0; i < SAMPLES * WINDOW; i++)
        numbers[i] = gaps && i % 5 == 1 ? -1 : i * i % 7 == 2 ? 5 : i * 13 % WORDS;
}

static vt_word_rows word_rows(int64_t first_row, int64_t rows, int64_t first_word, int64_t count)
{
    return (vt_word_rows){WINDOW, FIRST, TOKENS, first_row, rows, first_word, count};
}

static int32_t number_of(int64_t row)
{
    return numbers[row / TOKENS * WINDOW + FIRST + row % TOKENS];
}

static void check_embedding(vt_backend *b, int64_t first_word, int64_t count)
{
    const vt_word_rows words = word_rows(0, ROWS, first_word, count);
    guarded table = guarded_random(count, COLUMNS, 1, 1), x = guarded_open(ROWS, COLUMNS);
    guarded dx = guarded_random(ROWS, COLUMNS, 2, 1), before = guarded_random(1, count * COLUMNS, 3, 1);
    guarded dtable = guarded_copy(&before);
    b->embedding_forward(b, &words, numbers, table.matrix, x.matrix);
    b->embedding_backward(b, &words, numbers, dx.matrix, dtable.matrix.data);
    guarded_check(&x, "x");
    guarded_check(&dtable, "dtable");
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            const int64_t word = number_of(r) - first_word;
            const float expected = word >= 0 && word < count ? table.matrix.data[word * table.matrix.stride + c] : 0;
            EXPECT(x.matrix.data[r * x.matrix.stride + c] == expected, "row %lld", (long long)r);
        }
    for (int64_t w = 0; w < count; w++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double sum = (double)before.matrix.data[w * COLUMNS + c];
            for (int64_t r = 0; r < ROWS; r++)
                if (number_of(r) == first_word + w) sum += (double)dx.matrix.data[r * dx.matrix.stride + c];
            EXPECT_NEAR(dtable.matrix.data[w * COLUMNS + c], sum, 2e-6);
        }
}

GPU_TEST(embedding)
{
    make_numbers(false);
    FOR_EACH_BACKEND(isa, b)
    {
        if (b->embedding_forward == NULL) continue;
        check_embedding(b, 0, WORDS);
        check_embedding(b, 17, 9);
    }
}

GPU_TEST(places_have_sines)
{
    FOR_EACH_BACKEND(isa, b)
    {
        if (b->embedding_forward == NULL) continue;
        const vt_word_rows words = word_rows(0, ROWS, 0, WORDS);
        guarded x = guarded_random(ROWS, COLUMNS, 1, 1), before = guarded_copy(&x);
        b->sinusoid_add(b, &words, x.matrix);
        guarded_check(&x, "x");
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < COLUMNS; c++) {
                const double angle = (double)(FIRST + r % TOKENS) * exp(-(double)(c / 2 * 2) * log(10000) / COLUMNS);
                const double added = c % 2 == 0 ? sin(angle) : cos(angle);
                EXPECT_NEAR(x.matrix.data[r * x.matrix.stride + c],
                            (double)before.matrix.data[r * before.matrix.stride + c] + added, 4e-6);
            }
    }
}

/* ---- cross entropy ---- */

/* Of a row, with `more` added to the score of word `at`. */
static double loss_of(const guarded *scores, int64_t row, int64_t at, double more)
{
    const float *s = scores->matrix.data + row * scores->matrix.stride;
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < WORDS; c++) largest = fmax(largest, (double)s[c] + (c == at ? more : 0));
    for (int64_t c = 0; c < WORDS; c++) sum += exp((double)s[c] + (c == at ? more : 0) - largest);
    const int32_t target = number_of(row);
    return target < 0 ? 0 : largest + log(sum) - (double)s[target] - (target == at ? more : 0);
}

/* Rows first … first + count - 1, whose words two ranks share out. */
static void check_cross_entropy(vt_backend *b, const guarded *scores, int64_t first, int64_t count, int64_t split)
{
    float *parts = vt_test_owned(calloc((size_t)(6 * count), sizeof *parts)), log_sum[ROWS];
    double sums[2 * SAMPLES] = {0}, expected[2 * SAMPLES] = {0};
    const double loss_scale = 8;
    const vt_word_rows words[2] = {word_rows(first, count, 0, split), word_rows(first, count, split, WORDS - split)};
    const int64_t ranks = split < WORDS ? 2 : 1;
    for (int64_t rank = 0; rank < ranks; rank++) {
        vt_matrix own =
            vt_matrix_columns(vt_matrix_rows(scores->matrix, first, count), words[rank].first_word, words[rank].count);
        b->cross_entropy_parts(b, &words[rank], numbers, own, parts + rank * 3 * count);
    }
    b->cross_entropy_sums(b, &words[0], ranks, numbers, parts, sums, log_sum);
    for (int64_t r = first; r < first + count; r++) {
        expected[2 * (r / TOKENS)] += loss_of(scores, r, -1, 0);
        expected[2 * (r / TOKENS) + 1] += 1;
    }
    for (int i = 0; i < 2 * SAMPLES; i++) EXPECT_NEAR(sums[i], expected[i], 1e-5);
    for (int64_t rank = 0; rank < ranks; rank++) {
        const int64_t word = words[rank].first_word;
        vt_matrix own = vt_matrix_columns(vt_matrix_rows(scores->matrix, first, count), word, words[rank].count);
        guarded gradient = guarded_open(count, words[rank].count);
        b->cross_entropy_backward(b, &words[rank], numbers, own, log_sum, 0.5f, &loss_scale, gradient.matrix);
        guarded_check(&gradient, "the gradient of cross entropy");
        for (int64_t r = 0; r < count; r++)
            for (int64_t c = 0; c < words[rank].count; c++) {
                const double h = 1e-4, slope = (loss_of(scores, first + r, word + c, h) -
                                                loss_of(scores, first + r, word + c, -h)) /
                                               (2 * h);
                EXPECT_NEAR(gradient.matrix.data[r * gradient.matrix.stride + c], 4 * slope, 1e-5);
            }
    }
}

GPU_TEST(cross_entropy)
{
    make_numbers(true);
    FOR_EACH_BACKEND(isa, b)
    {
        if (b->embedding_forward == NULL) continue;
        guarded scores = guarded_random(ROWS, WORDS, 1, 3);
        scores.matrix.data[4] = 200; /* of no use to exp by itself */
        check_cross_entropy(b, &scores, 0, ROWS, WORDS);
        check_cross_entropy(b, &scores, 0, ROWS, 21);
        check_cross_entropy(b, &scores, 3, 9, 40);
    }
}
