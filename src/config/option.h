/* The rows of options.def as a table, and the text form of their values: what config, help and documentation share.
 * Inside of src/config only. */
#ifndef VT_CONFIG_OPTION_H
#define VT_CONFIG_OPTION_H

#include "base/text.h"
#include "config/config.h"

typedef enum {
    VT_ROW_SECTION,
    VT_ROW_INTEGER,
    VT_ROW_REAL,
    VT_ROW_BOOLEAN,
    VT_ROW_CHOICE,
    VT_ROW_PATH,
    VT_ROW_PAIR,
    VT_ROW_RANGE,
    VT_ROW_ALIAS
} vt_row_kind;

typedef struct {
    vt_row_kind kind;
    bool flag_only;     /* not in a YAML file */
    bool is_text;       /* of a path: any text, which names no file */
    bool is_list;       /* of a path: in a YAML file also a list of words */
    bool none_counts;   /* None is a value of its own, not the default */
    bool is_switch;     /* of a path: a switch that may also be given a path */
    const char *name;   /* a section's: its title */
    const char *preset; /* the default, as text */
    const char *help;
    vt_option_id id; /* not of sections and aliases */
    size_t offset;   /* of the field in vt_config */
    int64_t least_integer, most_integer;
    double least_real, most_real;
    const char *choices; /* "a|b|c"; a section's: the kinds of `target` that its options are for */
    const char *target;  /* an alias's: the option that it sets, and to what; "": to what it was given */
    const char *target_value;
} vt_row;

extern const vt_row vt_rows[];
extern const size_t vt_row_count;

/* The row of an option or alias, NULL when there is none. */
const vt_row *vt_row_find(const char *name);

/* Are there options "name.part"? */
bool vt_row_has_parts(const char *name);

/* The known name that is nearest to this one; those of flags that a YAML file may not hold only if wanted. */
const char *vt_row_nearest(const char *name, bool flags_too);

/* The section that a row of a table belongs to. */
const vt_row *vt_row_section(const vt_row *row);

/* Does this row of a table belong to the kinds that the configuration chooses? */
bool vt_row_belongs(const vt_row *row, const vt_config *config);

/* Fails when the option is set but belongs to a kind that is not chosen. A file may set it to its default. */
vt_status vt_row_check_scope(const vt_row *row, const vt_config *config);

/* Not a section, nor an alias. */
static inline bool vt_row_is_option(const vt_row *row)
{
    return row->kind != VT_ROW_SECTION && row->kind != VT_ROW_ALIAS;
}

/* Options that are on or off: as flags they take a value only after '='. */
bool vt_row_is_switch(const vt_row *row);

/* May the option be unset? Otherwise "None" means its default. */
bool vt_row_may_be_unset(const vt_row *row);

/* Is the option's value "not set"? */
bool vt_row_is_unset(const vt_row *row, const vt_config *config);

/* Fails when model, loss or source don't go with the task, or the reader with the source. */
vt_status vt_config_check_kinds(const vt_config *config);

/* Puts the model in the place of auto, and its own defaults in the place of those that nothing has set (presets.c). */
void vt_config_take_presets(vt_config *config);

/* Appends the defaults of models that have their own: "; unet3d: 64; transformer, encoder: 128", each in quotes. */
void vt_row_other_presets(const vt_row *row, const char *quote, vt_text *text);

/* The file of configurations that a run with these flags reads where none is named. */
const char *vt_config_model_file(const vt_config *flags);

/* Sets the option, or what the alias stands for, from text. The error says what is wrong with the text, without the
 * option's name. */
vt_status vt_row_assign(const vt_row *row, const char *text, vt_config *config, vt_origin origin);

/* Appends the option's value as vt_row_assign takes it. */
void vt_row_format(const vt_row *row, const vt_config *config, vt_text *text);

/* "a whole number", ..., and (appended) "1 to 65536": what the option takes. */
const char *vt_row_type(const vt_row *row);
void vt_row_range(const vt_row *row, vt_text *text);

/* Flags into config (flags.c): "--name=value", "--name value", "--switch". */
vt_status vt_flags_apply(vt_config *config, int argument_count, char *const *arguments);

#endif
