/* `vitrain bench io`: how fast the reader is by itself. */
#ifndef VT_COMMAND_BENCH_H
#define VT_COMMAND_BENCH_H

#include "base/status.h"

vt_status vt_command_bench(int argument_count, char *const *arguments);

#endif
