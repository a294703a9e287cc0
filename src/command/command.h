/* The subcommands: each is one thin file in this folder and a row of the table in command.c. */
#ifndef VT_COMMAND_COMMAND_H
#define VT_COMMAND_COMMAND_H

#include "base/status.h"

/* Runs `vitrain [subcommand] arguments...` (arguments begin after the program's name; no subcommand means train) and
 * returns the exit status: 0, or 1 when something failed, which has been printed on standard error, or 75 when it was
 * stopped and the same command with --resume goes on. */
int vt_command_run(int argument_count, char *const *arguments);

/* `vitrain options`, in options.c. */
vt_status vt_command_options(int argument_count, char *const *arguments);

/* `vitrain version`, in version.c. */
vt_status vt_command_version(int argument_count, char *const *arguments);

/* What `git describe` said when the program was built. */
const char *vt_version(void);

#endif
