/* A text: its words, and what becomes of them in the file of tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "fuzz.h"
#include "source/text/corpus.h"
#include "source/text/split.h"

typedef struct {
    const vt_corpus *corpus;
    int64_t count;
} read_back;

/* The words of the text are those that its tokens name. */
static vt_status compare(const char *word, size_t length, void *context)
{
    read_back *r = context;
    int32_t number = -1;
    vt_corpus_read(r->corpus, r->count++, 1, &number);
    VT_ASSERT(number >= 0 && number < vt_vocabulary_size(r->corpus->vocabulary));
    const char *known = vt_vocabulary_words(r->corpus->vocabulary)[number];
    VT_ASSERT(strlen(known) == length && memcmp(known, word, length) == 0);
    return VT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const vt_corpus_options options = {.lower = true, .anew = true};
    vt_corpus *corpus = NULL;
    vt_split_facts facts;
    char *path = vt_fuzz_write("text", data, size);
    vt_error_clear();
    if (vt_corpus_open(path, NULL, &options, &corpus) == VT_OK) {
        read_back r = {.corpus = corpus};
        VT_ASSERT(vt_split((const char *)data, size, path, true, compare, &r, &facts) == VT_OK);
        VT_ASSERT(r.count == corpus->token_count && facts.words == r.count);
    }
    vt_corpus_close(&corpus);
    free(path);
    return 0;
}
