#include "command/command.h"

#include <stdlib.h>

#include "base/text.h"
#include "report/run_report.h"
#include "storage/output_file.h"

vt_status vt_command_report(const vt_call *call)
{
    vt_status status = VT_OK;
    const char *output = ((const vt_report_flags *)call->flags)->output;
    char *path = output != NULL             ? vt_text_copy(output)
                 : call->operand_count == 1 ? vt_text_format("%s/report.html", call->operands[0])
                                            : vt_text_copy("compare.html");
    if (output != NULL) VT_TRY(vt_output_check_file("--output", output));
    VT_TRY(vt_run_report_write(call->operands, call->operand_count, path));
    vt_print("%s\n", path);
done:
    free(path);
    return status;
}
