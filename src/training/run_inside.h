/* A run on its way, and its phases, for the files of this folder alone. */
#ifndef VT_TRAINING_RUN_INSIDE_H
#define VT_TRAINING_RUN_INSIDE_H

#include "checkpoint/store.h"
#include "journal/record.h"
#include "journal/sample_trace.h"
#include "training/plan.h"
#include "training/trainer_inside.h"

/* ---- loop.c: the epochs: train, log, validate, log, checkpoint ---- */

/* Of the whole run. */
typedef struct {
    int64_t epochs, steps;
    int64_t steps_per_epoch; /* fewer than the data have when num_iters is smaller than an epoch */
    vt_run_length of_rate;   /* the same for the learning rate, which falls over num_iters where that is set */
} vt_loop_length;

/* From the batches of the training set: as many steps an epoch, and floor(num_iters / that) epochs; if that is 0, one
 * epoch of num_iters steps. A run that continues counts from the beginning of its current epoch, since the epochs
 * before may have had another batch size, or other data. */
vt_loop_length vt_loop_length_of(const vt_config *config, int64_t batches, const vt_run_progress *progress);

typedef struct {
    vt_trainer *trainer;
    vt_loader *training_loader, *validation_loader;
    vt_rows *sample_trace; /* NULL: none */
    vt_record *record;     /* NULL on all ranks but the first, which writes for all */
    vt_loop_length length;
    vt_checkpoint_saver *saver;
    int64_t saved_step;       /* of the newest checkpoint that this run wrote or began from */
    bool bad_data;            /* a step failed because its data are bad */
    bool diverged;            /* it failed because numbers are not finite, though the data are good */
    int64_t finite_steps;     /* of vt_loop_run */
    int64_t replaced;         /* samples of this epoch that could not be read (skip_bad_samples) */
    bool told_of_waiting;     /* the warning that steps wait for data was logged */
    vt_run_progress progress; /* where to continue; vt_run_progress_start for the beginning */
    /* the current epoch; set by vt_loop_run */
    int64_t epoch_started; /* its steps that were started; `progress` has those taken */
    double step_begin;     /* seconds */
} vt_loop;

extern const vt_run_progress vt_run_progress_start;

/* Collective. Runs the training from loop->progress to its end; VT_STOPPED when it was stopped, with a checkpoint.
 * *last is the last validation, to be closed; its baseline_loss is that of the first validation of the same measure. */
vt_status vt_loop_run(vt_loop *loop, vt_evaluation *last);

/* ---- all of it (run.c) ---- */

typedef struct {
    const vt_config *config;
    vt_config settled; /* the same, with what depends on the device's memory decided */
    vt_world *world;
    vt_source *training, *validation, *test; /* test NULL: there is none that can be used */
    char *test_obstacle;                     /* why the test set can't be used; NULL: it can, or there is none */
    vt_task *task;
    vt_backend *backend;
    vt_plan plan;
    bool cached[2]; /* training and validation set, in the device's memory */
    vt_checkpoint_subject subject;
    vt_loop loop;

    /* where it begins (start.c) */
    char *directory;
    int lock;       /* of the directory, held to the end; -1: none */
    int lock_above; /* of the one above, while the directory is chosen and made; -1: none */
    vt_checkpoint_store *checkpoints;
    bool resumes;          /* from a checkpoint: `chosen`, or the run's newest */
    bool foreign;          /* and that is another run's: this directory's files don't lead up to it */
    char *chosen;          /* the checkpoint that --resume names; NULL: none */
    char *initial;         /* the checkpoint or file of --init_from; NULL: not read */
    vt_text initial_lines; /* for the log: what was taken of it, and how */

    bool is_finished;    /* nothing is left to do */
    bool failed_at_once; /* its newest checkpoint was read, but training from there gives no finite numbers */
} vt_run;

/* ---- start.c: its directory, and what its parameters and progress start from ---- */

/* Collective. Chooses, makes and locks the run's directory, and opens its log. The error: --resume names another run,
 * and after its steps nothing is left to do. */
vt_status vt_run_open_directory(vt_run *run);

/* Collective. Reads the parameters of --init_from, if it is given: with --resume only when there is nothing to resume,
 * which vt_run_restore finds out; otherwise before the directory is made. */
vt_status vt_run_read_initial(vt_run *run);

/* Collective. Reads what the run continues from, and logs it. */
vt_status vt_run_restore(vt_run *run);

/* ---- opening.c ---- */

/* What the log says before a run's first step: about ten lines for people; then, as details (vt_log_detail), the
 * configuration and the table of parameters, which the tutorials' log parsers read. The first rank also writes that
 * table to <run directory>/parameters.csv. */
vt_status vt_run_log_opening(const vt_run *run);

/* ---- test_set.c: opened before the first step, gone through once after the last ---- */

/* Collective. Unless the source needs it (vt_source_kind.needs_test_set), the run goes on if the test set can't be
 * used, or doesn't go with the training set. */
vt_status vt_run_open_test_set(vt_run *run);

/* Warns if it can't be used, or shares times with the other sets. */
void vt_run_log_test_set(const vt_run *run);

/* Collective. Logs the loss over it, in the words of the courses. A request to stop ends this pass only. Where the task
 * also tells of the best checkpoint, that one's parameters are read, unless the last validation was the best. */
vt_status vt_run_score_test_set(vt_run *run);

/* ---- benchy.c ---- */

/* --enable_benchy: how fast the reader is alone, the steps are on one batch, and both are together; lines and JSON as
 * NERSC's benchy writes them. Collective. Trains the model on the way. The JSON file goes to BENCHY_OUTPUT, else into
 * the run directory; rank 0 writes it. *trains_on: the configuration wants the run to go on (exit_after_tests: False).
 */
vt_status vt_run_benchy(const vt_run *run, bool *trains_on);

#endif
