/* The program's version, and what is built in, as the last line of the build says it. */
#ifndef VT_BASE_VERSION_H
#define VT_BASE_VERSION_H

extern const char vt_version[], vt_built[]; /* "1.0.0+g1a2b3c4", "built with MPI, CUDA (...), kernels for ..." */

#endif
