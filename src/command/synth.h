/* `vitrain synth DIR`: a synthetic data set of any size. */
#ifndef VT_COMMAND_SYNTH_H
#define VT_COMMAND_SYNTH_H

#include "base/status.h"

/* arguments: those after the word "synth". */
vt_status vt_command_synth(int argument_count, char *const *arguments);

#endif
