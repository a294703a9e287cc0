/* The command line of a subcommand: its own flags and those of the configuration, `--key=value` or `--key value` (a
 * switch takes a value only after `=`; of a repeated flag the last one counts), and words without dashes. */
#ifndef VT_COMMAND_ARGUMENTS_H
#define VT_COMMAND_ARGUMENTS_H

#include "command/command.h"

/* Parses the arguments into *call, which is zeroed but for `launch`. To be closed, also after an error. */
vt_status vt_call_open(const vt_subcommand *command, int argument_count, char *const *arguments, vt_call *call);
void vt_call_close(const vt_subcommand *command, vt_call *call);

/* Is --help or -h present? */
bool vt_arguments_ask_help(int argument_count, char *const *arguments);

/* What --help prints. */
void vt_arguments_print_help(const vt_subcommand *command);

/* "bench io": name and word; malloc'd. */
char *vt_subcommand_name(const vt_subcommand *command);

#endif
