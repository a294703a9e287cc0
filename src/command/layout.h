/* vitrain layout [--ranks=N] [--key=value ...]: prints the grid of ranks. */
#ifndef VT_COMMAND_LAYOUT_H
#define VT_COMMAND_LAYOUT_H

#include "base/status.h"

vt_status vt_command_layout(int argument_count, char *const *arguments);

#endif
