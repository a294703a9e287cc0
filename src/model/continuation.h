/* A text that a language model continues: words are fed one or some at a time, and the model says how likely each word
 * of the vocabulary is behind them. Keys and values of the words so far are kept, so a word costs one row of the model,
 * whatever stands before it. The model is causal, and its samples' tokens are not shared out (context_parallel 1). */
#ifndef VT_MODEL_CONTINUATION_H
#define VT_MODEL_CONTINUATION_H

#include "model/model.h"

typedef struct vt_continuation vt_continuation;

/* Configuration, model and back end outlive it. Errors: a model that is not causal, or reads no
 * text; no memory. */
vt_status vt_continuation_open(const vt_config *config, const vt_model *model, vt_backend *backend,
                               vt_continuation **continuation);
void vt_continuation_close(vt_continuation **continuation);

/* Collective over the tensor axis. Puts words [count], in the host's memory, behind the first `fed` of those so far,
 * the others of which are forgotten; all together at most a window (config->seq_len). scores [vocabulary], in the
 * host's memory: of each word behind the last one, before softmax; the same on all ranks. */
vt_status vt_continuation_feed(vt_continuation *continuation, int64_t fed, const int32_t *words, int64_t count,
                               float *scores);

#endif
