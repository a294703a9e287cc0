/* Windows of words for language models, drawn so that some words are much more frequent than others. */
#ifndef VT_TESTS_WORD_WINDOWS_H
#define VT_TESTS_WORD_WINDOWS_H

#include <stdint.h>

/* words and targets [windows][length]: numbers below `vocabulary`, and the words that come next. */
static inline void draw_windows(uint32_t seed, uint32_t vocabulary, int64_t windows, int64_t length, int32_t *words,
                                int32_t *targets)
{
    uint32_t x = seed;
    for (int64_t s = 0; s < windows; s++)
        for (int64_t i = 0; i <= length; i++) {
            x = x * 1664525u + 1013904223u;
            const int32_t word = (int32_t)((x >> 16) % vocabulary * ((x >> 8) % vocabulary) / vocabulary);
            if (i < length) words[s * length + i] = word;
            if (i > 0) targets[s * length + i - 1] = word;
        }
}

#endif
