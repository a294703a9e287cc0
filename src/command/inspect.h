/* `vitrain inspect PATH`: shows what a checkpoint, a data directory or a run directory holds, in a few lines. */
#ifndef VT_COMMAND_INSPECT_H
#define VT_COMMAND_INSPECT_H

#include "base/status.h"
#include "source/fields/fields_file.h"

/* Three of the kinds (brief: in one line), each in a file inspect_*.c. They print on standard output. Missing or
 * damaged parts are printed and counted in *faults. `verify`: read everything. */
void vt_inspect_checkpoint(const char *directory, bool brief, bool verify, int *faults);
void vt_inspect_data(const char *directory, const vt_fields_form *form, const char *const periods[3], bool verify,
                     int *faults); /* periods of train, valid and test set, or NULL */
void vt_inspect_run(const char *directory, bool verify, int *faults);

/* Is there a file or a directory of that name in the directory? */
bool vt_inspect_holds(const char *directory, const char *name);

/* Is it a file, or a directory of statistics, that says which data it was made from? What it says; and in what the data
 * of two such things differ, which may also be checkpoints, runs and directories of data. */
bool vt_inspect_describes(const char *path);
vt_status vt_inspect_about(const char *path);
vt_status vt_inspect_differences(const char *one, const char *other, const vt_fields_form *form);

/* Prints "  FAULT: …" and counts it. Clears the noted error. */
void vt_inspect_fault(int *faults, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A fault with the noted error as its sentence, unless `status` is VT_OK. */
void vt_inspect_check(int *faults, vt_status status);

/* Does the directory hold a text's files, and what they hold. */
bool vt_inspect_holds_text(const char *directory);
void vt_inspect_text(const char *directory, bool verify, int *faults);

#endif
