/* Flags of the small subcommands: `--key=value` or `--key value`; a switch, and a flag whose value is optional, take a
 * value only after `=`. If a flag is repeated, the last one counts. `vitrain train` has its own, larger table
 * (config/options.def). */
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
    VT_ARGUMENT_PAIR,
    VT_ARGUMENT_CHOICE
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

/* Parses a command line: `flags` [flag_count], and one word without dashes, called `operand_name` in messages, into
 * *operand. A flag whose value is *operand is another way to give it; giving both is an error. If --help or -h is
 * present, *help is true and the rest is not set. `command` is the subcommand's name. */
vt_status vt_arguments_parse(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, const char *operand_name, const char **operand, bool *help);

/* For subcommands that also take a configuration's options as flags: parses `flags`, and returns all other words in
 * order in *others (malloc'd). A flag that is neither in `flags` nor an option is an error. *help as above. */
vt_status vt_arguments_take(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                            int64_t flag_count, int *other_count, char ***others, bool *help);

/* The same with one optional word without dashes in *operand (before: NULL, or the value of a flag), as in
 * vt_arguments_parse. */
vt_status vt_arguments_take_with(const char *command, int argument_count, char *const *arguments,
                                 const vt_argument *flags, int64_t flag_count, const char *operand_name,
                                 const char **operand, int *other_count, char ***others, bool *help);

/* For subcommands that take any number of words: parses `flags`, and returns the words (malloc'd). */
vt_status vt_arguments_words(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, int *word_count, char ***words, bool *help);

/* Is --help or -h present? */
bool vt_arguments_ask_help(int argument_count, char *const *arguments);

/* Prints a line for each flag on standard output, with its present value as the default. */
void vt_arguments_print(const vt_argument *flags, int64_t flag_count);

/* "=N", "[=PATH]", "=a|b", ...: the value as help writes it after the flag's name; malloc'd. */
char *vt_argument_form(const vt_argument *flag);

/* The default as text, "" if there is none to show; malloc'd. */
char *vt_argument_default(const vt_argument *flag);

/* Calls visit(flag, context) for each flag of a subcommand: calls `run` with `arguments`; its first vt_arguments_parse
 * or vt_arguments_take then visits its flags and returns VT_STOPPED. */
void vt_arguments_visit(vt_status (*run)(int argument_count, char *const *arguments), int argument_count,
                        char *const *arguments, void (*visit)(const vt_argument *flag, void *context), void *context);

#endif
