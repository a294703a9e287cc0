#include "source/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "base/whole.h"
#include "storage/output_file.h"

#define UNKNOWN_WORD "<unk>"
enum { VERSION = 4, BLOCK_TOKENS = 1 << 16, TOKEN_BYTES = sizeof(int32_t) };

/* What a text is opened for. */
typedef struct {
    const char *path;
    FILE *text;
    const vt_vocabulary *vocabulary;
    const vt_corpus_options *options;
    vt_corpus_origin wanted;
} opening;

static uint32_t header_checksum(const vt_corpus_header *head)
{
    return vt_crc32c(head, offsetof(vt_corpus_header, header_checksum));
}

static vt_corpus_origin origin_of(const struct stat *text, const vt_vocabulary *vocabulary,
                                  const vt_corpus_options *options)
{
    return (vt_corpus_origin){.magic = {'v', 't', ' ', 't', 'o', 'k', 'e', 'n'},
                              .version = VERSION,
                              .lower = options->lower,
                              .unknown_word = options->unknown_word,
                              .lowers_all = vt_split_lowers_all(),
                              .text_bytes = (int64_t)text->st_size,
                              .text_changed = vt_file_changed(text),
                              .vocabulary_key = vocabulary != NULL ? vt_vocabulary_key(vocabulary) : 0};
}

/* Could a file of so many bytes have this header? */
static bool fits(const vt_corpus_header *head, int64_t bytes)
{
    const int64_t count_bytes = sizeof(int64_t);
    int64_t left = bytes - VT_CORPUS_HEADER_BYTES;
    if (left < 0 || head->token_count < 0 || head->token_count > left / TOKEN_BYTES) return false;
    left -= head->token_count * TOKEN_BYTES;
    return head->vocabulary_size >= 0 && head->vocabulary_size <= left / count_bytes &&
           head->vocabulary_bytes == left - head->vocabulary_size * count_bytes && head->unknown >= 0 &&
           head->words >= 0 && head->words - head->token_count == (head->origin.unknown_word ? 0 : head->unknown);
}

/* ---- reading the file ---- */

/* *most: the largest as a number without a sign. False: they can't be read; errno says why, or is 0 at the end of the
 * file. */
static bool read_tokens(const vt_corpus *corpus, int64_t first, int64_t count, int32_t *tokens, uint32_t *most)
{
    const int64_t bytes = count * TOKEN_BYTES, offset = VT_CORPUS_HEADER_BYTES + first * TOKEN_BYTES;
    *most = 0;
    if (vt_file_read_at(corpus->file, tokens, bytes, offset) != bytes) return false;
    for (int64_t i = 0; i < count; i++) *most = (uint32_t)tokens[i] > *most ? (uint32_t)tokens[i] : *most;
    return true;
}

static bool tokens_are_whole(const vt_corpus *corpus)
{
    uint32_t checksum = 0, most = 0;
    bool whole = true;
    int32_t *block = vt_allocate(BLOCK_TOKENS, sizeof *block, "a block of tokens");
    for (int64_t first = 0; first < corpus->head.token_count && whole; first += BLOCK_TOKENS) {
        const int64_t count = vt_smaller(corpus->head.token_count - first, BLOCK_TOKENS);
        whole = read_tokens(corpus, first, count, block, &most) && most < corpus->word_count;
        checksum = vt_crc32c_more(checksum, block, (size_t)count * sizeof *block);
    }
    free(block);
    return whole && checksum == corpus->head.tokens_checksum;
}

static bool take_vocabulary(vt_corpus *corpus)
{
    const vt_corpus_header *head = &corpus->head;
    const int64_t counts = head->vocabulary_size * (int64_t)sizeof(int64_t), bytes = counts + head->vocabulary_bytes;
    char *tail = vt_allocate((size_t)bytes + 1, 1, "a vocabulary"); /* with a NUL behind its bytes */
    const char *word = tail + counts, *end = tail + bytes;
    int64_t taken = 0;
    bool whole = false;
    if (vt_file_read_at(corpus->file, tail, bytes, VT_CORPUS_HEADER_BYTES + head->token_count * TOKEN_BYTES) != bytes ||
        vt_crc32c(tail, (size_t)bytes) != head->words_checksum)
        goto done;
    corpus->vocabulary = vt_vocabulary_open();
    for (; taken < head->vocabulary_size && word < end; taken++) {
        int64_t count = 0;
        const size_t length = strlen(word);
        memcpy(&count, tail + (size_t)taken * sizeof count, sizeof count);
        if (count < 0 || vt_vocabulary_add(corpus->vocabulary, word, length, count) != taken) break;
        word += length + 1;
    }
    whole = taken == head->vocabulary_size && word == end;
done:
    free(tail);
    return whole;
}

/* Takes corpus->file. False: it is not of this text as it is now, or it is damaged. */
static bool load(const opening *o, const char *path, vt_corpus *corpus, bool *is_damaged)
{
    vt_corpus_header *head = &corpus->head;
    struct stat info;
    *is_damaged = vt_file_read_at(corpus->file, head, sizeof *head, 0) != sizeof *head ||
                  fstat(corpus->file, &info) != 0 ||
                  memcmp(head->origin.magic, o->wanted.magic, sizeof o->wanted.magic) != 0;
    if (*is_damaged || head->origin.version != VERSION) return false;
    *is_damaged = head->header_checksum != header_checksum(head) || !fits(head, (int64_t)info.st_size);
    if (*is_damaged || memcmp(&head->origin, &o->wanted, sizeof o->wanted) != 0) return false;
    corpus->file_path = vt_text_copy(path);
    corpus->word_count = o->vocabulary != NULL ? o->vocabulary->count : head->vocabulary_size;
    *is_damaged =
        (o->vocabulary == NULL && !take_vocabulary(corpus)) || (!o->options->only_words && !tokens_are_whole(corpus));
    return !*is_damaged;
}

static void unload(vt_corpus *corpus)
{
    if (corpus->file >= 0) close(corpus->file);
    free(corpus->file_path);
    vt_vocabulary_close(&corpus->vocabulary);
    *corpus = (vt_corpus){.file = -1};
}

/* ---- making it ---- */

typedef struct {
    vt_vocabulary *own;              /* of the text's own words, which are counted; NULL: one was given */
    const vt_vocabulary *vocabulary; /* by which they are numbered: that one or the given one */
    int32_t unknown_number;          /* of <unk>; -1: unknown words are left out */
    vt_corpus_header head;
    FILE *file;
    const char *path;
} making;

static vt_status add_word(const char *word, size_t length, void *context)
{
    vt_status status = VT_OK;
    const making *m = context;
    VT_CHECK(vt_vocabulary_add(m->own, word, length, 0) < INT32_MAX - 1, "%s: more words than 32 bits can number",
             m->path);
done:
    return status;
}

static vt_status write_word(const char *word, size_t length, void *context)
{
    vt_status status = VT_OK;
    making *m = context;
    int32_t number = vt_vocabulary_find(m->vocabulary, word, length);
    VT_CHECK(number >= 0 || m->own == NULL, "the text of %s was changed while it was read; start again", m->path);
    m->head.unknown += number < 0;
    if (number >= 0 && m->own != NULL) m->own->counts[number]++;
    if (number < 0) number = m->unknown_number;
    if (number < 0) return VT_OK;
    m->head.token_count++;
    m->head.tokens_checksum = vt_crc32c_more(m->head.tokens_checksum, &number, sizeof number);
    VT_CHECK(fwrite(&number, sizeof number, 1, m->file) == 1, "can't write %s: %s", m->path, strerror(errno));
done:
    return status;
}

/* Adds to a file whose errors are found at its end, and to a checksum. */
static void add_to(FILE *file, const void *bytes, size_t size, uint32_t *checksum)
{
    *checksum = vt_crc32c_more(*checksum, bytes, size);
    fwrite(bytes, 1, size, file);
}

static void write_vocabulary(making *m)
{
    vt_corpus_header *head = &m->head;
    head->vocabulary_size = m->own->count;
    add_to(m->file, m->own->counts, (size_t)m->own->count * sizeof *m->own->counts, &head->words_checksum);
    for (int64_t i = 0; i < head->vocabulary_size; i++) {
        const size_t bytes = strlen(m->own->words[i]) + 1;
        head->vocabulary_bytes += (int64_t)bytes;
        add_to(m->file, m->own->words[i], bytes, &head->words_checksum);
    }
}

/* The vocabulary of the text's own words, in order. */
static vt_status find_words(const opening *o, making *m)
{
    vt_status status = VT_OK;
    vt_split_facts facts;
    m->vocabulary = m->own = vt_vocabulary_open();
    VT_TRY(vt_split_file(o->text, o->wanted.text_bytes, o->path, o->options->lower, add_word, m, &facts));
    VT_CHECK(m->own->count != 1,
             "%s: its only word is '%.40s', so that there is nothing to learn; give a file with text", o->path,
             m->own->words[0]);
    if (o->options->unknown_word) vt_vocabulary_add(m->own, UNKNOWN_WORD, sizeof UNKNOWN_WORD - 1, 0);
    vt_vocabulary_sort(m->own);
    rewind(o->text);
done:
    return status;
}

static vt_status write_tokens(const opening *o, making *m)
{
    vt_status status = VT_OK;
    const vt_corpus_options *options = o->options;
    vt_corpus_header *head = &m->head;
    vt_split_facts facts;
    char start[VT_CORPUS_HEADER_BYTES] = {0};
    if (m->vocabulary == NULL) VT_TRY(find_words(o, m));
    m->unknown_number =
        options->unknown_word ? vt_vocabulary_find(m->vocabulary, UNKNOWN_WORD, sizeof UNKNOWN_WORD - 1) : -1;
    VT_CHECK(!options->unknown_word || m->unknown_number >= 0,
             "text_oov unk needs the word " UNKNOWN_WORD
             " in the vocabulary, which doesn't have it; use --text_oov=drop");
    VT_CHECK(fseeko(m->file, VT_CORPUS_HEADER_BYTES, SEEK_SET) == 0, "can't write %s: %s", m->path, strerror(errno));
    VT_TRY(vt_split_file(o->text, o->wanted.text_bytes, o->path, options->lower, write_word, m, &facts));
    VT_CHECK(facts.words > 0, "%s: there is no word in it, only white space; give a file with text", o->path);
    head->words = facts.words;
    head->has_mark = facts.has_mark;
    head->kept_upper = facts.kept_upper;
    if (m->own != NULL) write_vocabulary(m);
    head->header_checksum = header_checksum(head);
    memcpy(start, head, sizeof *head);
    VT_CHECK(!ferror(m->file) && fseeko(m->file, 0, SEEK_SET) == 0 && fwrite(start, sizeof start, 1, m->file) == 1,
             "can't write %s: %s", m->path, strerror(errno));
done:
    return status;
}

/* Under a name of its own, which then becomes `path`: other processes see all of it or nothing. */
static vt_status make_file(const opening *o, const char *path, vt_corpus *corpus)
{
    vt_status status = VT_OK;
    bool is_damaged = false;
    making m = {.vocabulary = o->vocabulary, .head.origin = o->wanted, .path = path};
    char *own = NULL;
    VT_TRY(vt_output_open_own(path, &own, &corpus->file));
    if (o->options->keep_nothing) unlink(own);
    m.file = fdopen(dup(corpus->file), "r+");
    VT_CHECK(m.file != NULL, "can't write %s: %s", path, strerror(errno));
    VT_TRY(write_tokens(o, &m));
    const bool closed = vt_file_close(m.file, true);
    m.file = NULL;
    VT_CHECK(closed && fchmod(corpus->file, 0644) == 0, "can't write %s: %s", path, strerror(errno));
    if (!o->options->keep_nothing) {
        VT_TRY(vt_output_publish(own, path));
        vt_output_remove_leftovers(path);
    }
    VT_CHECK(load(o, path, corpus, &is_damaged), "%s: what was just written can't be read back", path);
done:
    if (m.file != NULL) fclose(m.file);
    if (status != VT_OK && own != NULL) unlink(own);
    vt_vocabulary_close(&m.own);
    free(own);
    return status;
}

/* Where the file of a text may be: beside it, or where other_directory says; the second may be NULL. */
static void name_files(const char *path, const vt_corpus_options *options, char *files[3])
{
    char *whole = realpath(path, NULL);
    files[0] = vt_text_format("%s.vitrain", path);
    files[1] = files[2] = NULL;
    if (options->other_directory != NULL && whole != NULL)
        files[1] = vt_text_format("%s/text-%016llx.vitrain", options->other_directory,
                                  (unsigned long long)vt_random_name_key(whole));
    free(whole);
}

/* *damaged: which of them is. */
static bool load_either(const opening *o, char *const *files, vt_corpus *corpus, const char **damaged)
{
    for (int i = 0; files[i] != NULL; i++) {
        bool is_damaged = false;
        corpus->file = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (corpus->file >= 0 && load(o, files[i], corpus, &is_damaged)) return true;
        if (is_damaged) *damaged = files[i];
        unload(corpus);
    }
    return false;
}

vt_status vt_corpus_open(const char *path, const vt_vocabulary *vocabulary, const vt_corpus_options *options,
                         vt_corpus **result)
{
    vt_status status = VT_OK;
    struct stat info;
    const char *damaged = NULL;
    char *files[3], *directory = NULL; /* files: NULL ends them */
    vt_corpus *corpus = vt_allocate(1, sizeof *corpus, "a text");
    opening o = {.path = path, .vocabulary = vocabulary, .options = options};
    corpus->file = -1;
    name_files(path, options, files);
    VT_TRY(vt_file_open(path, &o.text, NULL));
    VT_CHECK(fstat(fileno(o.text), &info) == 0, "%s: can't read it: %s", path, strerror(errno));
    VT_CHECK(info.st_size > 0, "%s is empty; expected a text in UTF-8", path);
    o.wanted = origin_of(&info, vocabulary, options);
    if (!options->anew && load_either(&o, files, corpus, &damaged)) goto done;
    if (damaged != NULL) vt_log_warning("%s is damaged; its text is split into words again", damaged);
    /* one process makes it and the others wait, where the file system knows locks; elsewhere each makes it */
    if (!options->anew && flock(fileno(o.text), LOCK_EX) == 0 && load_either(&o, files, corpus, &damaged)) goto done;
    directory = vt_file_directory(path);
    const bool elsewhere = files[1] != NULL && (options->keep_nothing || access(directory, W_OK) != 0);
    if (elsewhere) VT_TRY(vt_output_make_directory(options->other_directory));
    status = make_file(&o, files[elsewhere], corpus);
    if (status == VT_OK || options->anew) goto done;
    /* where a lock is seen on its own machine only, another process that was faster takes our file for a leftover */
    unload(corpus);
    if (load_either(&o, files, corpus, &damaged)) {
        vt_error_clear();
        status = VT_OK;
    }
done:
    if (o.text != NULL) fclose(o.text); /* and gives the lock back */
    for (int i = 0; i < 2; i++) free(files[i]);
    free(directory);
    if (status != VT_OK) vt_corpus_close(&corpus);
    *result = corpus;
    return status;
}

void vt_corpus_close(vt_corpus **corpus)
{
    if (*corpus == NULL) return;
    unload(*corpus);
    free(*corpus);
    *corpus = NULL;
}

vt_status vt_corpus_read(const vt_corpus *corpus, int64_t first, int64_t count, int32_t *tokens)
{
    vt_status status = VT_OK;
    uint32_t most = 0;
    VT_CHECK(read_tokens(corpus, first, count, tokens, &most), "%s: can't read words %ld to %ld: %s", corpus->file_path,
             first, first + count - 1,
             errno != 0 ? strerror(errno) : "it has become shorter than it was when it was opened");
    VT_CHECK(most < corpus->word_count,
             "%s: words %ld to %ld have changed since it was opened: one is number %u of %ld", corpus->file_path, first,
             first + count - 1, most, corpus->word_count);
done:
    return status;
}
