/* `vitrain inspect PATH`: shows what a checkpoint, a data directory or a run directory holds, in a few lines. */
#ifndef VT_COMMAND_INSPECT_H
#define VT_COMMAND_INSPECT_H

#include "base/status.h"
#include "source/fields/fields_file.h"

/* Those of the kinds that have a file inspect_*.c (brief: in one line). They print on standard output. Missing or
 * damaged parts are printed and counted in *faults. `verify`: read everything. */
void vt_inspect_checkpoint(const char *directory, bool brief, bool verify, int *faults);
void vt_inspect_data(const char *directory, const vt_fields_form *form, const char *const periods[3], bool verify,
                     int *faults); /* periods of train, valid and test set, or NULL */
void vt_inspect_run(const char *directory, bool verify, int *faults);

/* Is there a file or a directory of that name in the directory? */
bool vt_inspect_holds(const char *directory, const char *name);

/* Prints "  FAULT: …" and counts it. Clears the noted error. */
void vt_inspect_fault(int *faults, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A fault with the noted error as its sentence, unless `status` is VT_OK. */
void vt_inspect_check(int *faults, vt_status status);

#endif
