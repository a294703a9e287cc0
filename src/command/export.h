/* `vitrain export CHECKPOINT`: a checkpoint's parameters as a .safetensors file. */
#ifndef VT_COMMAND_EXPORT_H
#define VT_COMMAND_EXPORT_H

#include "base/status.h"

/* arguments: those after the word "export". */
vt_status vt_command_export(int argument_count, char *const *arguments);

#endif
