#include "source/text/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "source/text/split.h"
#include "storage/output_file.h"

#define UNKNOWN_WORD "<unk>"
enum { VERSION = 2, HEADER_BYTES = 4096, BLOCK_TOKENS = 1 << 16 };

/* The file: this, from HEADER_BYTES on the tokens, then counts [words of the vocabulary] and the words, each with a NUL
 * at its end; of a text that was given a vocabulary no words. A file that doesn't say exactly this about the text is
 * made anew. */
typedef struct {
    char magic[8];
    uint32_t version, token_bytes;
    int64_t text_bytes, text_seconds, text_nanoseconds; /* the text's size, and when it was changed */
    uint32_t lower, unknown_word, lowers_all, has_mark, kept_upper;
    uint32_t checksum;       /* of the words and their counts */
    uint64_t vocabulary_key; /* of the vocabulary that it was given; 0: none */
    int64_t token_count, unknown, words, vocabulary_size, vocabulary_bytes;
    uint32_t header_checksum; /* of all before */
} header;

static uint32_t header_checksum(const header *head)
{
    return vt_crc32c(head, offsetof(header, header_checksum));
}

/* What the file of a text has to say; the rest is found when it is made. */
static header expected(const struct stat *text, const vt_vocabulary *vocabulary, const vt_corpus_options *options)
{
    header head;
    memset(&head, 0, sizeof head); /* padding as well: it is in the checksum */
    memcpy(head.magic, "vt token", sizeof head.magic);
    head.version = VERSION;
    head.text_bytes = (int64_t)text->st_size;
    head.text_seconds = (int64_t)text->st_mtim.tv_sec;
    head.text_nanoseconds = (int64_t)text->st_mtim.tv_nsec;
    head.lower = options->lower;
    head.unknown_word = options->unknown_word;
    head.lowers_all = vt_split_lowers_all();
    head.vocabulary_key = vocabulary != NULL ? vt_vocabulary_key(vocabulary) : 0;
    return head;
}

static bool is_as_expected(const header *found, const header *wanted)
{
    return memcmp(found->magic, wanted->magic, sizeof found->magic) == 0 && found->version == wanted->version &&
           found->header_checksum == header_checksum(found) && found->text_bytes == wanted->text_bytes &&
           found->text_seconds == wanted->text_seconds && found->text_nanoseconds == wanted->text_nanoseconds &&
           found->lower == wanted->lower && found->unknown_word == wanted->unknown_word &&
           found->lowers_all == wanted->lowers_all && found->vocabulary_key == wanted->vocabulary_key;
}

static size_t token_bytes(const header *head)
{
    return (size_t)head->token_count * head->token_bytes;
}

/* ---- reading the file ---- */

static bool take_vocabulary(const header *head, const char *tail, vt_corpus *corpus)
{
    const size_t counts = (size_t)head->vocabulary_size * sizeof(int64_t);
    const char *word = tail + counts;
    if (vt_crc32c(tail, counts + (size_t)head->vocabulary_bytes) != head->checksum) return false;
    corpus->vocabulary = vt_vocabulary_open();
    for (int64_t i = 0; i < head->vocabulary_size; i++) {
        int64_t count = 0;
        const size_t length = strlen(word);
        memcpy(&count, tail + (size_t)i * sizeof count, sizeof count);
        vt_vocabulary_add(corpus->vocabulary, word, length, count);
        word += length + 1;
    }
    return true;
}

/* False: there is no such file, or it is not of this text as it is now. */
static bool map_file(const char *path, const header *wanted, vt_corpus *corpus)
{
    header head;
    struct stat info;
    corpus->file = open(path, O_RDONLY | O_CLOEXEC);
    if (corpus->file < 0) return false;
    if (pread(corpus->file, &head, sizeof head, 0) != (ssize_t)sizeof head || !is_as_expected(&head, wanted) ||
        fstat(corpus->file, &info) != 0)
        return false;
    const size_t tail = (size_t)head.vocabulary_size * sizeof(int64_t) + (size_t)head.vocabulary_bytes;
    const size_t bytes = HEADER_BYTES + token_bytes(&head) + tail;
    if ((size_t)info.st_size != bytes) return false;
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, corpus->file, 0);
    if (mapped == MAP_FAILED) return false;
    corpus->mapped = mapped;
    corpus->mapped_bytes = bytes;
    corpus->text_bytes = (double)head.text_bytes;
    corpus->token_count = head.token_count;
    corpus->unknown = head.unknown;
    corpus->words = head.words;
    corpus->has_mark = head.has_mark;
    corpus->kept_upper = head.kept_upper;
    corpus->bytes = (int)head.token_bytes;
    corpus->offset = HEADER_BYTES;
    corpus->tokens = (const char *)mapped + HEADER_BYTES;
    return wanted->vocabulary_key != 0 ||
           take_vocabulary(&head, (const char *)mapped + HEADER_BYTES + token_bytes(&head), corpus);
}

static void unmap_file(vt_corpus *corpus)
{
    char *path = corpus->path;
    if (corpus->mapped != NULL) munmap(corpus->mapped, corpus->mapped_bytes);
    if (corpus->file >= 0) close(corpus->file);
    vt_vocabulary_close(&corpus->vocabulary);
    *corpus = (vt_corpus){.path = path, .file = -1};
}

/* ---- making it ---- */

typedef struct {
    const vt_vocabulary *given;
    vt_vocabulary *own;     /* NULL: the vocabulary was given */
    int32_t unknown_number; /* of <unk>; -1: unknown words are left out */
    int64_t tokens, unknown;
    FILE *file;
    const char *path;
} making;

static vt_status add_word(const char *word, size_t length, void *context)
{
    vt_status status = VT_OK;
    making *m = context;
    int32_t number =
        m->own != NULL ? vt_vocabulary_add(m->own, word, length, 1) : vt_vocabulary_find(m->given, word, length);
    VT_CHECK(number < INT32_MAX - 1, "%s: more words than 32 bits can number", m->path);
    if (number < 0) {
        m->unknown++;
        number = m->unknown_number;
    }
    if (number < 0) return VT_OK;
    m->tokens++;
    VT_CHECK(fwrite(&number, sizeof number, 1, m->file) == 1, "can't write %s: %s", m->path, strerror(errno));
done:
    return status;
}

/* The tokens that stand there with 32 bits each, by their final numbers and with token_bytes each. */
static vt_status renumber(const making *m, const header *head, const int32_t *places)
{
    vt_status status = VT_OK;
    const int file = fileno(m->file);
    int32_t *block = vt_allocate(BLOCK_TOKENS, sizeof *block, "a block of tokens");
    uint16_t *narrow = (uint16_t *)block; /* in its place, front to back */
    for (int64_t first = 0; first < m->tokens; first += BLOCK_TOKENS) {
        const int64_t left = m->tokens - first, count = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
        const ssize_t wide = (ssize_t)count * 4, bytes = (ssize_t)count * (ssize_t)head->token_bytes;
        VT_CHECK(pread(file, block, (size_t)wide, HEADER_BYTES + first * 4) == wide, "can't read %s: %s", m->path,
                 strerror(errno));
        for (int64_t i = 0; i < count && places != NULL; i++) block[i] = places[block[i]];
        for (int64_t i = 0; i < count && head->token_bytes == 2; i++) {
            const uint16_t number = (uint16_t)block[i];
            memcpy(&narrow[i], &number, sizeof number);
        }
        VT_CHECK(pwrite(file, block, (size_t)bytes, HEADER_BYTES + first * head->token_bytes) == bytes,
                 "can't write %s: %s", m->path, strerror(errno));
    }
done:
    free(block);
    return status;
}

static vt_status write_vocabulary(const making *m, header *head)
{
    vt_status status = VT_OK;
    const char *const *words = vt_vocabulary_words(m->own);
    head->vocabulary_size = vt_vocabulary_size(m->own);
    for (int64_t i = 0; i < head->vocabulary_size; i++) head->vocabulary_bytes += (int64_t)strlen(words[i]) + 1;
    const size_t counts = (size_t)head->vocabulary_size * sizeof(int64_t),
                 bytes = counts + (size_t)head->vocabulary_bytes;
    char *tail = vt_allocate(bytes, 1, "a vocabulary"), *next = tail + counts;
    memcpy(tail, vt_vocabulary_counts(m->own), counts);
    for (int64_t i = 0; i < head->vocabulary_size; i++) next = stpcpy(next, words[i]) + 1;
    head->checksum = vt_crc32c(tail, bytes);
    VT_CHECK(fseeko(m->file, HEADER_BYTES + (off_t)token_bytes(head), SEEK_SET) == 0 &&
                 fwrite(tail, 1, bytes, m->file) == bytes,
             "can't write %s: %s", m->path, strerror(errno));
done:
    free(tail);
    return status;
}

/* `text` is mapped. */
static vt_status write_tokens(const char *text, const vt_corpus *corpus, const vt_corpus_options *options, making *m,
                              header *head)
{
    vt_status status = VT_OK;
    vt_split_facts facts;
    int32_t *places = NULL;
    const size_t unknown = sizeof UNKNOWN_WORD - 1;
    m->unknown_number =
        options->unknown_word && m->own == NULL ? vt_vocabulary_find(m->given, UNKNOWN_WORD, unknown) : -1;
    VT_CHECK(!options->unknown_word || m->own != NULL || m->unknown_number >= 0,
             "text_oov unk needs the word " UNKNOWN_WORD
             " in the vocabulary, which doesn't have it; use --text_oov=drop");
    VT_CHECK(fseeko(m->file, HEADER_BYTES, SEEK_SET) == 0, "can't write %s: %s", m->path, strerror(errno));
    VT_TRY(vt_split(text, (size_t)head->text_bytes, corpus->path, options->lower, add_word, m, &facts));
    VT_CHECK(facts.words > 0, "%s: there is no word in it, only white space; give a file with text", corpus->path);
    VT_CHECK(m->own == NULL || vt_vocabulary_size(m->own) > 1,
             "%s: its only word is '%.40s', so that there is nothing to learn; give a file with text", corpus->path,
             vt_vocabulary_words(m->own)[0]);
    if (options->unknown_word && m->own != NULL) vt_vocabulary_add(m->own, UNKNOWN_WORD, unknown, 0);
    const int64_t size = vt_vocabulary_size(m->own != NULL ? m->own : m->given);
    if (m->own != NULL) vt_vocabulary_sort(m->own, &places);
    head->words = facts.words;
    head->has_mark = facts.has_mark;
    head->kept_upper = facts.kept_upper;
    head->unknown = m->unknown;
    head->token_count = m->tokens;
    head->token_bytes = size <= 1 << 16 ? 2 : 4;
    VT_CHECK(fflush(m->file) == 0, "can't write %s: %s", m->path, strerror(errno));
    VT_TRY(renumber(m, head, places));
    VT_CHECK(ftruncate(fileno(m->file), HEADER_BYTES + (off_t)token_bytes(head)) == 0, "can't write %s: %s", m->path,
             strerror(errno));
    if (m->own != NULL) VT_TRY(write_vocabulary(m, head));
    head->header_checksum = header_checksum(head);
    VT_CHECK(fseeko(m->file, 0, SEEK_SET) == 0 && fwrite(head, sizeof *head, 1, m->file) == 1, "can't write %s: %s",
             m->path, strerror(errno));
done:
    free(places);
    return status;
}

/* Under a name of its own, which then becomes `path`: other processes see all of it or nothing. */
static vt_status make_file(const char *path, const vt_corpus *corpus, int text_file, const vt_vocabulary *vocabulary,
                           const vt_corpus_options *options, header head)
{
    vt_status status = VT_OK;
    char *partial = vt_text_format("%s.XXXXXX", path);
    making m = {.given = vocabulary, .path = path};
    void *text = MAP_FAILED;
    const int file = mkstemp(partial);
    VT_CHECK(file >= 0, "can't write %s: %s", path, strerror(errno));
    m.file = fdopen(file, "r+");
    VT_ASSERT(m.file != NULL);
    text = mmap(NULL, (size_t)head.text_bytes, PROT_READ, MAP_PRIVATE, text_file, 0);
    VT_CHECK(text != MAP_FAILED, "%s: can't read it: %s", corpus->path, strerror(errno));
    madvise(text, (size_t)head.text_bytes, MADV_SEQUENTIAL);
    if (vocabulary == NULL) m.own = vt_vocabulary_open();
    VT_TRY(write_tokens(text, corpus, options, &m, &head));
    const bool closed = vt_file_close(m.file, true);
    m.file = NULL;
    VT_CHECK(closed && chmod(partial, 0644) == 0 && rename(partial, path) == 0, "can't write %s: %s", path,
             strerror(errno));
done:
    if (text != MAP_FAILED) munmap(text, (size_t)head.text_bytes);
    if (m.file != NULL) fclose(m.file);
    if (file >= 0 && status != VT_OK) unlink(partial);
    vt_vocabulary_close(&m.own);
    free(partial);
    return status;
}

/* Where the file of a text may be: beside it, or where other_directory says; the second may be NULL. */
static void name_files(const char *path, const vt_corpus_options *options, char *files[3])
{
    char *whole = realpath(path, NULL), *own = vt_text_format("-%lld", (long long)getpid());
    files[0] = vt_text_format("%s.vitrain", path);
    files[1] = files[2] = NULL;
    if (options->other_directory != NULL && whole != NULL)
        files[1] = vt_text_format("%s/text-%016llx%s.vitrain", options->other_directory,
                                  (unsigned long long)vt_random_name_key(whole), options->keep_nothing ? own : "");
    free(whole);
    free(own);
}

static bool map_either(char *const *files, const header *wanted, vt_corpus *corpus)
{
    for (int i = 0; files[i] != NULL; i++) {
        if (map_file(files[i], wanted, corpus)) return true;
        unmap_file(corpus);
    }
    return false;
}

static bool can_write_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash != NULL ? vt_text_format("%.*s", (int)(slash - path) + 1, path) : vt_text_copy(".");
    const bool can = access(directory, W_OK) == 0;
    free(directory);
    return can;
}

vt_status vt_corpus_open(const char *path, const vt_vocabulary *vocabulary, const vt_corpus_options *options,
                         vt_corpus **result)
{
    vt_status status = VT_OK;
    struct stat info;
    char *files[3]; /* NULL ends them */
    vt_corpus *corpus = vt_allocate(1, sizeof *corpus, "a text");
    const int text = open(path, O_RDONLY | O_CLOEXEC);
    *corpus = (vt_corpus){.path = vt_text_copy(path), .file = -1};
    name_files(path, options, files);
    VT_CHECK(text >= 0 && fstat(text, &info) == 0, "%s: can't read it: %s", path, strerror(errno));
    VT_CHECK(S_ISREG(info.st_mode), "%s is not a file; expected a text in UTF-8", path);
    VT_CHECK(info.st_size > 0, "%s is empty; expected a text in UTF-8", path);
    const header wanted = expected(&info, vocabulary, options);
    if (!options->anew && map_either(files, &wanted, corpus)) goto done;
    /* one process makes it and the others wait, where the file system knows locks; elsewhere each makes it */
    if (!options->anew && flock(text, LOCK_EX) == 0 && map_either(files, &wanted, corpus)) goto done;
    const bool elsewhere = files[1] != NULL && (options->keep_nothing || !can_write_beside(path));
    if (elsewhere) VT_TRY(vt_output_make_directory(options->other_directory));
    VT_TRY(make_file(files[elsewhere], corpus, text, vocabulary, options, wanted));
    const bool mapped = map_either(files + elsewhere, &wanted, corpus);
    if (options->keep_nothing) unlink(files[elsewhere]);
    VT_CHECK(mapped, "%s: what was just written can't be read: the text %s is being changed", files[elsewhere], path);
done:
    if (text >= 0) close(text); /* and gives the lock back */
    for (int i = 0; i < 2; i++) free(files[i]);
    if (status != VT_OK) vt_corpus_close(&corpus);
    *result = corpus;
    return status;
}

void vt_corpus_close(vt_corpus **corpus)
{
    if (*corpus == NULL) return;
    unmap_file(*corpus);
    free((*corpus)->path);
    free(*corpus);
    *corpus = NULL;
}

void vt_corpus_read(const vt_corpus *corpus, int64_t first, int64_t count, int32_t *tokens)
{
    const uint16_t *narrow = corpus->tokens;
    if (corpus->bytes == 4) {
        memcpy(tokens, (const int32_t *)corpus->tokens + first, (size_t)count * sizeof *tokens);
        return;
    }
    narrow += first;
    for (int64_t i = 0; i < count; i++) tokens[i] = narrow[i];
}
