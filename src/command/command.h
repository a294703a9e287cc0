/* The subcommands: each is one thin file in this folder and a row of the table in command.c. */
#ifndef VT_COMMAND_COMMAND_H
#define VT_COMMAND_COMMAND_H

#include <stdbool.h>

#include "base/status.h"

/* Which options of a configuration a subcommand takes as flags, besides its own. */
typedef enum {
    VT_NO_OPTIONS,
    VT_ALL_OPTIONS,
    VT_CHECKPOINT_OPTIONS /* all but --config and --yaml_config: the checkpoint has the configuration */
} vt_taken_options;

/* A row of the table of subcommands, which --help, man page and completions show. Arguments exclude the subcommand's
 * name. Each handles --help itself, except train. */
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

/* `vitrain options`, in options.c. */
vt_status vt_command_options(int argument_count, char *const *arguments);

/* `vitrain version`, in version.c. */
vt_status vt_command_version(int argument_count, char *const *arguments);

/* The output of `git describe` when the program was built. */
const char *vt_version(void);

#endif
