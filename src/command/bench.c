#include "command/command.h"

#include <string.h>

#include "base/text.h"

vt_status vt_command_bench(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *what = argument_count > 0 ? arguments[0] : "";
    if (strcmp(what, "io") == 0) return vt_command_bench_io(argument_count - 1, arguments + 1);
    if (strcmp(what, "kernels") == 0) return vt_command_bench_kernels(argument_count - 1, arguments + 1);
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        vt_print("usage: vitrain bench io [--config=NAME] [--name=value ...]\n"
                 "       vitrain bench kernels [--device=cpu|cuda] [--amp_mode=none|bf16] [--threads=N]\n"
                 "                             [--rounds=N]\n\n"
                 "io: the reader alone, beside plain preads of the same bytes\n"
                 "kernels: the operations of a training step beside the machine's limits\n\n"
                 "`vitrain bench io --help` says more.\n");
        return VT_OK;
    }
    VT_FAIL("bench: what is to be measured? `vitrain bench io` or `vitrain bench kernels`; see `vitrain bench --help`");
done:
    return status;
}
