#include "base/threads.h"
#include "command/command.h"

int main(int argument_count, char *const *arguments)
{
    vt_threads_wait_shortly(arguments);
    return vt_command_run(argument_count - 1, arguments + 1);
}
