/* The rows of options.def and of command/flags.def as tables, and the text form of their values: what parsing, help and
 * documentation share. A table is an array of rows; one of kind VT_ROW_END stands before it and one behind it. `values`
 * is the struct that its rows make: vt_config, or that of a subcommand. */
#ifndef VT_CONFIG_OPTION_H
#define VT_CONFIG_OPTION_H

#include "base/text.h"
#include "config/config.h"
#include "config/yaml.h"

typedef enum {
    VT_ROW_END, /* 0 */
    VT_ROW_SECTION,
    VT_ROW_INTEGER,
    VT_ROW_REAL,
    VT_ROW_BOOLEAN,
    VT_ROW_CHOICE,
    VT_ROW_PATH,
    VT_ROW_PAIR,
    VT_ROW_RANGE,
    VT_ROW_ALIAS,
    VT_ROW_OPERAND /* of a subcommand: the flag is another way to give its operand */
} vt_row_kind;

typedef struct {
    vt_row_kind kind;
    bool flag_only;     /* not in a YAML file */
    bool in_yaml;       /* of a path: written to YAML files, so it must be UTF-8 */
    bool is_text;       /* of a path: any text, which names no file */
    bool is_list;       /* of a path: in a YAML file also a list of words */
    bool is_map;        /* of a path: … or a mapping of names to words and lists */
    bool is_any;        /* None has no meaning of its own, and a path may be empty */
    bool none_counts;   /* None is a value of its own, not the default */
    bool is_switch;     /* of a path or a choice: a switch that may also be given a path or a word */
    const char *name;   /* a section's: its title */
    const char *preset; /* the default, as text */
    const char *help;
    vt_option_id id;       /* of options.def; not of sections and aliases */
    size_t offset, origin; /* in the values: the member, and where its value is from (vt_origin) */
    double least, most;    /* of numbers; `most` 2^63: a whole number has no upper limit */
    const char *choices; /* "a|b|c", of a list its words; a section's: the kinds of `target` that its options are for */
    const char *target;  /* an alias's: the option that it sets, and to what; "": to what it was given */
    const char *target_value;
    const char *below_data; /* of a path that is not set: where it is below data_dir; NULL: it stays unset */
} vt_row;

/* The configuration's options. */
extern const vt_row *const vt_options;

/* The row of an option or alias of this name in the table that begins at `rows`, or in the table that a row is in; NULL
 * when there is none. */
const vt_row *vt_row_find(const vt_row *rows, const char *name);
const vt_row *vt_row_beside(const vt_row *row, const char *name);

/* The row that says what values the row takes: itself, or what it is another name of. */
const vt_row *vt_row_meant(const vt_row *row);

/* Are there options "name.part"? */
bool vt_row_has_parts(const char *name);

/* What to say of a name that is in neither table (`more` may be NULL): "; did you mean --lr?", another sentence, or "".
 * dashes "--": of a flag; "": of a key, and then of no row that a YAML file may not hold. Malloc'd. */
char *vt_row_advice(const vt_row *rows, const vt_row *more, const char *name, const char *dashes);

/* The section that a row of a table belongs to; NULL: it has none. */
const vt_row *vt_row_section(const vt_row *row);

/* Does this row of a table belong to the kinds that the values choose? */
bool vt_row_belongs(const vt_row *row, const void *values);

/* Fails when the option is set but belongs to a kind that is not chosen. A file may set it to its default. */
vt_status vt_row_check_scope(const vt_row *row, const void *values);

/* How many of the words of a list are among the choices "a|b|c"; an epoch behind one, as in "mse, crps@24", is not
 * looked at. *words, unless NULL: how many it has. */
int vt_words_among(const char *list, const char *choices, int *words);

/* Fails at the first word of a list that is none of `words`, which NULL ends. */
vt_status vt_config_check_words(const char *option, const char *list, const char *const *words);

/* Does the row have a member of the values? */
static inline bool vt_row_is_option(const vt_row *row)
{
    return row->kind > VT_ROW_SECTION && row->kind < VT_ROW_ALIAS;
}

/* Options that are on or off: as flags they take a value only after '='. */
bool vt_row_is_switch(const vt_row *row);

/* May the option be unset? Otherwise "None" means its default. */
bool vt_row_may_be_unset(const vt_row *row);

/* Is the option's value "not set"? */
bool vt_row_is_unset(const vt_row *row, const void *values);

/* Is it the option's default? */
bool vt_row_is_default(const vt_row *row, const vt_config *config);

/* Where the option's value is from. */
static inline vt_origin *vt_row_origin(const vt_row *row, const void *values)
{
    return (vt_origin *)((char *)(uintptr_t)values + row->origin);
}

/* Fails when model, loss or source don't go with the task, or the reader with the source. */
vt_status vt_config_check_kinds(const vt_config *config);

/* A part of the mapping lr_schedule selects the schedule parts, unless the command line names another schedule and the
 * part is the file's. Before the options' scopes are checked. */
vt_status vt_config_choose_schedule(vt_config *config);

/* Of the optimizer, the learning rate and fp16's loss scale: what follows, and what doesn't go together. */
vt_status vt_config_resolve_optimizer(vt_config *config);

/* Puts the model in the place of auto, and its own defaults in the place of those that nothing has set (presets.c). */
void vt_config_take_presets(vt_config *config);

/* Appends the defaults of models that have their own: "; unet3d: 64; transformer, encoder: 128", each in quotes. */
void vt_row_other_presets(const vt_row *row, const char *quote, vt_text *text);

/* The model that the configuration chooses, also while it says auto. */
vt_model_name vt_config_model_of(const vt_config *config);

/* Sets the option, or what the alias stands for, from text. The error says what is wrong with the text, without the
 * option's name. */
vt_status vt_row_assign(const vt_row *row, const char *text, void *values, vt_origin origin);

/* The same from its value in a YAML file, where lists and mappings may stand for their text. The error names the place
 * and the row. */
vt_status vt_row_read(const vt_row *row, const vt_yaml_node *value, void *values);

/* All members to their defaults, in zeroed memory; and freeing what they own. */
void vt_rows_start(const vt_row *rows, void *values);
void vt_rows_free(const vt_row *rows, void *values);

/* Appends the option's value as vt_row_assign takes it. */
void vt_row_format(const vt_row *row, const void *values, vt_text *text);
/* Appends the option and its value as a line of a configuration in a YAML file. */
void vt_row_save(const vt_row *row, const vt_config *config, vt_text *yaml);

/* Appends "1 to 65536": what the option takes. */
void vt_row_range(const vt_row *row, vt_text *text);

/* All rows of a table, for a terminal. */
void vt_rows_print(FILE *file, const vt_row *rows);

/* Flags (flags.c): "--name=value", "--name value", "--switch". All of a configuration: */
vt_status vt_flags_apply(vt_config *config, int argument_count, char *const *arguments);

/* The value of the flag at arguments[*at], whose row is known; *at moves to its last word. */
vt_status vt_flag_value(const vt_row *row, int argument_count, char *const *arguments, int *at, const char **value);

/* vt_row_assign with the origin VT_FROM_COMMAND_LINE; errors name the flag. */
vt_status vt_flag_assign(const vt_row *row, const char *value, void *values);

#endif
