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

/* A line: kind, the key's count and numbers, the value's count and numbers (hexadecimal), the checksum of all before
 * it. */
typedef struct {
    char kind[16];
    int key_count, value_count;
    int64_t key[VT_CHOICE_MOST_NUMBERS];
    uint64_t value[VT_CHOICE_MOST_NUMBERS];
} choice;

struct vt_choices {
    char *machine, *path;
    int count;
    choice *all;
};

static char *line_of(const choice *c)
{
    vt_text text = {0};
    vt_text_append(&text, "%s %d", c->kind, c->key_count);
    for (int i = 0; i < c->key_count; i++) vt_text_append(&text, " %" PRId64, c->key[i]);
    vt_text_append(&text, " %d", c->value_count);
    for (int i = 0; i < c->value_count; i++) vt_text_append(&text, " %" PRIx64, c->value[i]);
    vt_text_append(&text, " %08x\n", (unsigned)vt_crc32c(text.characters, text.length));
    return text.characters;
}

static bool read_count(const char **at, int *count)
{
    char *end;
    long number = strtol(*at, &end, 10);
    if (end == *at || number < 0 || number > VT_CHOICE_MOST_NUMBERS) return false;
    *count = (int)number;
    *at = end;
    return true;
}

/* Whether the line, without its end, is a whole one. */
static bool parse(const char *line, size_t length, choice *c)
{
    char text[2048], *end;
    if (length < 10 || length >= sizeof text) return false;
    memcpy(text, line, length);
    text[length] = '\0';
    const char *checksum = text + length - 9, *at = text;
    if (*checksum != ' ' || strspn(checksum + 1, "0123456789abcdef") != 8) return false;
    if (strtoul(checksum + 1, NULL, 16) != vt_crc32c(text, length - 9)) return false;
    memset(c, 0, sizeof *c);
    size_t word = strcspn(text, " ");
    if (word == 0 || word >= sizeof c->kind) return false;
    memcpy(c->kind, text, word);
    at += word;
    if (!read_count(&at, &c->key_count)) return false;
    for (int i = 0; i < c->key_count; i++, at = end) {
        c->key[i] = strtoll(at, &end, 10);
        if (end == at) return false;
    }
    if (!read_count(&at, &c->value_count)) return false;
    for (int i = 0; i < c->value_count; i++, at = end) {
        c->value[i] = strtoull(at, &end, 16);
        if (end == at) return false;
    }
    return at == checksum;
}

static bool same_key(const choice *c, const char *kind, const int64_t *key, int key_count)
{
    return strcmp(c->kind, kind) == 0 && c->key_count == key_count &&
           memcmp(c->key, key, (size_t)key_count * sizeof *key) == 0;
}

static void put(vt_choices *choices, const choice *c)
{
    for (int i = 0; i < choices->count; i++) {
        if (!same_key(&choices->all[i], c->kind, c->key, c->key_count)) continue;
        choices->all[i] = *c;
        return;
    }
    choices->all = vt_grow(choices->all, (size_t)choices->count, sizeof *choices->all, "choices");
    choices->all[choices->count++] = *c;
}

static int take_lines(vt_choices *choices, const char *lines)
{
    int taken = 0;
    while (*lines != '\0') {
        choice c;
        size_t length = strcspn(lines, "\n");
        if (lines[length] == '\n' && parse(lines, length, &c)) {
            put(choices, &c);
            taken++;
        }
        lines += length + (lines[length] == '\n');
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
    char line[2048];
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
    free(choices->all);
    free(choices);
    *result = NULL;
}

bool vt_choices_find(const vt_choices *choices, const char *kind, const int64_t *key, int key_count, uint64_t *value,
                     int value_count)
{
    for (int i = 0; i < choices->count; i++) {
        const choice *c = &choices->all[i];
        if (!same_key(c, kind, key, key_count) || c->value_count != value_count) continue;
        memcpy(value, c->value, (size_t)value_count * sizeof *value);
        return true;
    }
    return false;
}

/* One write of one line, so that several ranks may add to the file at once. */
static void append(const vt_choices *choices, const choice *c)
{
    int file = choices->path != NULL ? open(choices->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    char *line = line_of(c);
    ssize_t written = write(file, line, strlen(line));
    (void)written; /* a line that was cut off is left out by who reads it, and the choice made again */
    free(line);
    close(file);
}

void vt_choices_add(vt_choices *choices, const char *kind, const int64_t *key, int key_count, const uint64_t *value,
                    int value_count)
{
    choice c = {.key_count = key_count, .value_count = value_count};
    VT_ASSERT(strlen(kind) < sizeof c.kind && strchr(kind, ' ') == NULL);
    VT_ASSERT(key_count <= VT_CHOICE_MOST_NUMBERS && value_count <= VT_CHOICE_MOST_NUMBERS);
    snprintf(c.kind, sizeof c.kind, "%s", kind);
    memcpy(c.key, key, (size_t)key_count * sizeof *key);
    memcpy(c.value, value, (size_t)value_count * sizeof *value);
    put(choices, &c);
    append(choices, &c);
}

char *vt_choices_text(const vt_choices *choices)
{
    vt_text text = {0};
    vt_text_append(&text, "%s\n", choices->machine);
    for (int i = 0; i < choices->count; i++) {
        char *line = line_of(&choices->all[i]);
        vt_text_append(&text, "%s", line);
        free(line);
    }
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
