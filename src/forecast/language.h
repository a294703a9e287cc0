/* A trained language model at work: `vitrain evaluate` and `vitrain generate` of a run on the task language. */
#ifndef VT_FORECAST_LANGUAGE_H
#define VT_FORECAST_LANGUAGE_H

#include "forecast/evaluation.h"
#include "forecast/forecaster.h"

/* Collective. Goes once through the validation or test windows, side by side and by the run's stride. Prints loss,
 * perplexity and bits a token, and writes them to perplexity.csv. */
vt_status vt_language_evaluate(const vt_trained *model, bool test, vt_place *place, const vt_launch *launch);

typedef struct {
    const char *prompt; /* without words: a word drawn by its frequency in the training text */
    int64_t tokens;     /* words behind the prompt */
    double temperature; /* 0: the likeliest word; else scores are divided by it */
    int64_t top_k;      /* only so many of the likeliest words; 0: all */
    uint64_t seed;
    int64_t count; /* of texts */
} vt_generation;

/* Draws one of `count` words by their scores, which softmax makes probabilities of; random is uniform in (0, 1). */
int32_t vt_generation_draw(const vt_generation *how, const float *scores, int64_t count, double random);

/* Collective. Prints prompts and continuations, a line each, and on standard error how many words were made a second.
 * The errors: words of the prompt that the model doesn't know; a model that can't write; a layout other than tensor
 * parallel. */
vt_status vt_language_generate(const vt_trained *model, const vt_generation *how, const vt_launch *launch);

/* Collective, for language.c and generation.c alone: the model of a checkpoint, to be closed by vt_inference_close also
 * after an error. */
vt_status vt_language_open(const vt_trained *model, const vt_launch *launch, vt_inference *inference);

#endif
