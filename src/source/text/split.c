#define _GNU_SOURCE /* memmem */
#include "source/text/split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
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

enum { PART_BYTES = 1 << 22, LONGEST_CHARACTER = 4 };

/* Some of a text, in memory, and how much of it is before that. */
typedef struct {
    const char *text, *path;
    size_t size;
    bool is_last;
    int64_t bytes, lines;
} text_part;

/* A character that begins before this place is whole; one behind it may go on in the next part. */
static size_t end_of_whole(const text_part *part)
{
    return part->is_last ? part->size : part->size - LONGEST_CHARACTER + 1;
}

static int64_t lines_of(const char *text, size_t size)
{
    int64_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
    return lines;
}

/* Where a place of the text is, for messages. */
static long long line_at(const text_part *part, size_t place)
{
    return part->lines + lines_of(part->text, place) + 1;
}

static long long byte_at(const text_part *part, size_t place)
{
    return part->bytes + (int64_t)place;
}

/* One word's bytes in lower case. */
typedef struct {
    char *bytes;
    size_t length, room;
} lowered;

/* Room for `more` bytes behind those that are there. */
static char *make_room(lowered *result, size_t more)
{
    if (result->room <= result->length + more) {
        result->room = 2 * (result->length + more) + 64;
        result->bytes = vt_reallocate(result->bytes, result->room, 1, "a word");
    }
    return result->bytes + result->length;
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
static void lower_letters(const char *word, size_t length, lowered *result)
{
    for (size_t at = 0; at < length;) {
        const char *next = memmem(word + at, length - at, sigma, SIGMA_BYTES);
        const size_t before = next != NULL ? (size_t)(next - word) - at : length - at;
        size_t made = 0;
        uint8_t *lower = u8_tolower((const uint8_t *)word + at, before, NULL, NULL, NULL, &made);
        if (lower == NULL) vt_memory_exhausted(length, "a word");
        memcpy(make_room(result, made), lower, made);
        result->length += made;
        free(lower);
        at += before;
        if (next == NULL) continue;
        memcpy(make_room(result, SIGMA_BYTES), is_final(word, length, at) ? "\u03C2" : "\u03C3", SIGMA_BYTES);
        result->length += SIGMA_BYTES;
        at += SIGMA_BYTES;
    }
}
#endif

static void lower_word(const char *word, size_t length, bool is_ascii, lowered *result)
{
    result->length = 0;
#ifdef VT_HAS_UNISTRING
    if (!is_ascii) {
        lower_letters(word, length, result);
        return;
    }
#else
    (void)is_ascii;
#endif
    char *lower = make_room(result, length);
    for (size_t i = 0; i < length; i++)
        lower[i] = word[i] >= 'A' && word[i] <= 'Z' ? (char)(word[i] + ('a' - 'A')) : word[i];
    result->length = length;
}

/* The end of the word that begins at `at`, and whether all of it is ASCII. */
static vt_status find_end(const text_part *part, size_t at, size_t *end, bool *is_ascii)
{
    vt_status status = VT_OK;
    const size_t begin = at, whole = end_of_whole(part);
    *is_ascii = true;
    while (at < whole) {
        uint32_t character = (unsigned char)part->text[at];
        int bytes = 1;
        if (character >= 0x80) bytes = vt_text_decode(part->text + at, part->size - at, &character);
        VT_CHECK(bytes > 0,
                 "%s: line %lld, byte %lld of the file, 0x%02x, is not UTF-8; convert the file, for example with "
                 "iconv -f latin1 -t utf-8",
                 part->path, line_at(part, at), byte_at(part, at), (unsigned char)part->text[at]);
        VT_CHECK(character != 0, "%s: line %lld, byte %lld of the file is NUL; a text file was expected", part->path,
                 line_at(part, at), byte_at(part, at));
        if (is_space(character)) break;
        *is_ascii = *is_ascii && character < 0x80;
        at += (size_t)bytes;
        VT_CHECK(
            at - begin <= VT_LONGEST_WORD,
            "%s: line %lld, byte %lld of the file: a word of more than %d bytes begins here; words have blanks between "
            "them",
            part->path, line_at(part, begin), byte_at(part, begin), VT_LONGEST_WORD);
    }
    *end = at;
done:
    return status;
}

/* *taken: the part's bytes without a word at its end that may go on in the next part. */
static vt_status split_part(const text_part *part, bool lower,
                            vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                            vt_split_facts *facts, size_t *taken)
{
    static const char mark[] = "\xEF\xBB\xBF";
    vt_status status = VT_OK;
    lowered word = {0};
    const char *text = part->text;
    size_t at = 0, end = 0;
    if (part->bytes == 0) facts->has_mark = part->size >= 3 && memcmp(text, mark, 3) == 0;
    for (at = part->bytes == 0 && facts->has_mark ? 3 : 0; at < end_of_whole(part); at = end) {
        bool is_ascii = true;
        VT_TRY(find_end(part, at, &end, &is_ascii));
        if (end == at) { /* white space */
            uint32_t character = 0;
            end += (size_t)vt_text_decode(text + at, part->size - at, &character);
            continue;
        }
        if (end >= end_of_whole(part) && !part->is_last) break;
        facts->words++;
        facts->kept_upper = facts->kept_upper || (lower && !is_ascii && !vt_split_lowers_all());
        if (lower) lower_word(text + at, end - at, is_ascii, &word);
        VT_TRY(visit(lower ? word.bytes : text + at, lower ? word.length : end - at, context));
    }
    *taken = at;
done:
    free(word.bytes);
    return status;
}

vt_status vt_split(const char *text, size_t size, const char *path, bool lower,
                   vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                   vt_split_facts *facts)
{
    size_t taken = 0;
    *facts = (vt_split_facts){0};
    return split_part(&(text_part){.text = text, .path = path, .size = size, .is_last = true}, lower, visit, context,
                      facts, &taken);
}

vt_status vt_split_file(int file, int64_t size, const char *path, bool lower,
                        vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                        vt_split_facts *facts)
{
    vt_status status = VT_OK;
    char *memory = vt_allocate(PART_BYTES, 1, "a part of a text");
    text_part part = {.text = memory, .path = path};
    *facts = (vt_split_facts){0};
    while (!part.is_last) {
        size_t taken = 0;
        const int64_t read = part.bytes + (int64_t)part.size, left = size - read,
                      room = PART_BYTES - (int64_t)part.size;
        const int64_t more = left < room ? left : room, got = vt_file_read_at(file, memory + part.size, more, read);
        VT_CHECK(got == more, "%s: can't read it at byte %lld: %s", path, (long long)(read + got),
                 errno != 0 ? strerror(errno) : "it has become shorter than it was when it was opened");
        part.size += (size_t)more;
        part.is_last = more == left;
        VT_TRY(split_part(&part, lower, visit, context, facts, &taken));
        part.lines += lines_of(memory, taken);
        part.bytes += (int64_t)taken;
        part.size -= taken;
        memmove(memory, memory + taken, part.size);
    }
done:
    free(memory);
    return status;
}
