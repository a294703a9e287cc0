/* `vitrain inspect PATH [OTHER]`: shows in a few lines what a checkpoint, a run, a directory of data or a file holds,
 * or in what the data of two of them differ. inspect.c finds out which it is; the other files are for one kind each. */
#ifndef VT_COMMAND_INSPECT_H
#define VT_COMMAND_INSPECT_H

#include "base/status.h"
#include "source/fields/fields_file.h"

/* What inspect.c calls for these kinds. They print on standard output, `brief` in one line. Missing or damaged parts
 * are printed and counted in *faults. `verify`: read everything. */
void vt_inspect_checkpoint(const char *directory, bool brief, bool verify, int *faults);
void vt_inspect_data(const char *directory, const vt_config *config, bool verify, int *faults);
void vt_inspect_run(const char *directory, bool verify, int *faults);

/* Prints "  FAULT: …" and counts it. Clears the noted error. */
void vt_inspect_fault(int *faults, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if `status` is VT_OK; else the noted error is the sentence of a fault. */
bool vt_inspect_check(int *faults, vt_status status);

#endif
