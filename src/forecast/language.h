/* A trained language model at work: `vitrain evaluate` and `vitrain generate` of a run on the task language. */
#ifndef VT_FORECAST_LANGUAGE_H
#define VT_FORECAST_LANGUAGE_H

#include "config/config.h"
#include "parallel/launch.h"

/* Which checkpoint `name` means, was it trained on text, and if so, its configuration with these flags for `ranks`
 * ranks. The words are those of the checkpoint. Otherwise *checkpoint and *config stay NULL. */
vt_status vt_language_configure(const char *name, int flag_count, char *const *flags, int64_t ranks, bool *of_text,
                                char **checkpoint, vt_config **config);

/* Collective. Goes once through the validation or test windows, side by side and by the run's stride. Prints loss,
 * perplexity and bits a token, and writes them to perplexity.csv in the directory `output`. */
vt_status vt_language_evaluate(vt_config *config, const char *checkpoint, bool test, const char *output,
                               const vt_launch *launch);

#endif
