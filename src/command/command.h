/* The subcommands: each is one thin file in this folder and a row of the table in command.c. */
#ifndef VT_COMMAND_COMMAND_H
#define VT_COMMAND_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Which options of a configuration a subcommand takes as flags, besides its own. */
typedef enum {
    VT_NO_OPTIONS,
    VT_ALL_OPTIONS,
    VT_CHECKPOINT_OPTIONS /* all but --config and --yaml_config: the checkpoint has the configuration */
} vt_taken_options;

/* A row of the table of subcommands, which --help, man page and completions show. Arguments exclude the subcommand's
 * name. With --help each prints its help and returns VT_STOPPED, except train. */
typedef struct {
    const char *name, *word; /* word: the second one, of `bench io`; else NULL */
    const char *operands;    /* "DIR": words without dashes, which name directories; NULL: none */
    const char *summary;
    vt_status (*run)(int argument_count, char *const *arguments);
    bool alone; /* runs on one rank: several would write the same files or lines */
    vt_taken_options options;
} vt_subcommand;

extern const vt_subcommand vt_subcommands[];
extern const int vt_subcommand_count;

/* Runs `vitrain [subcommand] arguments...` (arguments begin after the program's name; no subcommand means train) and
 * returns the exit status: 0; 1 if something failed, which has been printed on standard error; 75 if it was stopped and
 * the same command with --resume continues. */
int vt_command_run(int argument_count, char *const *arguments);

/* Each in a file of its name. */
vt_status vt_command_train(int argument_count, char *const *arguments);
vt_status vt_command_npy(int argument_count, char *const *arguments);
vt_status vt_command_synth(int argument_count, char *const *arguments);
vt_status vt_command_stats(int argument_count, char *const *arguments);
vt_status vt_command_bench(int argument_count, char *const *arguments);
vt_status vt_command_bench_io(int argument_count, char *const *arguments);
vt_status vt_command_bench_kernels(int argument_count, char *const *arguments);
vt_status vt_command_export(int argument_count, char *const *arguments);
vt_status vt_command_evaluate(int argument_count, char *const *arguments);
vt_status vt_command_predict(int argument_count, char *const *arguments);
vt_status vt_command_generate(int argument_count, char *const *arguments);
vt_status vt_command_watch(int argument_count, char *const *arguments);
vt_status vt_command_report(int argument_count, char *const *arguments);
vt_status vt_command_inspect(int argument_count, char *const *arguments);
vt_status vt_command_layout(int argument_count, char *const *arguments);
vt_status vt_command_plan(int argument_count, char *const *arguments);
vt_status vt_command_options(int argument_count, char *const *arguments);
vt_status vt_command_version(int argument_count, char *const *arguments);

/* What `vitrain options` makes of the tables of subcommands and of options: the man page, in troff, with today's date
 * or that of SOURCE_DATE_EPOCH; a script for bash or zsh, to be sourced or installed, that completes command lines; and
 * what that script asks for: what may follow the words of a command line, "", "stats" or "bench io", a line each, with
 * its help behind a tab: a word, "--flag=VALUES", "--flag:VALUES" (the value may be left out), or "/" for directories.
 */
void vt_man_page_print(FILE *file);
void vt_completion_print(FILE *file, bool zsh);
void vt_completion_print_names(FILE *file, const char *words);

#endif
