#include "base/version.h"
#include "base/text.h"
#include "command/command.h"

vt_status vt_command_version(const vt_call *call)
{
    (void)call;
    vt_print("vitrain %s\n", vt_version());
    return VT_OK;
}
