#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "command/arguments.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"

vt_status vt_command_export(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *named = NULL, *output = NULL;
    char *checkpoint = NULL;
    bool force = false, averaged = false;
    vt_argument_choice weights = {"average", "average|live"};
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &named, 0, 0, VT_CHECKPOINT_FLAG_HELP},
        {"output", VT_ARGUMENT_PATH, &output, 0, 0, "the file to write, NAME.safetensors"},
        {"weights", VT_ARGUMENT_CHOICE, &weights, 0, 0,
         "the average of the weights where the checkpoint has one (ema_decay), or the weights themselves"},
        {"force", VT_ARGUMENT_SWITCH, &force, 0, 0, "replace a file of that name"},
    };
    const vt_command_line line = {.command = "export",
                                  .help = "vitrain export CHECKPOINT --output=NAME.safetensors: the parameters of a "
                                          "checkpoint as a .safetensors file with\nPyTorch's names, which --init_from "
                                          "takes, too.\n\n",
                                  VT_FLAGS(flags),
                                  .operand_name = "CHECKPOINT",
                                  .operand = &named};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    VT_CHECK(output != NULL, "export: --output=NAME.safetensors is needed; see `vitrain export --help`");
    VT_CHECK(vt_safetensors_is_name(output),
             "export: --output=%s: expected a name that ends in .safetensors, by which --init_from knows such files",
             output);
    VT_TRY(vt_output_check_file("--output", output));
    VT_CHECK(force || !vt_output_exists(output), "export: %s exists already; give --force to replace it", output);
    VT_TRY(vt_checkpoint_find(named, VT_CHECKPOINT_TO_SHOW, &checkpoint));
    VT_TRY(vt_checkpoint_export(checkpoint, output,
                                strcmp(weights.chosen, "live") == 0 ? VT_WEIGHTS_LIVE : VT_WEIGHTS_AVERAGE, &averaged));
    vt_print("%s: %s of %s\n", output, averaged ? "the averaged parameters" : "the parameters", checkpoint);
done:
    free(checkpoint);
    return status;
}
