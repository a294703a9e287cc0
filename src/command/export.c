#include "command/command.h"

#include <stdlib.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"

vt_status vt_command_export(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_export_flags *flags = call->flags;
    const char *output = flags->output;
    char *checkpoint = NULL;
    bool averaged = false;
    VT_CHECK(output != NULL, "export: --output=NAME.safetensors is needed; see `vitrain export --help`");
    VT_CHECK(vt_safetensors_is_name(output),
             "export: --output=%s: expected a name that ends in .safetensors, by which --init_from knows such files",
             output);
    VT_TRY(vt_output_check_file("--output", output));
    VT_TRY(vt_output_check_absent(output, flags->force));
    VT_TRY(vt_checkpoint_find(call->operands[0], VT_CHECKPOINT_TO_SHOW, &checkpoint));
    VT_TRY(vt_checkpoint_export(checkpoint, output, (vt_weights)flags->weights, &averaged));
    vt_print("%s: %s of %s\n", output, averaged ? "the averaged parameters" : "the parameters", checkpoint);
done:
    free(checkpoint);
    return status;
}
