#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "source/volumes/volumes.h"

vt_status vt_command_npy(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_npy_flags *flags = call->flags;
    const char *from = call->operands[0], *fields[2] = {flags->data_field, flags->label_field};
    static const char *const names[2] = {"data", "label"};
    const char *base = vt_file_name(from), *dot = strrchr(base, '.');
    for (int i = 0; i < 2 && status == VT_OK; i++) {
        char *to = vt_text_format("%.*s_%s.npy", (int)(dot != NULL && dot > base ? dot - base : (long)strlen(base)),
                                  base, names[i]);
        status = vt_box_convert(from, fields[i], to);
        if (status == VT_OK) vt_print("%s\n", to);
        free(to);
    }
    return status;
}
