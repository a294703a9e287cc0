/* Tries in a process of its own what a library does with a file that may be damaged or malicious: HDF5 1.10 can crash
 * on one, or never return (docs/reliability.md). This becomes an error. */
#ifndef VT_STORAGE_TRIAL_H
#define VT_STORAGE_TRIAL_H

#include <stdint.h>

#include "base/status.h"

/* What is tried: a function of texts alone (paths, names of arrays), any of which may be NULL. It may enter HDF5; what
 * it notes is lost, as the caller then does the same in this process. */
typedef void vt_trial_work(const char *const *words, int64_t count);

/* Calls work(words, count) in a copy of this process, which sees nothing but files that it opens itself, prints nothing
 * and ends after it. Fails, naming `path`, when it crashes, takes more than 20 s of computing or 300 s in all, asks for
 * more than 8 GB, or ends itself. bytes, if they aren't 0: those of files that hold many small objects, which give 2 s
 * of computing more for each megabyte, and 2 GB. HDF5 must not be entered. Without vt_trial_start_helper, to be called
 * before MPI is initialised or a GPU's memory is in use, and while this process is small: copying a process takes about
 * a millisecond per gigabyte. */
vt_status vt_trial(const char *path, int64_t bytes, vt_trial_work *work, const char *const *words, int64_t count);

/* Starts the process that is copied from now on in place of this one, and ends with it. For a program that will
 * initialise MPI, which forbids copies of its processes: before that, and before there are other threads. */
void vt_trial_start_helper(void);

#endif
