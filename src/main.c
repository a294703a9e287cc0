#include <signal.h>

#include "base/threads.h"
#include "command/command.h"

int main(int argument_count, char *const *arguments)
{
    /* past a limit on the size of files a write then fails, and the program says so instead of dying */
    signal(SIGXFSZ, SIG_IGN);
    vt_threads_wait_shortly(arguments);
    return vt_command_run(argument_count - 1, arguments + 1);
}
