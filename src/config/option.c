#include "config/option.h"

#include <string.h>

enum { MAX_GRID_POINTS = 1 << 20 }; /* on a side of img_size */

#define ROW(kind, flag, name, ...) NAMED_ROW(kind, flag, #name, name, __VA_ARGS__)
#define NAMED_ROW(kind_, flag, text, name_, preset_, help_, ...)                                                       \
    {.kind = kind_,                                                                                                    \
     .flag_only = flag,                                                                                                \
     .name = text,                                                                                                     \
     .preset = preset_,                                                                                                \
     .help = help_,                                                                                                    \
     .id = VT_OPTION_##name_,                                                                                          \
     .offset = offsetof(vt_config, name_),                                                                             \
     __VA_ARGS__},
#define INTEGER_ROW(flag, name, preset, least, most, help)                                                             \
    ROW(VT_ROW_INTEGER, flag, name, preset, help, .least_integer = least, .most_integer = most)
#define VT_SECTION(title) {.kind = VT_ROW_SECTION, .name = title},
#define VT_SCOPE(option, words)                                                                                        \
    {.kind = VT_ROW_SECTION, .name = "Only with " #option " " words, .target = #option, .choices = words},
#define VT_INTEGER(name, ...) INTEGER_ROW(false, name, __VA_ARGS__)
#define VT_REAL(name, preset, least, most, help)                                                                       \
    ROW(VT_ROW_REAL, false, name, preset, help, .least_real = least, .most_real = most)
#define VT_BOOLEAN(name, preset, help) ROW(VT_ROW_BOOLEAN, false, name, preset, help, )
#define WORD(enumerator, word, ...) "|" word
#define VT_CHOICE(name, preset, list, help) ROW(VT_ROW_CHOICE, false, name, preset, help, .choices = &(list(WORD))[1])
#define KIND_WORD(word, kind_help, ...) "|" #word
#define KIND_HELP(word, kind_help, ...) "; " #word ": " kind_help
#define VT_KIND(name, preset, list, help)                                                                              \
    ROW(VT_ROW_CHOICE, false, name, preset, help list(KIND_HELP), .choices = &(list(KIND_WORD))[1])
#define PART_ROW(kind, map, part, ...) NAMED_ROW(kind, false, #map "." #part, map##_##part, __VA_ARGS__)
#define VT_PART_INTEGER(map, part, preset, least, most, help)                                                          \
    PART_ROW(VT_ROW_INTEGER, map, part, preset, help, .least_integer = least, .most_integer = most)
#define VT_PART_REAL(map, part, preset, least, most, help)                                                             \
    PART_ROW(VT_ROW_REAL, map, part, preset, help, .least_real = least, .most_real = most)
#define VT_PART_REAL_OR_NONE(map, part, preset, least, most, help)                                                     \
    PART_ROW(VT_ROW_REAL, map, part, preset, help, .least_real = least, .most_real = most, .none_counts = true)
#define VT_PART_CHOICE(map, part, preset, list, help)                                                                  \
    PART_ROW(VT_ROW_CHOICE, map, part, preset, help, .choices = &(list(WORD))[1])
#define VT_PATH(name, preset, help) ROW(VT_ROW_PATH, false, name, preset, help, )
#define VT_TEXT(name, preset, help) ROW(VT_ROW_PATH, false, name, preset, help, .is_text = true)
#define VT_LIST(name, preset, help) ROW(VT_ROW_PATH, false, name, preset, help, .is_text = true, .is_list = true)
#define VT_SWITCH_PATH(name, preset, help) ROW(VT_ROW_PATH, false, name, preset, help, .is_switch = true)
#define VT_PAIR(name, preset, help)                                                                                    \
    ROW(VT_ROW_PAIR, false, name, preset, help, .least_integer = 1, .most_integer = MAX_GRID_POINTS)
#define VT_RANGE(name, preset, least, most, help)                                                                      \
    ROW(VT_ROW_RANGE, false, name, preset, help, .least_real = least, .most_real = most)
#define VT_FLAG_INTEGER(name, ...) INTEGER_ROW(true, name, __VA_ARGS__)
#define VT_FLAG_BOOLEAN(name, preset, help) ROW(VT_ROW_BOOLEAN, true, name, preset, help, )
#define VT_FLAG_CHOICE(name, preset, list, help)                                                                       \
    ROW(VT_ROW_CHOICE, true, name, preset, help, .choices = &(list(WORD))[1])
#define VT_FLAG_PATH(name, preset, help) ROW(VT_ROW_PATH, true, name, preset, help, )
#define VT_FLAG_TEXT(name, preset, help) ROW(VT_ROW_PATH, true, name, preset, help, .is_text = true)
#define VT_ALIAS(name_, target_, value_, help_)                                                                        \
    {.kind = VT_ROW_ALIAS, .name = #name_, .target = #target_, .target_value = value_, .help = help_},

const vt_row vt_rows[] = {
#include "config/options.def"
};
const size_t vt_row_count = sizeof vt_rows / sizeof vt_rows[0];

/* ---- names ---- */

const vt_row *vt_row_find(const char *name)
{
    for (size_t i = 0; i < vt_row_count; i++) {
        if (vt_rows[i].kind != VT_ROW_SECTION && strcmp(vt_rows[i].name, name) == 0) return &vt_rows[i];
    }
    return NULL;
}

bool vt_row_has_parts(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < vt_row_count; i++)
        if (strncmp(vt_rows[i].name, name, length) == 0 && vt_rows[i].name[length] == '.') return true;
    return false;
}

const char *vt_row_nearest(const char *name, bool flags_too)
{
    const char *names[sizeof vt_rows / sizeof vt_rows[0]];
    size_t count = 0;
    for (size_t i = 0; i < vt_row_count; i++) {
        if (vt_rows[i].kind != VT_ROW_SECTION && (flags_too || !vt_rows[i].flag_only)) names[count++] = vt_rows[i].name;
    }
    return vt_text_closest(name, names, count);
}

bool vt_row_is_switch(const vt_row *row)
{
    if (row->kind != VT_ROW_ALIAS) return row->kind == VT_ROW_BOOLEAN || row->is_switch;
    return row->target_value[0] != '\0' || vt_row_find(row->target)->kind == VT_ROW_BOOLEAN;
}

bool vt_row_may_be_unset(const vt_row *row)
{
    return row->none_counts || strcmp(row->preset, "None") == 0;
}
