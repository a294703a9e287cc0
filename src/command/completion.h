/* Completion of command lines, made from the tables of subcommands, of their flags and of options. */
#ifndef VT_COMMAND_COMPLETION_H
#define VT_COMMAND_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

/* A script for bash or zsh: to be sourced, or installed where the shell looks for completions. */
void vt_completion_print(FILE *file, bool zsh);

#endif
