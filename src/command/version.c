#include "base/version.h"
#include "base/text.h"
#include "command/arguments.h"
#include "command/command.h"

vt_status vt_command_version(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const vt_command_line line = {.command = "version",
                                  .help = "vitrain version, or vitrain --version: prints the version.\n"};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    vt_print("vitrain %s\n", vt_version());
done:
    return status;
}
