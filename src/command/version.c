#include "command/command.h"

#ifndef VT_VERSION /* given by the Makefile */
#define VT_VERSION "unknown"
#endif

const char *vt_version(void)
{
    return VT_VERSION;
}
