#include "backend/choices.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* A choice is kept as its line: kind, the key's count and numbers, the value's count and numbers (hexadecimal), the
 * checksum of all before it, and the end of the line. */
enum { LONGEST_LINE = 2048 };

struct vt_choices {
    char *machine, *path;
    vt_names lines;
};

/* Whether the line, with its end, is a whole one. */
static bool is_whole(const char *line, size_t length)
{
    enum { CHECKSUM = 10 }; /* with the blank before it, and the end of the line */
    if (length <= CHECKSUM || line[length - 1] != '\n' || line[length - CHECKSUM] != ' ') return false;
    return strspn(line + length - CHECKSUM + 1, "0123456789abcdef") == 8 &&
           strtoul(line + length - CHECKSUM + 1, NULL, 16) == vt_crc32c(line, length - CHECKSUM);
}

static void append_key(vt_text *text, const char *kind, const int64_t *key, int count)
{
    vt_text_append(text, "%s %d ", kind, count);
    for (int i = 0; i < count; i++) vt_text_append(text, "%" PRId64 " ", key[i]);
}

/* How much of a line append_key has written; 0: it begins with no key. */
static size_t key_length(const char *line)
{
    const char *at = strchr(line, ' ');
    char *end = NULL;
    int64_t left = at != NULL ? strtoll(at, &end, 10) : -1;
    for (; left > 0 && end != at; left--) {
        at = end;
        (void)strtoll(at, &end, 10);
    }
    return left == 0 && end != at && *end == ' ' ? (size_t)(end + 1 - line) : 0;
}

/* `line` becomes the choices'; it replaces one of the same key. */
static void put(vt_choices *choices, char *line)
{
    const size_t length = key_length(line);
    for (int64_t i = 0; i < choices->lines.count; i++) {
        if (strncmp(choices->lines.names[i], line, length) != 0) continue;
        free(choices->lines.names[i]);
        choices->lines.names[i] = line;
        return;
    }
    vt_names_take(&choices->lines, line);
}

static int take_lines(vt_choices *choices, const char *lines)
{
    int taken = 0;
    for (size_t length; *lines != '\0'; lines += length) {
        length = strcspn(lines, "\n");
        length += lines[length] == '\n';
        if (!is_whole(lines, length) || key_length(lines) == 0) continue;
        put(choices, vt_text_format("%.*s", (int)length, lines));
        taken++;
    }
    return taken;
}

vt_choices *vt_choices_open(const char *machine, const char *path)
{
    vt_choices *choices = vt_allocate(1, sizeof *choices, "choices");
    choices->machine = vt_text_copy(machine);
    choices->path = path != NULL ? vt_text_copy(path) : NULL;
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL) return choices;
    char line[LONGEST_LINE];
    while (fgets(line, sizeof line, file) != NULL) take_lines(choices, line);
    fclose(file);
    return choices;
}

void vt_choices_close(vt_choices **result)
{
    vt_choices *choices = *result;
    if (choices == NULL) return;
    free(choices->machine);
    free(choices->path);
    vt_names_close(&choices->lines);
    free(choices);
    *result = NULL;
}

bool vt_choices_find(const vt_choices *choices, const char *kind, const int64_t *key, int key_count, uint64_t *value,
                     int value_count)
{
    vt_text text = {0};
    bool found = false;
    char *end;
    append_key(&text, kind, key, key_count);
    vt_text_append(&text, "%d ", value_count);
    for (int64_t i = 0; i < choices->lines.count && !found; i++) {
        char *line = choices->lines.names[i];
        found = strncmp(line, text.characters, text.length) == 0;
        if (found) line += text.length;
        for (int k = 0; k < value_count && found; k++, line = end) {
            value[k] = strtoull(line, &end, 16);
            found = end != line;
        }
    }
    vt_text_close(&text);
    return found;
}

/* One write of one line, so that several ranks may add to the file at once. */
static void append(const vt_choices *choices, const vt_text *line)
{
    int file = choices->path != NULL ? open(choices->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    ssize_t written = write(file, line->characters, line->length);
    (void)written; /* a line that was cut off is left out by who reads it, and the choice made again */
    close(file);
}

void vt_choices_add(vt_choices *choices, const char *kind, const int64_t *key, int key_count, const uint64_t *value,
                    int value_count)
{
    vt_text line = {0};
    VT_ASSERT(strchr(kind, ' ') == NULL);
    append_key(&line, kind, key, key_count);
    vt_text_append(&line, "%d", value_count);
    for (int i = 0; i < value_count; i++) vt_text_append(&line, " %" PRIx64, value[i]);
    vt_text_append(&line, " %08x\n", (unsigned)vt_crc32c(line.characters, line.length));
    VT_ASSERT(line.length < LONGEST_LINE);
    append(choices, &line);
    put(choices, line.characters);
}

char *vt_choices_text(const vt_choices *choices)
{
    vt_text text = {0};
    vt_text_append(&text, "%s\n", choices->machine);
    for (int64_t i = 0; i < choices->lines.count; i++) vt_text_append(&text, "%s", choices->lines.names[i]);
    return text.characters;
}

int vt_choices_take(vt_choices *choices, const char *text)
{
    size_t length = strlen(choices->machine);
    if (strncmp(text, choices->machine, length) != 0 || text[length] != '\n') return 0;
    return take_lines(choices, text + length + 1);
}

char *vt_choices_place(const char *machine)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[900], name[400];
    if (base != NULL && base[0] == '/')
        snprintf(folder, sizeof folder, "%s", base);
    else if (home != NULL && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return NULL;
    mkdir(folder, 0777);
    strncat(folder, "/vitrain", sizeof folder - strlen(folder) - 1);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return NULL;
    snprintf(name, sizeof name, "%s", machine);
    for (char *c = name; *c != '\0'; c++)
        if (*c == ' ' || *c == '/' || *c == ',') *c = '-';
    return vt_text_format("%s/%s", folder, name);
}
