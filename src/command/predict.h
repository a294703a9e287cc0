/* `vitrain predict --checkpoint=PATH --time=… --output=FILE.nc`: a forecast as a NetCDF file. */
#ifndef VT_COMMAND_PREDICT_H
#define VT_COMMAND_PREDICT_H

#include "base/status.h"

/* arguments: those after the word "predict". */
vt_status vt_command_predict(int argument_count, char *const *arguments);

#endif
