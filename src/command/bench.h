/* `vitrain bench WHAT`: parts of the program measured by themselves. */
#ifndef VT_COMMAND_BENCH_H
#define VT_COMMAND_BENCH_H

#include "base/status.h"

vt_status vt_command_bench(int argument_count, char *const *arguments);

/* The arguments of both begin with the word. */

/* `vitrain bench io`: how fast the reader is by itself, beside plain preads. */
vt_status vt_command_bench_io(int argument_count, char *const *arguments);

/* `vitrain bench kernels`: the operations of a training step beside the machine's limits. */
vt_status vt_command_bench_kernels(int argument_count, char *const *arguments);

#endif
