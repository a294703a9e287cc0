#include "base/troff.h"

#include <string.h>

#include "base/text.h"

enum { LINE_WIDTH = 78 };

/* The code point of the character at *text; moves *text past it. */
static unsigned next_character(const unsigned char **text)
{
    unsigned first = *(*text)++;
    if (first < 0x80) return first;
    unsigned point = first >= 0xf0 ? first & 0x07 : first >= 0xe0 ? first & 0x0f : first & 0x1f;
    while ((**text & 0xc0) == 0x80) point = point << 6 | (*(*text)++ & 0x3f);
    return point;
}

/* NULL: the character stands for itself. */
static const char *escape_of(unsigned character)
{
    static const struct {
        char character;
        const char *escape;
    } escapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'"', "\\(dq"},
                   {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
        if (character == (unsigned)escapes[i].character) return escapes[i].escape;
    return NULL;
}

static void append_escaped(vt_text *result, const char *text, size_t length)
{
    const unsigned char *next = (const unsigned char *)text, *end = next + length;
    while (next < end) {
        const unsigned character = next_character(&next);
        if (character >= 0x80)
            vt_text_append(result, "\\[u%04X]", character);
        else if (escape_of(character) != NULL)
            vt_text_append(result, "%s", escape_of(character));
        else
            vt_text_append(result, "%c", (int)character);
    }
}

void vt_troff_print(FILE *file, const char *text)
{
    vt_text escaped = {0};
    append_escaped(&escaped, text, strlen(text));
    if (escaped.length > 0) fputs(escaped.characters, file);
    vt_text_close(&escaped);
}

void vt_troff_print_lines(FILE *file, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        vt_text word = {0};
        vt_text_append(&word, "%s", column == 0 && *text == '.' ? "\\&" : "");
        append_escaped(&word, text, length);
        if (column > 0 && column + 1 + word.length > LINE_WIDTH) {
            fputc('\n', file);
            column = 0;
            vt_text_close(&word);
            continue; /* then the word begins the next line */
        }
        if (column > 0) fputc(' ', file);
        fputs(word.characters, file);
        column += (column > 0) + word.length;
        vt_text_close(&word);
        text += length + (text[length] == ' ');
    }
    if (column > 0) fputc('\n', file);
}
