/* Where a run begins: its directory, and what its parameters and progress start from. */
#ifndef VT_TRAINING_START_H
#define VT_TRAINING_START_H

#include "checkpoint/store.h"

typedef struct {
    char *directory;
    int lock;       /* of the directory, held to the end; -1: none */
    int lock_above; /* of the one above, while the directory is chosen and made; -1: none */
    vt_checkpoint_store *checkpoints;
    bool resumes;             /* from a checkpoint: `chosen`, or the run's newest */
    bool foreign;             /* and that is another run's: this directory's files don't lead up to it */
    char *chosen;             /* the checkpoint that --resume names; NULL: none */
    char *initial;            /* the checkpoint or file of --init_from; NULL: not read */
    vt_text initial_lines;    /* for the log: what was taken of it, and how */
    vt_run_progress progress; /* after vt_start_restore */
} vt_run_start;

extern const vt_run_start vt_run_start_none; /* nothing is open */

/* Collective. Chooses, makes and locks the run's directory, and opens its log. batches: of an epoch. The error:
 * --resume names another run, and after its steps nothing is left to do. */
vt_status vt_start_open(const vt_checkpoint_subject *subject, bool on_gpu, int64_t batches, vt_run_start *start);
void vt_start_close(vt_run_start *start);

/* Collective. Reads the parameters of --init_from, if it is given: with --resume only when there is nothing to resume,
 * which vt_start_restore finds out; otherwise before the directory is made. */
vt_status vt_start_read_initial(const vt_checkpoint_subject *subject, vt_run_start *start);

/* Collective. Reads what the run continues from, and logs it. */
vt_status vt_start_restore(const vt_checkpoint_subject *subject, vt_run_start *start);

#endif
