/* The source `text`: windows of a text's words, by their numbers. Tensors: "tokens" [seq_len], and "targets" [seq_len],
 * the same one word later; of ranks that share a window their runs of it. A target below 0 counts in no loss. And what
 * it is made of: a text's words, a vocabulary, and the text as their numbers. */
#ifndef VT_SOURCE_TEXT_TEXT_H
#define VT_SOURCE_TEXT_TEXT_H

#include <stdio.h>

#include "data/source.h"

/* ---- text into words as Python's str.lower().split() does it: UTF-8, white space of all of Unicode ---- */

enum { VT_LONGEST_WORD = 1000000 }; /* bytes */

/* What was met on the way. */
typedef struct {
    bool has_mark;   /* a byte order mark at the beginning, which is left out */
    bool kept_upper; /* letters beyond ASCII, of which this build makes no lower case */
    int64_t words;
} vt_split_facts;

/* Calls visit for each word of the first `size` bytes of a file, from where it stands, in order; the word is valid
 * until visit returns. Fails at bytes that are not UTF-8, at NUL and at a word that is too long, with `path`, line and
 * byte; where the file ends before; and when visit fails. */
vt_status vt_split_file(FILE *file, int64_t size, const char *path, bool lower,
                        vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                        vt_split_facts *facts);

/* The same of a text in memory. */
vt_status vt_split(const char *text, size_t size, const char *path, bool lower,
                   vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                   vt_split_facts *facts);

/* Is lower case made beyond ASCII (libunistring)? */
bool vt_split_lowers_all(void);

/* ---- the words that a model knows, numbered from 0 in the order of their bytes, so of their code points ---- */

/* `slots` is a hash table with open addressing: a word's number + 1. */
typedef struct {
    int64_t count;
    const char **words; /* [count], malloc'd as each of them is */
    int64_t *counts;    /* [count]: how often each word was added */
    uint32_t *slots;
    size_t slot_count; /* a power of two, at least twice the words */
} vt_vocabulary;

/* Without words, which get the numbers 0, 1, … as they are added. */
vt_vocabulary *vt_vocabulary_open(void);
void vt_vocabulary_close(vt_vocabulary **vocabulary);

/* The word's number; a word that is not there is added. Its count becomes larger by `times`. */
int32_t vt_vocabulary_add(vt_vocabulary *vocabulary, const char *word, size_t length, int64_t times);

/* -1: it is not there. */
int32_t vt_vocabulary_find(const vt_vocabulary *vocabulary, const char *word, size_t length);

/* Numbers the words by their order, before any is counted. */
void vt_vocabulary_sort(vt_vocabulary *vocabulary);

/* Differs between vocabularies of different words. */
uint64_t vt_vocabulary_key(const vt_vocabulary *vocabulary);

/* From a file with a word a line, in order, as a checkpoint has it; nothing is known of how often they are used. */
vt_status vt_vocabulary_read(const char *path, vt_vocabulary **vocabulary);

/* ---- a text as the numbers of its words: in a file, made once, beside the text; only the words are in memory ---- */

typedef struct {
    bool lower;        /* words in lower case */
    bool unknown_word; /* words that are not in the vocabulary become <unk>; else they are left out */
    /* Where the file goes if it can't be made beside the text; NULL: then an error. */
    const char *other_directory;
    bool keep_nothing; /* the file, which is made in other_directory then, is gone with the process; one that is beside
                          the text and still right is used */
    bool anew;         /* such a file isn't used either */
    bool only_words;   /* tokens will not be read, and are not checked */
} vt_corpus_options;

/* What a file of tokens is made from: it must say exactly this of the text, else it is made anew. */
typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t lower, unknown_word, lowers_all; /* see vt_corpus_options, and vt_split_lowers_all */
    int64_t text_bytes, text_changed;         /* the text's size, and vt_file_changed */
    uint64_t vocabulary_key;                  /* of the vocabulary that it was given; 0: none */
} vt_corpus_origin;

/* The file: this, from VT_CORPUS_HEADER_BYTES on the tokens, 32 bits each, then counts [words of the vocabulary] and
 * the words, each with a NUL at its end. A text that was opened with a vocabulary has no words in its file. */
enum { VT_CORPUS_HEADER_BYTES = 4096 };
typedef struct {
    vt_corpus_origin origin;
    int64_t token_count; /* that are kept */
    int64_t unknown;     /* words of the text that are not in the vocabulary */
    int64_t words; /* of the text; token_count is the same, or less by the unknown ones where these are left out */
    int64_t vocabulary_size, vocabulary_bytes;
    uint32_t has_mark, kept_upper;            /* see vt_split_facts */
    uint32_t words_checksum, tokens_checksum; /* of the words and their counts; of the tokens */
    uint32_t header_checksum, unused;         /* of all before; 0 */
} vt_corpus_header;

typedef struct {
    vt_corpus_header head;
    int file; /* open, with the tokens from VT_CORPUS_HEADER_BYTES on */
    char *file_path;
    int64_t word_count;        /* of the vocabulary: tokens are 0 … word_count - 1 */
    vt_vocabulary *vocabulary; /* of a text that was opened without one: its words, with their counts; else NULL */
} vt_corpus;

/* vocabulary NULL: the text's own words, and <unk> with unknown_word. Of several processes that open a text at once,
 * one makes the file. A damaged file is made anew, which the log says. Fails at what vt_split refuses, at a text
 * without words, and at one whose vocabulary has one word. */
vt_status vt_corpus_open(const char *path, const vt_vocabulary *vocabulary, const vt_corpus_options *options,
                         vt_corpus **corpus);
void vt_corpus_close(vt_corpus **corpus);

/* Reads tokens as 32-bit numbers. Fails if the file is no longer what it was when it was opened: too short, or with
 * numbers of no word. Any thread. */
vt_status vt_corpus_read(const vt_corpus *corpus, int64_t first, int64_t count, int32_t *tokens);

/* ---- the source ---- */

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
