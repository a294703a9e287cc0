/* A text as the numbers of its words: made once, in a file beside the text. Nothing but the vocabulary is in memory. */
#ifndef VT_SOURCE_TEXT_CORPUS_H
#define VT_SOURCE_TEXT_CORPUS_H

#include "source/text/vocabulary.h"

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
 * the words, each with a NUL at its end; of a text that was given a vocabulary no words. */
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
    int64_t word_count;        /* tokens are less */
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

#endif
