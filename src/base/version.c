#include "base/version.h"

#ifndef VT_VERSION /* defined by the Makefile */
#define VT_VERSION "unknown"
#endif

#ifndef VT_BUILT
#define VT_BUILT "built without make"
#endif

const char vt_version[] = VT_VERSION, vt_built[] = VT_BUILT;
