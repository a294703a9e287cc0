#include "source/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

static uint64_t hash_of(const char *bytes, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

vt_vocabulary *vt_vocabulary_open(void)
{
    vt_vocabulary *own = vt_allocate(1, sizeof *own, "a vocabulary");
    own->slot_count = 1 << 12;
    own->slots = vt_allocate(own->slot_count, sizeof *own->slots, "a vocabulary");
    return own;
}

void vt_vocabulary_close(vt_vocabulary **vocabulary)
{
    vt_vocabulary *own = *vocabulary;
    if (own == NULL) return;
    vt_text_free_list((char **)own->words, own->count);
    free(own->counts);
    free(own->slots);
    free(own);
    *vocabulary = NULL;
}

/* The slot of the word, or the free one where it belongs. */
static size_t slot_of(const vt_vocabulary *own, const char *word, size_t length)
{
    size_t slot = hash_of(word, length) & (own->slot_count - 1);
    for (; own->slots[slot] != 0; slot = (slot + 1) & (own->slot_count - 1)) {
        const char *other = own->words[own->slots[slot] - 1];
        if (strncmp(other, word, length) == 0 && other[length] == '\0') break;
    }
    return slot;
}

static void fill_slots(vt_vocabulary *own)
{
    memset(own->slots, 0, own->slot_count * sizeof *own->slots);
    for (int64_t i = 0; i < own->count; i++)
        own->slots[slot_of(own, own->words[i], strlen(own->words[i]))] = (uint32_t)i + 1;
}

int32_t vt_vocabulary_find(const vt_vocabulary *vocabulary, const char *word, size_t length)
{
    return (int32_t)vocabulary->slots[slot_of(vocabulary, word, length)] - 1;
}

int32_t vt_vocabulary_add(vt_vocabulary *own, const char *word, size_t length, int64_t times)
{
    size_t slot = slot_of(own, word, length);
    if (own->slots[slot] == 0) {
        own->words = vt_grow(own->words, (size_t)own->count, sizeof *own->words, "a vocabulary");
        own->counts = vt_grow(own->counts, (size_t)own->count, sizeof *own->counts, "a vocabulary");
        own->words[own->count] = vt_text_format("%.*s", (int)length, word);
        own->counts[own->count++] = 0;
        if ((size_t)own->count * 2 > own->slot_count) {
            own->slot_count *= 2;
            own->slots = vt_reallocate(own->slots, own->slot_count, sizeof *own->slots, "a vocabulary");
            fill_slots(own);
            slot = slot_of(own, word, length);
        }
        own->slots[slot] = (uint32_t)own->count;
    }
    const int32_t number = (int32_t)own->slots[slot] - 1;
    own->counts[number] += times;
    return number;
}

void vt_vocabulary_sort(vt_vocabulary *own)
{
    if (own->count > 0) qsort(own->words, (size_t)own->count, sizeof *own->words, vt_by_name);
    fill_slots(own);
}

uint64_t vt_vocabulary_key(const vt_vocabulary *vocabulary)
{
    uint64_t key = (uint64_t)vocabulary->count;
    for (int64_t i = 0; i < vocabulary->count; i++)
        key = (key ^ hash_of(vocabulary->words[i], strlen(vocabulary->words[i]))) * 0x9E3779B97F4A7C15u;
    return key;
}

vt_status vt_vocabulary_read(const char *path, vt_vocabulary **vocabulary)
{
    vt_status status = VT_OK;
    char *line = NULL;
    size_t size = 0, length;
    vt_vocabulary *own = vt_vocabulary_open();
    FILE *file = NULL;
    VT_TRY(vt_file_open(path, &file, NULL));
    while ((length = vt_file_line(file, &line, &size)) > 0) {
        if (line[length - 1] == '\n') length--;
        VT_CHECK(length < VT_FILE_LONGEST_LINE, "%s: line %ld is longer than a word can be; expected a word a line",
                 path, own->count + 1);
        VT_CHECK(length > 0 && memchr(line, '\0', length) == NULL && vt_vocabulary_find(own, line, length) < 0,
                 "%s: line %ld is empty, holds NUL or stands there twice; expected a word a line", path,
                 own->count + 1);
        vt_vocabulary_add(own, line, length, 0);
    }
    VT_CHECK(!ferror(file), "%s: can't read the vocabulary: %s", path, strerror(errno));
    VT_CHECK(own->count > 1, "%s: a vocabulary has at least two words, this one has %ld", path, own->count);
done:
    if (file != NULL) fclose(file);
    free(line);
    if (status != VT_OK) vt_vocabulary_close(&own);
    *vocabulary = own;
    return status;
}
