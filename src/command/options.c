/* vitrain options: every option, from the table that the parser uses. */
#include <stdio.h>
#include <string.h>

#include "command/command.h"
#include "config/config.h"

static void print_help(void)
{
    printf("usage: vitrain options [--markdown]\n\n"
           "Prints every option of a configuration with type, default, range and meaning; with --markdown as\n"
           "docs/options.md.\n");
}

vt_status vt_command_options(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    bool markdown = false;
    for (int i = 0; i < argument_count; i++) {
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
            print_help();
            goto done;
        }
        VT_CHECK(strcmp(arguments[i], "--markdown") == 0, "options: unknown argument '%s'; it takes only --markdown",
                 arguments[i]);
        markdown = true;
    }
    vt_options_print(stdout, markdown);
done:
    return status;
}
