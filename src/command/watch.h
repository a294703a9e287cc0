/* `vitrain watch DIR`: the progress of a run, from another terminal. */
#ifndef VT_COMMAND_WATCH_H
#define VT_COMMAND_WATCH_H

#include "base/status.h"

/* arguments: those after the word "watch". */
vt_status vt_command_watch(int argument_count, char *const *arguments);

#endif
