#include "base/version.h"

#ifndef VT_VERSION /* defined by the Makefile */
#define VT_VERSION "unknown"
#endif

const char *vt_version(void)
{
    return VT_VERSION;
}
