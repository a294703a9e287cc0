#include <signal.h>

#include "base/threads.h"
#include "command/command.h"

int main(int argument_count, char *const *arguments)
{
    signal(SIGXFSZ,
           SIG_IGN); /* past a limit on the size of files a write fails, and says so, instead of the program dying */
    vt_threads_wait_shortly(arguments);
    return vt_command_run(argument_count - 1, arguments + 1);
}
