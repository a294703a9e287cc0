/* Tries in a process of its own what a library does with a file that may be damaged or malicious: HDF5 1.10 can crash
 * on one, or never return (docs/reliability.md). This becomes an error. */
#ifndef VT_STORAGE_TRIAL_H
#define VT_STORAGE_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Calls work(context) in a copy of this process, which sees nothing but files that it opens itself, prints nothing and
 * ends after it. Fails, naming `path`, when it crashes, takes more than 20 s of computing or 300 s in all, asks for
 * more than 8 GB, or ends itself; what `work` returns or notes is lost, for the caller then does the same here. HDF5
 * must not be entered; `work` may enter it. To be called before a GPU's memory is in use, and while this process is
 * small: copying a process takes about a millisecond per gigabyte. */
vt_status vt_trial(const char *path, void (*work)(void *context), void *context);

/* The same for `bytes` bytes of files that hold many small objects: 2 s of computing more for each megabyte, at most
 * 300 s, and 2 GB. */
vt_status vt_trial_of_many(const char *path, int64_t bytes, void (*work)(void *context), void *context);

/* Does work(context) in such a process for good: it prints as this one does, and the `size` bytes at context, and the
 * error that it notes, come back. The limits are those for many objects, but computing may go on for as long as `bytes`
 * allow, and memory for 2 GB and twice `bytes`. Where no process can be started, this one does it. */
vt_status vt_trial_instead(const char *path, int64_t bytes, vt_status (*work)(void *context), void *context,
                           size_t size);

#endif
