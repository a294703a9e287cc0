/* What the rows of options.def and command/flags.def are made of. A row becomes one of two macros, which the file that
 * includes the list defines for its purpose:
 * VT_ROW(member, name, type, size, default, help, …): it has a value, `type member size;` of a struct
 * VT_OTHER_ROW(…): it has none
 * … are members of its vt_row (option.h). */
#ifndef VT_CONFIG_ROWS_H
#define VT_CONFIG_ROWS_H

#define VT_SECTION(title) VT_OTHER_ROW(.kind = VT_ROW_SECTION, .name = title)
#define VT_SCOPE(option, words)                                                                                        \
    VT_OTHER_ROW(.kind = VT_ROW_SECTION, .name = "Only with " #option " " words, .target = #option, .choices = words)
#define VT_ALIAS(older, option, value, text)                                                                           \
    VT_OTHER_ROW(.kind = VT_ROW_ALIAS, .name = #older, .target = #option, .target_value = value, .help = text)
#define VT_OPERAND(flag, text) VT_OTHER_ROW(.kind = VT_ROW_OPERAND, .name = #flag, .preset = "None", .help = text)

#define VT_NUMBER_ROW(member, name, type, size, of_kind, preset, from, to, help, ...)                                  \
    VT_ROW(member, name, type, size, preset, help, .kind = of_kind, .least = (double)(from), .most = (double)(to),     \
           __VA_ARGS__)
#define VT_INTEGER_ROW(member, name, ...) VT_NUMBER_ROW(member, name, int64_t, , VT_ROW_INTEGER, __VA_ARGS__)
#define VT_REAL_ROW(member, name, ...) VT_NUMBER_ROW(member, name, double, , VT_ROW_REAL, __VA_ARGS__)
#define VT_CHOICE_ROW(member, name, preset, list, help, ...)                                                           \
    VT_ROW(member, name, int, , preset, help, .kind = VT_ROW_CHOICE, .choices = &(list)[1], __VA_ARGS__)
#define VT_PATH_ROW(name, preset, help, ...)                                                                           \
    VT_ROW(name, #name, char *, , preset, help, .kind = VT_ROW_PATH, __VA_ARGS__)
#define VT_WORD(enumerator, word, ...) "|" word
#define VT_KIND_WORD(word, help, ...) "|" #word
#define VT_KIND_HELP(word, help, ...) "; " #word ": " help

#define VT_INTEGER(name, ...) VT_INTEGER_ROW(name, #name, __VA_ARGS__, )
#define VT_REAL(name, ...) VT_REAL_ROW(name, #name, __VA_ARGS__, )
#define VT_BOOLEAN(name, preset, help) VT_ROW(name, #name, bool, , preset, help, .kind = VT_ROW_BOOLEAN)
#define VT_CHOICE(name, preset, list, help) VT_CHOICE_ROW(name, #name, preset, list(VT_WORD), help, )
#define VT_KIND(name, preset, list, help)                                                                              \
    VT_CHOICE_ROW(name, #name, preset, list(VT_KIND_WORD), help list(VT_KIND_HELP), )
#define VT_KIND_LIST(name, preset, list, help)                                                                         \
    VT_PATH_ROW(name, preset, help list(VT_KIND_HELP), .is_text = true, .is_list = true,                               \
                .choices = &(list(VT_KIND_WORD))[1])
#define VT_PATH(name, preset, help) VT_PATH_ROW(name, preset, help, )
#define VT_DATA_PATH(name, place, help)                                                                                \
    VT_PATH_ROW(name, "None", help "; not set: <data_dir>/" place, .below_data = place)
#define VT_TEXT(name, preset, help) VT_PATH_ROW(name, preset, help, .is_text = true)
#define VT_ANY_TEXT(name, preset, help) VT_PATH_ROW(name, preset, help, .is_text = true, .is_any = true)
#define VT_LIST(name, preset, help) VT_PATH_ROW(name, preset, help, .is_text = true, .is_list = true)
#define VT_MAP(name, preset, help) VT_PATH_ROW(name, preset, help, .is_text = true, .is_map = true)
#define VT_SWITCH_PATH(name, preset, help) VT_PATH_ROW(name, preset, help, .is_switch = true)
#define VT_SWITCH_CHOICE(name, preset, list, help)                                                                     \
    VT_CHOICE_ROW(name, #name, preset, list(VT_WORD), help, .is_switch = true)
#define VT_PAIR(name, ...) VT_NUMBER_ROW(name, #name, int64_t, [2], VT_ROW_PAIR, __VA_ARGS__, )
#define VT_RANGE(name, ...) VT_NUMBER_ROW(name, #name, double, [2], VT_ROW_RANGE, __VA_ARGS__, )

#define VT_PART_INTEGER(map, part, ...) VT_INTEGER_ROW(map##_##part, #map "." #part, __VA_ARGS__, )
#define VT_PART_REAL(map, part, ...) VT_REAL_ROW(map##_##part, #map "." #part, __VA_ARGS__, )
#define VT_PART_REAL_OR_NONE(map, part, ...) VT_REAL_ROW(map##_##part, #map "." #part, __VA_ARGS__, .none_counts = true)
#define VT_PART_CHOICE(map, part, preset, list, help)                                                                  \
    VT_CHOICE_ROW(map##_##part, #map "." #part, preset, list(VT_WORD), help, )

#define VT_FLAG_INTEGER(name, ...) VT_INTEGER_ROW(name, #name, __VA_ARGS__, .flag_only = true)
#define VT_FLAG_BOOLEAN(name, preset, help)                                                                            \
    VT_ROW(name, #name, bool, , preset, help, .kind = VT_ROW_BOOLEAN, .flag_only = true)
#define VT_FLAG_CHOICE(name, preset, list, help)                                                                       \
    VT_CHOICE_ROW(name, #name, preset, list(VT_WORD), help, .flag_only = true)
#define VT_FLAG_PATH(name, preset, help) VT_PATH_ROW(name, preset, help, .flag_only = true)
#define VT_FLAG_TEXT(name, preset, help) VT_PATH_ROW(name, preset, help, .is_text = true, .flag_only = true)

#endif
