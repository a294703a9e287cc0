#include "config/option.h"

#include <string.h>

#define VT_OTHER_ROW(...) {__VA_ARGS__},
#define VT_ROW(member, name_, type, size, preset_, help_, ...)                                                         \
    {.name = name_,                                                                                                    \
     .preset = preset_,                                                                                                \
     .help = help_,                                                                                                    \
     .in_yaml = true,                                                                                                  \
     .id = VT_OPTION_##member,                                                                                         \
     .offset = offsetof(vt_config, member),                                                                            \
     .origin = offsetof(vt_config, origin[VT_OPTION_##member]),                                                        \
     __VA_ARGS__},

static const vt_row table[] = {{.kind = VT_ROW_END},
#include "config/options.def"
                               {.kind = VT_ROW_END}};
const vt_row *const vt_options = &table[1];

/* ---- names ---- */

const vt_row *vt_row_find(const vt_row *row, const char *name)
{
    for (; row->kind != VT_ROW_END; row++)
        if (row->kind != VT_ROW_SECTION && strcmp(row->name, name) == 0) return row;
    return NULL;
}

const vt_row *vt_row_beside(const vt_row *row, const char *name)
{
    while (row[-1].kind != VT_ROW_END) row--;
    return vt_row_find(row, name);
}

const vt_row *vt_row_meant(const vt_row *row)
{
    return row->kind == VT_ROW_ALIAS ? vt_row_beside(row, row->target) : row;
}

bool vt_row_has_parts(const char *name)
{
    const size_t length = strlen(name);
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++)
        if (strncmp(row->name, name, length) == 0 && row->name[length] == '.') return true;
    return false;
}

const char *vt_row_nearest(const vt_row *rows, const char *name, bool flags_too)
{
    enum { MOST = 512 };
    const char *names[MOST];
    size_t count = 0;
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++) {
        VT_ASSERT(count < MOST);
        if (row->kind != VT_ROW_SECTION && (flags_too || !row->flag_only)) names[count++] = row->name;
    }
    return vt_text_closest(name, names, count);
}

bool vt_row_is_switch(const vt_row *row)
{
    if (row->kind == VT_ROW_ALIAS && row->target_value[0] != '\0') return true;
    row = vt_row_meant(row);
    return row->kind == VT_ROW_BOOLEAN || row->is_switch;
}

bool vt_row_may_be_unset(const vt_row *row)
{
    return row->none_counts || strcmp(row->preset, "None") == 0;
}
