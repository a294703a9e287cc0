/* The program's version, and what is built in, as the last line of the build says it. */
#ifndef VT_BASE_VERSION_H
#define VT_BASE_VERSION_H

const char *vt_version(void);
const char *vt_built(void); /* "built with MPI, CUDA (...), kernels for ..." */

#endif
