/* Data directories of synthetic sets: of an atmosphere, a universe, a text. */
#ifndef VT_SOURCE_SYNTHETIC_SETS_H
#define VT_SOURCE_SYNTHETIC_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What all have in common. Errors: a file that is there already (without force), no permission, a full disk. A file has
 * its name only when it is complete. */
typedef struct {
    const char *directory;
    uint64_t seed;
    bool force; /* replace files that are there */
    /* Called after each file: it holds `count` of `what` (0: not told), and took so many seconds. May be NULL. */
    void (*report)(const char *path, int64_t count, const char *what, double bytes, double seconds);
} vt_synthetic_output;

/* Calls output->report, if there is one, for a file that was begun at `begin` (vt_clock_seconds). */
void vt_synthetic_report(const vt_synthetic_output *output, const char *path, int64_t count, const char *what,
                         double bytes, double begin);

/* ---- an atmosphere: train/2001.h5, …, then one year each for valid/ and test/, and stats/ ---- */

enum { VT_SYNTHETIC_FIRST_YEAR = 2001 };

typedef struct {
    vt_synthetic_output output;
    int64_t height, width, channels;
    int64_t years;                   /* of training */
    int64_t steps_per_year;          /* 1460: 6-hourly, 365 days */
    int64_t valid_steps, test_steps; /* from the first of January of the years that follow; 0: none */
    double noise;
    int64_t chunk_times; /* times a chunk; 0: contiguous */
    int64_t compression; /* gzip level of chunks, with the bytes shuffled; 0: none */
} vt_synthetic_set_options;

/* Also fails at a *YYYY.h5 that would become part of the set, even with force. The statistics, of the training years,
 * come last. */
vt_status vt_synthetic_set_write(const vt_synthetic_set_options *options);

/* ---- a universe: boxes of dark matter and gas, of which the gas follows from the dark matter, so that a model can
 * learn it. Zel'dovich's approximation (1970) moves particles from a grid; gas is what they carry, smoothed, and hot
 * where it runs together. shared/spec/unet3d.md, §11, has the formulas; docs/unet3d.md tells users. ---- */

enum { VT_UNIVERSE_NBODY = 4, VT_UNIVERSE_HYDRO = 5 };

typedef struct {
    vt_synthetic_output output;
    int64_t box_size[2]; /* sides of the training and the validation box in points, even */
    int64_t tile;        /* copies of the box along each axis of the file */
    bool npy;            /* writes the .npy files as well */
} vt_universe_options;

/* Bytes of memory that making a box of `side` points takes. */
double vt_universe_bytes(int64_t side);

/* Fields of one box, as the files have them: nbody [4, side³], hydro [5, side³], malloc'd. `training_side`: of the box
 * that sets the scales of both. box 0: training, 1: validation. */
void vt_universe_make(int64_t side, int64_t training_side, uint64_t seed, int box, float **nbody, float **hydro);

/* Writes train.h5 and valid.h5, and their .npy files. */
vt_status vt_universe_write(const vt_universe_options *options);

/* ---- a text whose entropy is known, to measure language models against: 1000 made-up words in 20 classes. A word's
 * class is drawn by the softmax of a sum of two rows of favours, of the last word's class and of the last but one's;
 * the word in its class by Zipf's law. ---- */

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

/* Writes train.txt of `tokens` words, valid.txt and test.txt of a tenth each, and entropy.txt. */
vt_status vt_synthetic_text_write(const vt_synthetic_output *output, int64_t tokens,
                                  vt_text_perplexities *perplexities);

#endif
