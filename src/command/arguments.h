/* Flags of the small subcommands: `--key=value` or `--key value`; a switch, and a flag whose value is optional, take a
 * value only after `=`. Values have the forms of options (vt_integer_parse, …). If a flag is repeated, the last one
 * counts. `vitrain train` has its own, larger table (config/options.def). */
#ifndef VT_COMMAND_ARGUMENTS_H
#define VT_COMMAND_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum {
    VT_ARGUMENT_INTEGER,
    VT_ARGUMENT_REAL,
    VT_ARGUMENT_SWITCH,
    VT_ARGUMENT_PATH,
    VT_ARGUMENT_SWITCH_PATH, /* a switch that may have a path after "="; without one its value is "" */
    VT_ARGUMENT_TEXT,        /* any text that is not a path */
    VT_ARGUMENT_ANY_TEXT,    /* the same, and it may be empty */
    VT_ARGUMENT_PAIR,
    VT_ARGUMENT_CHOICE,
    VT_ARGUMENT_SWITCH_CHOICE /* a switch that may have one of several words after "="; without one it chooses "" */
} vt_argument_kind;

/* The value of a flag that takes one of several words. */
typedef struct {
    const char *chosen;  /* holds the default; NULL: none */
    const char *choices; /* "a|b" */
} vt_argument_choice;

typedef struct {
    const char *name; /* without the dashes */
    vt_argument_kind kind;
    void *value; /* int64_t, double, bool, const char *, int64_t[2], vt_argument_choice; holds the default; texts point
                    into the arguments */
    double least, most; /* of numbers */
    const char *help;
} vt_argument;

/* The help text of a flag --checkpoint, whose value goes to vt_checkpoint_find. */
#define VT_CHECKPOINT_FLAG_HELP "directory of a checkpoint, or of a run (its best one); --checkpoint= may be left out"

/* What the command line of a subcommand may hold. */
typedef struct {
    const char *command;         /* the subcommand's name, in messages */
    const char *help, *help_end; /* what --help prints before and after the lines of the flags; help_end or NULL */
    const vt_argument *flags;
    int64_t flag_count;
    const char *operand_name; /* of the one word without dashes, in messages */
    const char **operand;     /* takes that word; NULL: there is none. A flag whose value is *operand is another way to
                                 give it; giving both is an error */
    bool operand_is_optional;
    bool options; /* the options of a configuration are flags, too */
} vt_command_line;
#define VT_FLAGS(array) .flags = array, .flag_count = sizeof(array) / sizeof(array)[0]

/* Words of a command line, in their order: pointers into it. `words` is malloc'd. */
typedef struct {
    int count;
    char **words;
} vt_words;

/* Parses the command line. *others, which starts as {0}, takes the flags of the configuration, and the words without
 * dashes that are not the operand: also a second operand, unless `options`. others NULL: such words are errors. If
 * --help or -h is present, prints the help instead and returns VT_STOPPED. */
vt_status vt_arguments_parse(const vt_command_line *line, int argument_count, char *const *arguments, vt_words *others);

/* Is --help or -h present? */
bool vt_arguments_ask_help(int argument_count, char *const *arguments);

/* "=N", "[=PATH]", "=a|b", ...: the value as help writes it after the flag's name; malloc'd. */
char *vt_argument_form(const vt_argument *flag);

/* The default as text, "" if there is none to show; malloc'd. */
char *vt_argument_default(const vt_argument *flag);

/* Calls visit(flag, context) for each flag of a subcommand: calls `run` with `arguments`, whose vt_arguments_parse then
 * visits the flags and returns VT_STOPPED. */
void vt_arguments_visit(vt_status (*run)(int argument_count, char *const *arguments), int argument_count,
                        char *const *arguments, void (*visit)(const vt_argument *flag, void *context), void *context);

#endif
