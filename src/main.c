#include "command/command.h"

int main(int argument_count, char *const *arguments)
{
    return vt_command_run(argument_count - 1, arguments + 1);
}
