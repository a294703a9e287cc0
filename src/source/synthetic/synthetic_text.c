#include "source/synthetic/sets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "storage/output_file.h"

enum { WORDS = VT_TEXT_WORDS, CLASSES = VT_TEXT_CLASSES, OF_CLASS = WORDS / CLASSES, SETS = 3, WORD_BYTES = 8 };

/* Deviations of what the last word favours, and the last but one. With these, the best model of pairs of words is half
 * as uncertain again as one that knows the source, and the best of single words four times as uncertain. */
static const double favours_of[2] = {2.1, 1.4};

struct vt_text_language {
    char words[WORDS][WORD_BYTES];
    int class_of[WORDS], members[CLASSES][OF_CLASS]; /* the first member is the one that is used most */
    double zipf[OF_CLASS];                           /* probability of a class's members */
    double favours[2][CLASSES][CLASSES]; /* exp of what the last word's class favours, and the last but one's */
};

vt_text_language *vt_text_language_open(uint64_t seed)
{
    static const char *const syllables[] = {"ba", "de", "fi", "go", "ku", "la", "me", "ni", "so", "tu"};
    vt_text_language *own = vt_allocate(1, sizeof *own, "a synthetic language");
    int64_t order[WORDS];
    double sum = 0;
    vt_random_permutation(seed ^ vt_random_name_key("words of classes"), 0, WORDS, order);
    for (int i = 0; i < WORDS; i++) {
        const int word = (int)order[i];
        snprintf(own->words[i], WORD_BYTES, "%s%s%s", syllables[i / 100], syllables[i / 10 % 10], syllables[i % 10]);
        own->class_of[word] = i / OF_CLASS;
        own->members[i / OF_CLASS][i % OF_CLASS] = word;
    }
    for (int i = 0; i < OF_CLASS; i++) sum += own->zipf[i] = 1.0 / (i + 1);
    for (int i = 0; i < OF_CLASS; i++) own->zipf[i] /= sum;
    const uint64_t key = vt_random_name_key("favours");
    for (int i = 0; i < 2 * CLASSES * CLASSES; i++)
        (&own->favours[0][0][0])[i] = exp(favours_of[i / (CLASSES * CLASSES)] *
                                          vt_random_normal_quantile(vt_random_element(seed, key, (uint64_t)i)));
    return own;
}

void vt_text_language_close(vt_text_language **language)
{
    free(*language);
    *language = NULL;
}

const char *vt_text_language_word(const vt_text_language *language, int number)
{
    return language->words[number];
}

/* Of each class behind two words of these classes. */
static void class_probabilities(const vt_text_language *own, int last_but_one, int last, double of[CLASSES])
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += of[c] = own->favours[0][last][c] * own->favours[1][last_but_one][c];
    for (int c = 0; c < CLASSES; c++) of[c] /= sum;
}

int vt_text_language_next(const vt_text_language *own, int last_but_one, int last, double random)
{
    double of[CLASSES];
    int class = 0, member = 0;
    class_probabilities(own, own->class_of[last_but_one], own->class_of[last], of);
    for (; class + 1 < CLASSES && random >= of[class]; class ++) random -= of[class];
    random /= of[class];
    for (; member + 1 < OF_CLASS && random >= own->zipf[member]; member++) random -= own->zipf[member];
    return own->members[class][member];
}

double vt_text_language_probability(const vt_text_language *own, int last_but_one, int last, int word)
{
    double of[CLASSES];
    int member = 0;
    while (own->members[own->class_of[word]][member] != word) member++;
    class_probabilities(own, own->class_of[last_but_one], own->class_of[last], of);
    return of[own->class_of[word]] * own->zipf[member];
}

/* One more word: from the stationary distribution of pairs of classes, as far as it is known, the next. Returns the
 * entropy of the class behind two words. */
static double step_of_pairs(const vt_text_language *own, double (*pairs)[CLASSES])
{
    double entropy = 0, next[CLASSES][CLASSES] = {{0}};
    for (int first = 0; first < CLASSES; first++)
        for (int second = 0; second < CLASSES; second++) {
            double of[CLASSES];
            class_probabilities(own, first, second, of);
            for (int c = 0; c < CLASSES; c++) {
                next[second][c] += pairs[first][second] * of[c];
                entropy -= pairs[first][second] * of[c] * log(of[c]);
            }
        }
    memcpy(pairs, next, sizeof next);
    return entropy;
}

vt_text_perplexities vt_text_language_perplexities(const vt_text_language *own)
{
    enum { STEPS = 1000 }; /* enough for any chain of 20 classes that favours this much */
    double pairs[CLASSES][CLASSES], entropy = 0, of_member = 0, two_words = 0, one_word = 0;
    for (int i = 0; i < CLASSES * CLASSES; i++) (&pairs[0][0])[i] = 1.0 / CLASSES / CLASSES;
    for (int step = 0; step < STEPS; step++) entropy = step_of_pairs(own, pairs);
    for (int last = 0; last < CLASSES; last++) {
        double all = 0;
        for (int c = 0; c < CLASSES; c++) all += pairs[last][c];
        for (int c = 0; c < CLASSES; c++) two_words -= pairs[last][c] * log(pairs[last][c] / all);
        one_word -= all * log(all);
    }
    for (int i = 0; i < OF_CLASS; i++) of_member -= own->zipf[i] * log(own->zipf[i]);
    return (vt_text_perplexities){exp(entropy + of_member), exp(one_word + of_member), exp(two_words + of_member)};
}

/* ---- files ---- */

static const char *const file_names[] = {"train.txt", "valid.txt", "test.txt", "entropy.txt"};

static vt_status write_set(const vt_text_language *language, const vt_synthetic_output *output, const char *path,
                           uint64_t key, int64_t tokens)
{
    vt_status status = VT_OK;
    enum { WARM_UP = 1000, OF_LINE = 16 };
    const double begin = vt_clock_seconds();
    FILE *file = NULL;
    int last_but_one = 0, last = 1;
    int64_t bytes = 0;
    VT_TRY(vt_output_open(path, &file));
    for (int64_t i = 0; i < WARM_UP + tokens; i++) {
        const int word =
            vt_text_language_next(language, last_but_one, last, vt_random_element(output->seed, key, (uint64_t)i));
        last_but_one = last;
        last = word;
        if (i < WARM_UP) continue;
        const bool ends = (i - WARM_UP + 1) % OF_LINE == 0 || i + 1 == WARM_UP + tokens;
        bytes += fprintf(file, "%s%c", vt_text_language_word(language, word), ends ? '\n' : ' ');
    }
    VT_TRY(vt_output_close(file, path));
    vt_synthetic_report(output, path, tokens, "tokens", (double)bytes, begin);
done:
    return status;
}

static vt_status write_entropy(const char *path, const vt_text_perplexities *perplexities)
{
    char *text = vt_text_format("perplexity %.4f\n# of models of one word: %.4f, of two: %.4f\n", perplexities->exact,
                                perplexities->one_word, perplexities->two_words);
    const vt_status status = vt_file_write(path, text, strlen(text));
    free(text);
    return status;
}

vt_status vt_synthetic_text_write(const vt_synthetic_output *output, int64_t tokens, vt_text_perplexities *perplexities)
{
    vt_status status = VT_OK;
    vt_text_language *language = vt_text_language_open(output->seed);
    char *paths[SETS + 1];
    for (int i = 0; i <= SETS; i++) paths[i] = vt_text_format("%s/%s", output->directory, file_names[i]);
    VT_TRY(vt_output_make_directory(output->directory));
    for (int i = 0; i <= SETS; i++) VT_TRY(vt_output_check_absent(paths[i], output->force));
    *perplexities = vt_text_language_perplexities(language);
    VT_TRY(write_entropy(paths[SETS], perplexities));
    for (int i = 0; i < SETS; i++)
        VT_TRY(write_set(language, output, paths[i], vt_random_name_key(file_names[i]),
                         i == 0 ? tokens : tokens / 10 + 1));
done:
    for (int i = 0; i <= SETS; i++) free(paths[i]);
    vt_text_language_close(&language);
    return status;
}
