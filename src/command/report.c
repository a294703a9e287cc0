#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "command/arguments.h"
#include "report/run_report.h"

vt_status vt_command_report(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *output = NULL;
    char *path = NULL;
    vt_words runs = {0};
    const vt_argument flags[] = {
        {"output", VT_ARGUMENT_PATH, &output, 0, 0, "the page (default DIR/report.html; of several ./compare.html)"},
    };
    const vt_command_line line = {
        .command = "report",
        .help =
            "vitrain report DIR [DIR …]: writes report.html of a run anew, as it was written after its last epoch;\n"
            "of several runs one page that compares them. One file, for any browser, without a network.\n\n",
        VT_FLAGS(flags)};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, &runs));
    VT_CHECK(runs.count > 0, "report: no run directory given; see `vitrain report --help`");
    path = output != NULL    ? vt_text_copy(output)
           : runs.count == 1 ? vt_text_format("%s/report.html", runs.words[0])
                             : vt_text_copy("compare.html");
    if (runs.count == 1)
        VT_TRY(vt_run_report_write_to(runs.words[0], path));
    else
        VT_TRY(vt_run_report_compare((const char *const *)runs.words, runs.count, path));
    vt_print("%s\n", path);
done:
    free(runs.words);
    free(path);
    return status;
}
