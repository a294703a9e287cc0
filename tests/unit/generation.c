/* How a language model's next word is drawn. */
#include "forecast/language.h"
#include "test.h"

enum { WORDS = 5 };
static const float scores[WORDS] = {1, 3, -2, 3, 2};

TEST(likeliest_word)
{
    for (int i = 1; i < 10; i++) { /* of equal ones the lower number */
        EXPECT(vt_language_draw(scores, WORDS, 0, 0, i / 10.0) == 1);
        EXPECT(vt_language_draw(scores, WORDS, 1, 1, i / 10.0) == 1);
    }
}

/* Words are drawn as often as their probabilities say, of all words or of the likeliest alone. */
TEST(words_by_their_probabilities)
{
    enum { DRAWS = 10000 };
    static const double temperatures[] = {0.5, 1, 3};
    for (int t = 0; t < 3; t++)
        for (int64_t top = 0; top <= WORDS; top++) {
            static const int falling[WORDS] = {1, 3, 4, 0, 2};
            const int64_t used = top == 0 ? WORDS : top;
            double expected[WORDS] = {0}, sum = 0;
            int drawn[WORDS] = {0};
            for (int64_t i = 0; i < used; i++)
                sum += expected[falling[i]] = exp((double)scores[falling[i]] / temperatures[t]);
            for (int i = 0; i < DRAWS; i++)
                drawn[vt_language_draw(scores, WORDS, temperatures[t], top, (i + 0.5) / DRAWS)]++;
            for (int i = 0; i < WORDS; i++)
                EXPECT(fabs(drawn[i] - DRAWS * expected[i] / sum) <= 1, "temperature %g, top %ld, word %d: %d",
                       temperatures[t], top, i, drawn[i]);
        }
}
