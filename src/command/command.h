/* The subcommands: each is one thin file in this folder and a row of the table in command.c. */
#ifndef VT_COMMAND_COMMAND_H
#define VT_COMMAND_COMMAND_H

/* Runs `vitrain <subcommand> arguments...` (arguments exclude both words) and returns the exit status; a failure has
 * been printed on standard error. */
int vt_command_run(int argument_count, char *const *arguments);

#endif
