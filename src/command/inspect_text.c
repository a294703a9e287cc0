#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "command/inspect.h"
#include "source/text/text.h"

enum { SETS = 3, SEQ_LEN = 32 }; /* the default of seq_len */
static const char *const sets[SETS] = {"train", "valid", "test"};

bool vt_inspect_holds_text(const char *directory)
{
    bool any = false;
    for (int i = 0; i < SETS; i++) {
        char *path = NULL;
        any = vt_text_find(directory, (vt_set)i, &path) != VT_OK || path != NULL || any;
        vt_error_clear();
        free(path);
    }
    return any;
}

/* "  train: wiki.train.raw, 10.9 MB: 2051910 words, 66656 different ones, 2051878 windows of 32 (seq_len, stride 1)" */
static vt_status print_set(const char *directory, vt_set set, const vt_corpus_options *options, vt_vocabulary **words)
{
    vt_status status = VT_OK;
    char *path = NULL, size[VT_NUMBER_SIZE];
    vt_corpus *corpus = NULL;
    VT_TRY(vt_text_find(directory, set, &path));
    VT_CHECK(path != NULL || set == VT_SET_TEST, "there is no %s text",
             set == VT_SET_TRAINING ? "training" : "validation");
    if (path == NULL || (set != VT_SET_TRAINING && *words == NULL)) goto done;
    VT_TRY(vt_corpus_open(path, *words, options, &corpus));
    vt_print("  %s: %s, %s: %lld words", sets[set], vt_file_name(path),
             vt_text_bytes((double)corpus->head.text_bytes, size), (long long)corpus->head.words);
    if (corpus->vocabulary != NULL)
        vt_print(", %lld different ones", (long long)corpus->vocabulary->count);
    else
        vt_print(", %lld of which are not in the training text", (long long)corpus->head.unknown);
    vt_print(", %lld windows of %d (seq_len, stride 1)\n",
             (long long)vt_text_windows(corpus->head.token_count, SEQ_LEN, 1), SEQ_LEN);
    if (corpus->head.has_mark) vt_print("    WARNING: it begins with a byte order mark, which is left out\n");
    if (set == VT_SET_TRAINING) {
        *words = corpus->vocabulary;
        corpus->vocabulary = NULL;
    }
done:
    vt_corpus_close(&corpus);
    free(path);
    return status;
}

void vt_inspect_text(const char *directory, bool verify, int *faults)
{
    const char *temporary = getenv("TMPDIR");
    const vt_corpus_options options = {
        .lower = true, .other_directory = temporary != NULL ? temporary : "/tmp", .keep_nothing = true, .anew = verify};
    vt_vocabulary *words = NULL;
    vt_print("%s: text, in lower case\n", directory);
    fflush(stdout);
    for (int i = 0; i < SETS; i++) vt_inspect_check(faults, print_set(directory, (vt_set)i, &options, &words));
    vt_vocabulary_close(&words);
}
