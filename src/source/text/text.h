/* The source `text`: windows of a text's words, by their numbers. Tensors: "tokens" [seq_len], and "targets" [seq_len],
 * the same one word later; of ranks that share a window their runs of it. A target below 0 counts in no loss. */
#ifndef VT_SOURCE_TEXT_TEXT_H
#define VT_SOURCE_TEXT_TEXT_H

#include "data/source.h"
#include "source/text/corpus.h"

typedef struct {
    vt_source source;
    vt_corpus *corpus;         /* NULL: random numbers (data_loader_config synthetic) */
    vt_vocabulary *vocabulary; /* likewise; its counts are those of the training text, 0 where it was not read */
    const vt_config *config;   /* which outlives the source */
    vt_span part;              /* of a window, that this rank reads */
} vt_text_source;

/* The file of a set; malloc'd. NULL: data_dir has none, which is an error but of a test set. */
vt_status vt_text_path(const vt_config *config, vt_set set, char **path);

/* The same of a directory, by the usual names; *path is NULL where there is none, or none of this set. */
vt_status vt_text_find(const char *directory, vt_set set, char **path);

/* The words of option `vocabulary`'s file, or else of the training text, with their counts there. */
vt_status vt_text_vocabulary(const vt_config *config, vt_vocabulary **vocabulary);

/* Windows of a text of so many tokens; 0: it is too short. */
int64_t vt_text_windows(int64_t tokens, int64_t seq_len, int64_t stride);

extern const vt_source_kind vt_source_text;

#endif
