/* A text: its words, and what becomes of them in the file of tokens; and such a file with other bytes. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "fuzz.h"
#include "source/text/text.h"

typedef struct {
    const vt_corpus *corpus;
    int64_t count;
} read_back;

/* The words of the text are those that its tokens name. */
static vt_status compare(const char *word, size_t length, void *context)
{
    read_back *r = context;
    int32_t number = -1;
    VT_ASSERT(vt_corpus_read(r->corpus, r->count++, 1, &number) == VT_OK);
    VT_ASSERT(number >= 0 && number < r->corpus->vocabulary->count);
    const char *known = r->corpus->vocabulary->words[number];
    VT_ASSERT(strlen(known) == length && memcmp(known, word, length) == 0);
    return VT_OK;
}

static void put_checksum(char *bytes, size_t place, size_t first, size_t end)
{
    const uint32_t checksum = vt_crc32c(bytes + first, end - first);
    memcpy(bytes + place, &checksum, sizeof checksum);
}

/* The file of tokens of a text of four words (vt_corpus_header), with `data` from the byte on that its
 * first one says, and right checksums: the text is split again, or the tokens are words. */
static void try_damaged(const uint8_t *data, size_t size)
{
    enum { WORDS = 4, WORDS_CHECKSUM = 96, TOKENS_CHECKSUM = 100, HEADER_CHECKSUM = 104, TOKENS = 4096 };
    vt_corpus_options options = {.lower = true};
    static char *path, *kept, *whole;
    static size_t length;
    SCOPED(vt_corpus) *corpus = NULL;
    if (path == NULL) {
        vt_log_filter.muted = true;
        path = vt_fuzz_write("known", "b a b c", 7);
        kept = vt_text_format("%s.vitrain", path);
        VT_ASSERT(vt_corpus_open(path, NULL, &options, &corpus) == VT_OK);
        vt_corpus_close(&corpus);
        struct stat info;
        VT_ASSERT(stat(kept, &info) == 0 && vt_file_read(kept, info.st_size, &whole, NULL) == VT_OK);
        length = (size_t)info.st_size;
    }
    char *bytes = vt_allocate(length, 1, "a test");
    memcpy(bytes, whole, length);
    const size_t end = TOKENS + 4 * WORDS, place = data[0] < 128 ? data[0] : TOKENS + data[0] - 128u;
    for (size_t i = 1; i < size && place + i - 1 < length; i++) bytes[place + i - 1] = (char)data[i];
    put_checksum(bytes, TOKENS_CHECKSUM, TOKENS, end);
    put_checksum(bytes, WORDS_CHECKSUM, end, length);
    put_checksum(bytes, HEADER_CHECKSUM, 0, HEADER_CHECKSUM);
    VT_ASSERT(vt_file_write(kept, bytes, length) == VT_OK);
    options.keep_nothing = true; /* it is not written again, which would wait for the disk */
    options.other_directory = vt_fuzz_directory();
    VT_ASSERT(vt_corpus_open(path, NULL, &options, &corpus) == VT_OK);
    for (int64_t i = 0; i < corpus->head.token_count; i++) {
        int32_t number = -1;
        VT_ASSERT(vt_corpus_read(corpus, i, 1, &number) == VT_OK);
        VT_ASSERT(number >= 0 && number < corpus->vocabulary->count);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const vt_corpus_options options = {
        .lower = true, .keep_nothing = true, .other_directory = vt_fuzz_directory(), .anew = true};
    vt_corpus *corpus = NULL;
    vt_split_facts facts;
    char *path = vt_fuzz_write("text", data, size);
    vt_error_clear();
    if (vt_corpus_open(path, NULL, &options, &corpus) == VT_OK) {
        read_back r = {.corpus = corpus};
        VT_ASSERT(vt_split((const char *)data, size, path, true, compare, &r, &facts) == VT_OK);
        VT_ASSERT(r.count == corpus->head.token_count && facts.words == r.count);
    }
    vt_corpus_close(&corpus);
    free(path);
    if (size > 1) try_damaged(data, size);
    return 0;
}
