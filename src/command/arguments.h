/* Flags of the small subcommands: `--key=value` or `--key value`; a switch, and a flag whose value may be left out,
 * take one only after `=`. The last of several wins. `vitrain train` has its own, larger table (config/options.def). */
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
    VT_ARGUMENT_SWITCH_PATH, /* a switch that may be given a path behind "="; without one its value is "" */
    VT_ARGUMENT_TEXT,        /* any other than a path's */
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

/* What the help says of a flag --checkpoint, whose value vt_checkpoint_find is given. */
#define VT_CHECKPOINT_FLAG_HELP "the directory of a checkpoint, or of a run (its best one); the word alone will do"

/* The meaning of a command line: `flags` [flag_count], and one word without dashes, named `operand_name` in messages,
 * in *operand. A flag whose value is *operand is another way to give it; both at once are an error. *help is true, and
 * the rest unset, when --help or -h is among them. `command` is the subcommand's name. */
vt_status vt_arguments_parse(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, const char *operand_name, const char **operand, bool *help);

/* For subcommands that take the flags of a configuration, too: the meaning of the `flags`, and all other words, in
 * their order, in *others (malloc'd). A flag that is neither one of `flags` nor an option's is an error. *help as
 * above. */
vt_status vt_arguments_take(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                            int64_t flag_count, int *other_count, char ***others, bool *help);

/* The same, and one word without dashes, which may be left out, in *operand (NULL, or the value of a flag, before), as
 * with vt_arguments_parse. */
vt_status vt_arguments_take_with(const char *command, int argument_count, char *const *arguments,
                                 const vt_argument *flags, int64_t flag_count, const char *operand_name,
                                 const char **operand, int *other_count, char ***others, bool *help);

/* For subcommands that take any number of words: the `flags`, and the words (malloc'd). */
vt_status vt_arguments_words(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, int *word_count, char ***words, bool *help);

/* Is --help or -h among them? */
bool vt_arguments_ask_help(int argument_count, char *const *arguments);

/* Prints a line a flag on standard output, with the values they hold as defaults. */
void vt_arguments_print(const vt_argument *flags, int64_t flag_count);

/* "=N", "[=PATH]", "=a|b", ...: the value as help writes it behind the flag's name; malloc'd. */
char *vt_argument_form(const vt_argument *flag);

/* The default as text, "" where there is none to show; malloc'd. */
char *vt_argument_default(const vt_argument *flag);

/* Calls visit(flag, context) for each flag of a subcommand: `run` is called with `arguments`, and the first
 * vt_arguments_parse or vt_arguments_take that it makes shows its flags and returns VT_STOPPED. */
void vt_arguments_visit(vt_status (*run)(int argument_count, char *const *arguments), int argument_count,
                        char *const *arguments, void (*visit)(const vt_argument *flag, void *context), void *context);

#endif
