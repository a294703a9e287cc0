/* A text whose entropy is known, to measure language models against: 1000 made-up words in 20 classes. A word's class
 * is drawn by the softmax of a sum of two rows of favours, of the last word's class and of the last but one's; the word
 * in its class by Zipf's law. */
#ifndef VT_SOURCE_SYNTHETIC_SYNTHETIC_TEXT_H
#define VT_SOURCE_SYNTHETIC_SYNTHETIC_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { VT_TEXT_WORDS = 1000, VT_TEXT_CLASSES = 20 };

/* Of models that know the source and the last two words, no word, and the last word: the least that a model can reach
 * who looks no further back. */
typedef struct {
    double exact, one_word, two_words;
} vt_text_perplexities;

typedef struct vt_text_language vt_text_language;

vt_text_language *vt_text_language_open(uint64_t seed);
void vt_text_language_close(vt_text_language **language);

/* The exact ones, from the stationary distribution of pairs of words. */
vt_text_perplexities vt_text_language_perplexities(const vt_text_language *language);

/* Word `number` of them is made of three syllables; valid as long as the language. */
const char *vt_text_language_word(const vt_text_language *language, int number);

/* The next word's number, where random is uniform in (0, 1). */
int vt_text_language_next(const vt_text_language *language, int last_but_one, int last, double random);

/* The probability of a word behind two others. */
double vt_text_language_probability(const vt_text_language *language, int last_but_one, int last, int word);

typedef struct {
    const char *directory;
    int64_t tokens; /* of the training text; validation and test have a tenth of it each */
    uint64_t seed;
    bool force; /* replace files of the same names */
    void (*report)(const char *path, int64_t tokens);
} vt_synthetic_text_options;

/* Writes train.txt, valid.txt, test.txt and entropy.txt. */
vt_status vt_synthetic_text_write(const vt_synthetic_text_options *options, vt_text_perplexities *perplexities);

#endif
