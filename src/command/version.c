#include <stdio.h>
#include <stdlib.h>

#include "command/arguments.h"
#include "command/command.h"

#ifndef VT_VERSION /* defined by the Makefile */
#define VT_VERSION "unknown"
#endif

const char *vt_version(void)
{
    return VT_VERSION;
}

vt_status vt_command_version(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    char **others = NULL;
    int other_count = 0;
    bool help = false;
    VT_TRY(vt_arguments_words("version", argument_count, arguments, NULL, 0, &other_count, &others, &help));
    if (help) {
        printf("vitrain version, or vitrain --version: prints the version.\n");
        goto done;
    }
    VT_CHECK(other_count == 0, "version takes no arguments, but got '%s'", others[0]);
    printf("vitrain %s\n", vt_version());
done:
    free(others);
    return status;
}
