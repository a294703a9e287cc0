/* The words that a model knows, numbered from 0 in the order of their bytes, which is that of their code points. */
#ifndef VT_SOURCE_TEXT_VOCABULARY_H
#define VT_SOURCE_TEXT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

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

#endif
