/* The subcommands: each is a file in this folder, or a few, and a row of flags.def. */
#ifndef VT_COMMAND_COMMAND_H
#define VT_COMMAND_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "config/option.h"
#include "parallel/launch.h"

/* Which options of a configuration a subcommand takes as flags, besides its own. */
typedef enum {
    VT_NO_OPTIONS,
    VT_ALL_OPTIONS,
    VT_CHECKPOINT_OPTIONS /* all but --config and --yaml_config: the checkpoint has the configuration */
} vt_taken_options;

/* What it does on several ranks. */
typedef enum {
    VT_RANK_ALONE,     /* it is refused: they would write the same files or lines */
    VT_RANKS_SEPARATE, /* they don't know of each other */
    VT_RANKS_CONNECT   /* they open a world; if it fails before, one rank tells that for all */
} vt_ranks_use;

/* The command line of a subcommand, whose flags were parsed and checked. */
typedef struct {
    void *flags; /* its struct, below */
    int operand_count;
    const char **operands; /* without slashes at their ends */
    int option_count;      /* flags of the configuration */
    char **options;
    const char *line; /* "vitrain 1.0.0 predict RUN --time=…": the version, and the command as it was given */
    vt_launch launch; /* of a subcommand that takes them, or runs on one rank; else one rank */
} vt_call;

/* A row of flags.def, which explains it; --help, man page and completions show it. */
typedef struct {
    const vt_row *(*flags)(void);
    size_t size; /* of their struct */
    vt_status (*run)(const vt_call *call);
    const char *name, *operands;
    int least, most;
    vt_taken_options options;
    vt_ranks_use ranks;
    const char *summary, *help, *help_end;
} vt_subcommand;

extern const vt_subcommand vt_subcommands[];
extern const int vt_subcommand_count;

/* Runs `vitrain [subcommand] arguments...` (arguments begin after the program's name; no subcommand means train) and
 * returns the exit status: 0; 1 if something failed, which has been printed on standard error; 75 if it was stopped and
 * the same command with --resume continues. */
int vt_command_run(int argument_count, char *const *arguments);

/* How many words of its name these begin with (of "bench io" 0 to 2); *rest: its name behind them. */
int vt_subcommand_words(const vt_subcommand *command, int count, char *const *words, const char **rest);

/* What its --help prints. */
void vt_subcommand_print_help(FILE *file, const vt_subcommand *command);

/* The row of the flag "--name", "--name=value" or, where a name is one letter, "-n"; NULL: there is none. */
const vt_row *vt_flag_find(const vt_row *rows, const char *word);

/* ---- the subcommands: of each row of flags.def a function vt_command_<command>, in a file of its name, and a struct
 * vt_<command>_flags with the values of its flags. Defaults and texts are as of options (config/option.h): what is not
 * set is VT_UNSET_INTEGER, NAN or NULL. ---- */

/* Words of the flags that are no option's words, too. */
#define VT_SYNTHETICS(X) X(VT_SYNTHETIC_FIELDS, "vit") X(VT_SYNTHETIC_BOXES, "unet3d") X(VT_SYNTHETIC_TEXT, "text")
#define VT_BENCH_DEVICES(X) X(VT_BENCH_CPU, "cpu") X(VT_BENCH_CUDA, "cuda")
#define VT_BENCH_TYPES(X) X(VT_BENCH_FLOAT32, "none") X(VT_BENCH_BF16, "bf16")
#define VT_SPLITS(X) X(VT_SPLIT_VALID, "valid") X(VT_SPLIT_TEST, "test")
#define VT_SETS(X) X(, "train") X(, "valid") X(, "test") /* vt_set */
#define VT_RULES(X) X(VT_RULES_OFF, "false") X(VT_RULES_ON, "true") X(VT_RULES_MEGATRON, "megatron")
#define VT_SHELLS(X) X(VT_SHELL_BASH, "bash") X(VT_SHELL_ZSH, "zsh") /* -1: none */
#define VT_ENUMERATOR(enumerator, word) enumerator,
enum { VT_SYNTHETICS(VT_ENUMERATOR) };
enum { VT_BENCH_DEVICES(VT_ENUMERATOR) };
enum { VT_BENCH_TYPES(VT_ENUMERATOR) };
enum { VT_SPLITS(VT_ENUMERATOR) };
enum { VT_RULES(VT_ENUMERATOR) };
enum { VT_SHELLS(VT_ENUMERATOR) };
#undef VT_ENUMERATOR

#define VT_OTHER_ROW(...)
#define VT_ROW(member, name, type, size, ...)                                                                          \
    type member size;                                                                                                  \
    vt_origin member##_origin;
#define VT_COMMAND(command, ...) typedef struct {
#define VT_COMMAND_END(command)                                                                                        \
    }                                                                                                                  \
    vt_##command##_flags;                                                                                              \
    vt_status vt_command_##command(const vt_call *call);
#include "command/flags.def"

/* What `vitrain options` makes of the tables of subcommands and of options: the man page, in troff, with today's date
 * or that of SOURCE_DATE_EPOCH; a script for bash or zsh, to be sourced or installed, that completes command lines; and
 * what that script asks for: what may stand in the place of the last of these words, a line each, with its help behind
 * a tab. It is a word, "--flag=", "--flag[=]" (the value may be left out), a value, or "/file" and "/directory" for
 * paths. */
void vt_man_page_print(FILE *file);
void vt_completion_print(FILE *file, bool zsh);
void vt_completion_print_names(FILE *file, const char *lines);

#endif
