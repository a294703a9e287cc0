#include <stdio.h>

#include "command/arguments.h"
#include "command/command.h"

#ifndef VT_VERSION /* given by the Makefile */
#define VT_VERSION "unknown"
#endif

const char *vt_version(void)
{
    return VT_VERSION;
}

vt_status vt_command_version(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    if (vt_arguments_ask_help(argument_count, arguments)) {
        printf("vitrain version, or vitrain --version: prints the version.\n");
        return VT_OK;
    }
    VT_CHECK(argument_count == 0, "version: '%s' is too much: it takes no arguments", arguments[0]);
    printf("vitrain %s\n", vt_version());
done:
    return status;
}
