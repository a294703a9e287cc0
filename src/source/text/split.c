#define _GNU_SOURCE /* memmem */
#include "source/text/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

#ifdef VT_HAS_UNISTRING
#include <unicase.h>
#include <unictype.h>
#endif

bool vt_split_lowers_all(void)
{
#ifdef VT_HAS_UNISTRING
    return true;
#else
    return false;
#endif
}

/* Those of Python's str.isspace(). */
static bool is_space(uint32_t character)
{
    if (character <= 0x20) return character == 0x20 || (character >= 9 && character <= 13) || character >= 0x1C;
    return character == 0x85 || character == 0xA0 || character == 0x1680 ||
           (character >= 0x2000 && character <= 0x200A) || character == 0x2028 || character == 0x2029 ||
           character == 0x202F || character == 0x205F || character == 0x3000;
}

enum { MARK = 0xFEFF, LONGEST_CHARACTER = 4 };

/* A text that is read character by character. */
typedef struct {
    FILE *file;
    const char *path;
    int64_t size, bytes, lines; /* bytes of all of it; bytes that were read, and ends of lines among them */
} text_reader;

/* The next character and its bytes; *length 0: the text ends. */
static vt_status read_character(text_reader *text, char bytes[LONGEST_CHARACTER], int *length, uint32_t *character)
{
    vt_status status = VT_OK;
    const int64_t begin = text->bytes;
    int wanted = 1;
    for (*length = 0; *length < wanted && text->bytes < text->size; text->bytes++) {
        const int byte = getc_unlocked(text->file);
        VT_CHECK(byte != EOF, "%s: can't read it at byte %ld: %s", text->path, text->bytes,
                 ferror(text->file) ? strerror(errno) : "it has become shorter than it was when it was opened");
        if (*length == 0) wanted = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
        bytes[(*length)++] = (char)byte;
    }
    if (*length == 0) goto done;
    *character = (unsigned char)bytes[0];
    VT_CHECK(*character < 0x80 || vt_text_decode(bytes, (size_t)*length, character) == *length,
             "%s: line %ld, byte %ld of the file, 0x%02x, is not UTF-8; convert the file, for example with "
             "iconv -f latin1 -t utf-8",
             text->path, text->lines + 1, begin, (unsigned char)bytes[0]);
    VT_CHECK(*character != 0, "%s: line %ld, byte %ld of the file is NUL; a text file was expected", text->path,
             text->lines + 1, begin);
    text->lines += *character == '\n';
done:
    return status;
}

/* A word's bytes. */
typedef struct {
    char *bytes;
    size_t length, room;
} word_bytes;

static void add_bytes(word_bytes *word, const void *bytes, size_t more)
{
    if (word->room <= word->length + more) {
        word->room = 2 * (word->length + more) + 64;
        word->bytes = vt_reallocate(word->bytes, word->room, 1, "a word");
    }
    memcpy(word->bytes + word->length, bytes, more);
    word->length += more;
}

#ifdef VT_HAS_UNISTRING
static const char sigma[] = "\u03A3";
enum { SIGMA_BYTES = sizeof sigma - 1 };

/* Final_Sigma of the Unicode Standard (table 3-17), as Python has it: before the sigma is a cased letter and after it
 * is none, where characters that are case-ignorable don't count. u8_tolower counts those that are cased as well. */
static bool is_final(const char *word, size_t length, size_t place)
{
    uint32_t character = 0;
    bool found = false;
    for (size_t at = place; at > 0 && !found;) {
        for (at--; (word[at] & 0xC0) == 0x80;) at--;
        (void)vt_text_decode(word + at, length - at, &character);
        found = !uc_is_property_case_ignorable(character);
    }
    if (!found || !uc_is_property_cased(character)) return false;
    for (size_t at = place + SIGMA_BYTES; at < length;) {
        at += (size_t)vt_text_decode(word + at, length - at, &character);
        if (!uc_is_property_case_ignorable(character)) return !uc_is_property_cased(character);
    }
    return true;
}

/* Of letters beyond ASCII only the sigma depends on those around it. */
static void lower_letters(const char *word, size_t length, word_bytes *lower)
{
    for (size_t at = 0; at < length;) {
        const char *next = memmem(word + at, length - at, sigma, SIGMA_BYTES);
        const size_t before = next != NULL ? (size_t)(next - word) - at : length - at;
        size_t made = 0;
        uint8_t *letters = u8_tolower((const uint8_t *)word + at, before, NULL, NULL, NULL, &made);
        if (letters == NULL) vt_memory_exhausted(length, "a word");
        add_bytes(lower, letters, made);
        free(letters);
        at += before;
        if (next == NULL) continue;
        add_bytes(lower, is_final(word, length, at) ? "\u03C2" : "\u03C3", SIGMA_BYTES);
        at += SIGMA_BYTES;
    }
}
#endif

/* In its own bytes, or in *lower, as letters beyond ASCII may take more or fewer of them. */
static const word_bytes *lower_word(word_bytes *word, bool is_ascii, word_bytes *lower)
{
#ifdef VT_HAS_UNISTRING
    lower->length = 0;
    if (!is_ascii) lower_letters(word->bytes, word->length, lower);
    if (!is_ascii) return lower;
#else
    (void)is_ascii, (void)lower;
#endif
    for (size_t i = 0; i < word->length; i++)
        if (word->bytes[i] >= 'A' && word->bytes[i] <= 'Z') word->bytes[i] = (char)(word->bytes[i] + ('a' - 'A'));
    return word;
}

vt_status vt_split_file(FILE *file, int64_t size, const char *path, bool lower,
                        vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                        vt_split_facts *facts)
{
    vt_status status = VT_OK;
    text_reader text = {.file = file, .path = path, .size = size};
    word_bytes word = {0}, lowered = {0};
    char bytes[LONGEST_CHARACTER];
    uint32_t character = 0;
    bool is_ascii = true;
    *facts = (vt_split_facts){0};
    for (int length = 1; length > 0;) {
        VT_TRY(read_character(&text, bytes, &length, &character));
        if (character == MARK && text.bytes == length) {
            facts->has_mark = true;
        } else if (length > 0 && !is_space(character)) {
            add_bytes(&word, bytes, (size_t)length);
            is_ascii = is_ascii && character < 0x80;
            VT_CHECK(word.length <= VT_LONGEST_WORD,
                     "%s: line %ld, byte %ld of the file: a word of more than %d bytes begins here; words have "
                     "blanks between them",
                     path, text.lines + 1, text.bytes - (int64_t)word.length, VT_LONGEST_WORD);
        } else if (word.length > 0) {
            const word_bytes *own = lower ? lower_word(&word, is_ascii, &lowered) : &word;
            facts->words++;
            facts->kept_upper = facts->kept_upper || (lower && !is_ascii && !vt_split_lowers_all());
            VT_TRY(visit(own->bytes, own->length, context));
            word.length = 0;
            is_ascii = true;
        }
    }
done:
    free(word.bytes);
    free(lowered.bytes);
    return status;
}

vt_status vt_split(const char *text, size_t size, const char *path, bool lower,
                   vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                   vt_split_facts *facts)
{
    FILE *file = fmemopen((char *)(uintptr_t)text, size > 0 ? size : 1, "r"); /* it may refuse 0 */
    if (file == NULL) vt_memory_exhausted(size, "a text");
    const vt_status status = vt_split_file(file, (int64_t)size, path, lower, visit, context, facts);
    fclose(file);
    return status;
}
