/* `vitrain inspect PATH`: shows what a checkpoint, a data directory or a run directory holds, in a few lines. */
#ifndef VT_COMMAND_INSPECT_H
#define VT_COMMAND_INSPECT_H

#include "base/status.h"
#include "source/fields/fields_file.h"

/* arguments: those after the word "inspect". */
vt_status vt_command_inspect(int argument_count, char *const *arguments);

/* The three kinds (brief: in one line), each in a file inspect_*.c. They print on standard output. Missing or damaged
 * parts are printed and counted in *faults; VT_ERROR only means that there is nothing to show. `verify`: read
 * everything. */
vt_status vt_inspect_checkpoint(const char *directory, bool brief, bool verify, int *faults);
vt_status vt_inspect_data(const char *directory, const vt_fields_form *form, bool verify, int *faults);
vt_status vt_inspect_run(const char *directory, bool verify, int *faults);

/* Prints " FAULT: …" and counts it; NULL: prints the noted error and clears it. */
void vt_inspect_fault(int *faults, const char *sentence);

#endif
