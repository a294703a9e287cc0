/* The rules that several options must satisfy together, and, for messages, the nearest values that do. */
#ifndef VT_CONFIG_FIT_H
#define VT_CONFIG_FIT_H

#include "config/config.h"

typedef bool vt_fit(const vt_config *config);

/* Of the vision transformer; true for other models, which have rules of their own. */
bool vt_fit_heads(const vt_config *config);    /* num_heads divides embed_dim */
bool vt_fit_patch(const vt_config *config);    /* patch_size divides both of img_size, or pad */
bool vt_fit_tensor(const vt_config *config);   /* tensor_parallel divides num_heads */
bool vt_fit_context(const vt_config *config);  /* each context rank has a token */
bool vt_fit_sequence(const vt_config *config); /* each tensor rank has one, too, with sequence_parallel */

/* Of every model. */
bool vt_fit_ranks(const vt_config *config);        /* tensor · context · pipeline divide the ranks */
bool vt_fit_batch(const vt_config *config);        /* the data-parallel ranks divide the global batch */
bool vt_fit_accumulation(const vt_config *config); /* grad_accumulation divides a rank's part of it */

/* Tokens of a sample, and of the shortest of the spans that the context ranks have. */
int64_t vt_fit_tokens(const vt_config *config);
int64_t vt_fit_shortest_span(const vt_config *config);

/* "6 or 8": for the integer at `offset` in vt_config, the nearest values below and above its own that satisfy all
 * rules; if there are none, those that satisfy `rule` and vt_fit_ranks. NULL: no value. */
const char *vt_fit_nearest(const vt_config *config, size_t offset, vt_fit *rule, char text[64]);
#define VT_FIT_NEAREST(config, name, rule, text) vt_fit_nearest(config, offsetof(vt_config, name), rule, text)

/* "15 or 18": the nearest multiples of `unit`, which does not divide `number`. */
const char *vt_fit_multiples(int64_t unit, int64_t number, char text[64]);

#endif
