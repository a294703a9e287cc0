/* A first try in a process of its own, for what a library does with a file that may be damaged or made to do harm:
 * HDF5 1.10 can crash over one, or never end (docs/reliability.md). So that becomes an error here. */
#ifndef VT_STORAGE_TRIAL_H
#define VT_STORAGE_TRIAL_H

#include "base/status.h"

/* Calls work(context) in a copy of this process, which sees nothing but files that it opens itself, prints nothing and
 * ends after it. Fails, naming `path`, when it crashes, takes more than 20 s of computing or 300 s in all, asks for
 * more than 8 GB, or ends itself; what `work` returns or notes is lost, for the caller then does the same here. HDF5
 * must not be entered; `work` may enter it. Before there is a GPU's memory, and while this process is small: to copy a
 * process takes about a millisecond a gigabyte. */
vt_status vt_trial(const char *path, void (*work)(void *context), void *context);

#endif
