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
            EXPECT(x.matrix.data[r * x.matrix.stride + c] == expected, "row %ld", r);
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
        check_embedding(b, 0, WORDS);
        check_embedding(b, 17, 9);
    }
}

/* Of the objective x · dx. The embedding is linear in its table, so the differences are exact but for rounding. */
TEST(gradient_of_the_embedding_is_that_of_finite_differences)
{
    const float h = 0.25f;
    vt_backend *b = open_path(VT_ISA_PLAIN);
    make_numbers(false);
    for (int half = 0; half < 2; half++) {
        const vt_word_rows words = word_rows(0, ROWS, half ? 17 : 0, half ? 9 : WORDS);
        const int64_t count = words.count * COLUMNS;
        guarded table = guarded_random(words.count, COLUMNS, 1, 1), dx = guarded_random(ROWS, COLUMNS, 2, 1);
        guarded x = guarded_open(ROWS, COLUMNS);
        float *gradient = vt_test_owned(calloc((size_t)count, sizeof *gradient));
        b->embedding_backward(b, &words, numbers, dx.matrix, gradient);
        for (int64_t i = 0; i < count; i++) {
            float *at = table.matrix.data + i / COLUMNS * table.matrix.stride + i % COLUMNS, old = *at;
            double slope = 0;
            for (int side = -1; side <= 1; side += 2) {
                *at = old + (float)side * h;
                b->embedding_forward(b, &words, numbers, table.matrix, x.matrix);
                for (int64_t r = 0; r < ROWS; r++)
                    for (int64_t c = 0; c < COLUMNS; c++)
                        slope += side * (double)x.matrix.data[r * x.matrix.stride + c] *
                                 (double)dx.matrix.data[r * dx.matrix.stride + c] / (2 * (double)h);
            }
            *at = old;
            EXPECT_NEAR(gradient[i], slope, 1e-5);
        }
    }
    close_path(&b);
}

/* More places than a kernel looks at in one go, most of them of one word, and more words and columns than a block has.
 */
GPU_TEST(embedding_of_many_words)
{
    enum { MANY = 2 * 1300, LARGE = 700, WIDE = 150 };
    int32_t *many = vt_test_owned(malloc(MANY * sizeof *many));
    const vt_word_rows words = {MANY / 2, 0, MANY / 2, 0, MANY, 0, LARGE};
    for (int i = 0; i < MANY; i++) many[i] = i % 3 == 0 ? 333 : i * i % LARGE;
    guarded table = guarded_random(LARGE, WIDE, 1, 1), dx = guarded_random(MANY, WIDE, 2, 1), x[2], dtable[2];
    vt_backend *plain = open_path(VT_ISA_PLAIN);
    FOR_EACH_BACKEND(isa, b)
    {
        for (int i = 0; i < 2; i++) {
            vt_backend *own = i == 0 ? plain : b;
            x[i] = guarded_open(MANY, WIDE);
            dtable[i] = guarded_random(1, LARGE * WIDE, 3, 1);
            own->embedding_forward(own, &words, many, table.matrix, x[i].matrix);
            own->embedding_backward(own, &words, many, dx.matrix, dtable[i].matrix.data);
            guarded_check(&dtable[i], "dtable");
        }
        guarded_compare(&x[1], &x[0], 0, "x");
        guarded_compare(&dtable[1], &dtable[0], 2e-6, "dtable");
    }
    close_path(&plain);
}

GPU_TEST(places_have_sines)
{
    FOR_EACH_BACKEND(isa, b)
    {
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
        guarded scores = guarded_random(ROWS, WORDS, 1, 3);
        scores.matrix.data[4] = 200; /* of no use to exp by itself */
        check_cross_entropy(b, &scores, 0, ROWS, WORDS);
        check_cross_entropy(b, &scores, 0, ROWS, 21);
        check_cross_entropy(b, &scores, 3, 9, 40);
    }
}

/* Rows that are longer than what the threads of a kernel read in one go, at 16-byte boundaries and not; the gradient in
 * the scores' place. */
GPU_TEST(cross_entropy_of_many_words)
{
    enum { LARGE = 5003, PLACES = 6 };
    static const int32_t targets[PLACES] = {0, LARGE - 1, -1, 77, 2048, 4999};
    const vt_word_rows words = {PLACES, 0, PLACES, 0, PLACES, 0, LARGE};
    const double loss_scale = 2;
    vt_backend *plain = open_path(VT_ISA_PLAIN);
    FOR_EACH_BACKEND(isa, b)
    {
        for (int gap = 0; gap < 2; gap++) {
            float parts[2][3 * PLACES], log_sum[2][PLACES], *scores[2];
            double sums[2][2] = {{0}};
            vt_matrix m[2];
            for (int i = 0; i < 2; i++) {
                vt_backend *own = i == 0 ? plain : b;
                const int64_t stride = gap ? LARGE : LARGE + 1; /* 16 bytes are 4 numbers: 5004 is a multiple */
                scores[i] = vt_test_owned(aligned_alloc(64, (PLACES * (LARGE + 1) * sizeof(float) + 63) / 64 * 64));
                fill_random(scores[i], PLACES * stride, 4, 3);
                m[i] = vt_matrix_make(scores[i], PLACES, LARGE);
                m[i].stride = stride;
                own->cross_entropy_parts(own, &words, targets, m[i], parts[i]);
                own->cross_entropy_sums(own, &words, 1, targets, parts[i], sums[i], log_sum[i]);
                own->cross_entropy_backward(own, &words, targets, m[i], log_sum[i], 0.5f, &loss_scale, m[i]);
            }
            EXPECT_NEAR(sums[1][0], sums[0][0], 1e-5);
            EXPECT(sums[1][1] == PLACES);
            for (int64_t r = 0; r < PLACES; r++) {
                EXPECT_NEAR(log_sum[1][r], log_sum[0][r], 2e-6);
                for (int64_t c = 0; c < LARGE; c++)
                    EXPECT_NEAR(scores[1][r * m[1].stride + c], scores[0][r * m[0].stride + c], 2e-6);
            }
        }
    }
    close_path(&plain);
}
