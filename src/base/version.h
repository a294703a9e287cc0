/* The program's version: the output of `git describe` when it was built. */
#ifndef VT_BASE_VERSION_H
#define VT_BASE_VERSION_H

const char *vt_version(void);

#endif
