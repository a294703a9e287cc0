/* `vitrain bench WHAT`: measures parts of the program by themselves. */
#ifndef VT_COMMAND_BENCH_H
#define VT_COMMAND_BENCH_H

#include "base/status.h"

vt_status vt_command_bench(int argument_count, char *const *arguments);

/* The arguments of both include the word. */

/* `vitrain bench io`: how fast the reader is by itself, beside plain preads. */
vt_status vt_command_bench_io(int argument_count, char *const *arguments);

/* `vitrain bench kernels`: each operation of a back end beside its limit. */
vt_status vt_command_bench_kernels(int argument_count, char *const *arguments);

#endif
