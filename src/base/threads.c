#include "base/threads.h"

#include <stdlib.h>
#include <unistd.h>

void vt_threads_wait_shortly(char *const *arguments)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) != 0) return;
    execv("/proc/self/exe", arguments); /* returns only where that can't be: then the threads spin as they do */
}
