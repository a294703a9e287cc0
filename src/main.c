#define _GNU_SOURCE /* syscall */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/threads.h"
#include "command/command.h"

/* Whether SIGHUP was ignored when the program was started, as by nohup. A library may take the signal before main
 * begins (UCX does, to debug itself), so this is looked up before any library starts. Nor have the sanitizers started
 * by then, so they must not instrument the function. */
static enum { NOT_KNOWN, DEFAULT, IGNORED } hangup;

__attribute__((no_sanitize("address", "thread", "undefined"))) static void look_up_hangup(void)
{
    long action[8] = {0}; /* as the kernel has it: the handler is first */
    if (syscall(SYS_rt_sigaction, SIGHUP, NULL, action, 8) == 0)
        hangup = action[0] == (long)SIG_IGN ? IGNORED : DEFAULT; /* there is no other when a program starts */
}

__attribute__((used, section(".preinit_array"))) static void (*const before_libraries)(void) = look_up_hangup;

int main(int argument_count, char *const *arguments)
{
    if (hangup != NOT_KNOWN) signal(SIGHUP, hangup == IGNORED ? SIG_IGN : SIG_DFL);
    /* past a limit on the size of files a write then fails, and the program says so instead of dying */
    signal(SIGXFSZ, SIG_IGN);
    vt_threads_wait_shortly(arguments);
    return vt_command_run(argument_count - 1, arguments + 1);
}
