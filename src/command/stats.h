/* `vitrain stats DIR`: mean and standard deviation of every channel, which normalise the fields. */
#ifndef VT_COMMAND_STATS_H
#define VT_COMMAND_STATS_H

#include "base/status.h"

/* arguments: those after the word "stats". */
vt_status vt_command_stats(int argument_count, char *const *arguments);

#endif
