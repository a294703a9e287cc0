#include "command/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "command/arguments.h"
#include "report/run_report.h"

vt_status vt_command_report(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *output = NULL;
    char **directories = NULL, *path = NULL;
    int count = 0;
    bool help = false;
    const vt_argument flags[] = {
        {"output", VT_ARGUMENT_PATH, &output, 0, 0, "the page (default DIR/report.html; of several ./compare.html)"},
    };
    VT_TRY(vt_arguments_words("report", argument_count, arguments, flags, 1, &count, &directories, &help));
    if (help) {
        printf("vitrain report DIR [DIR …]: writes report.html of a run anew, as it was written after its last epoch;\n"
               "of several runs one page that compares them. One file, for any browser, without a network.\n\n");
        vt_arguments_print(flags, 1);
        goto done;
    }
    VT_CHECK(count > 0, "report: no run directory given; see `vitrain report --help`");
    path = output != NULL ? vt_text_copy(output)
           : count == 1   ? vt_text_format("%s/report.html", directories[0])
                          : vt_text_copy("compare.html");
    if (count == 1)
        VT_TRY(vt_run_report_write_to(directories[0], path));
    else
        VT_TRY(vt_run_report_compare((const char *const *)directories, count, path));
    printf("%s\n", path);
done:
    free(directories);
    free(path);
    return status;
}
