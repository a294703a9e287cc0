/* A trained language model at work: `vitrain evaluate` of a run on the task language, and what `vitrain generate` takes
 * of it. */
#ifndef VT_FORECAST_LANGUAGE_H
#define VT_FORECAST_LANGUAGE_H

#include "forecast/evaluation.h"
#include "forecast/forecaster.h"

/* Collective: the model of a checkpoint, to be closed by vt_inference_close also after an error. */
vt_status vt_language_open(const vt_trained *model, const vt_launch *launch, vt_inference *inference);

/* Collective. Goes once through the validation or test windows, side by side and by the run's stride. Prints loss,
 * perplexity and bits a token, and writes them to perplexity.csv. */
vt_status vt_language_evaluate(const vt_trained *model, bool test, vt_place *place, const vt_launch *launch);

/* Draws one of `count` words with the probabilities softmax(scores / temperature); temperature 0: the likeliest word.
 * top_k: only the top_k likeliest words can be drawn; 0: all. random is uniform in (0, 1). */
int32_t vt_language_draw(const float *scores, int64_t count, double temperature, int64_t top_k, double random);

#endif
