/* One checkpoint: a directory with checkpoint.h5, in which every tensor stands whole under its name (as a virtual
 * dataset), and a shard of every rank, with the numbers. Any layout reads what any other wrote. docs/checkpoints.md
 * describes the format; checkpoint_store.h keeps several. */
#ifndef VT_CHECKPOINT_CHECKPOINT_H
#define VT_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "storage/tensor_file.h"
#include "training/trainer.h"

/* How far a run has come. Sums are over the steps of the epoch it is in, without those before num_iters ended it early
 * and a longer run then went on with it. */
typedef struct {
    int64_t step;          /* optimizer steps done */
    int64_t epoch;         /* epochs done and validated: the epoch it is in, 0 for the first */
    int64_t epoch_steps;   /* steps of that epoch that are done: all of them when only its validation is missing */
    int64_t epoch_samples; /* sum of their samples */
    int64_t epoch_skipped; /* of its steps, those without an update (on_nonfinite) */
    int64_t skipped;       /* of all steps */
    int64_t skipped_in_row;
    double epoch_loss; /* sum of the steps' losses, without those of steps without an update */
    double epoch_seconds;
    double epoch_waited; /* of them, for data */
    vt_step_times epoch_times;
    double validation_loss;  /* of the validation just made; NAN in the midst of an epoch */
    double best_loss;        /* the smallest so far; INFINITY before the first */
    double persistence_loss; /* of the first validation, NAN before it */
} vt_progress;

/* What a checkpoint is made of, and goes back into. */
typedef struct {
    vt_trainer *trainer;
    const char *const *channel_names; /* of the data, or NULL */
    int64_t training_samples;         /* that an epoch's order is made of; only runs look at it */
    int64_t crossing_samples;         /* those of them that reach from one file into the next; likewise */
} vt_checkpoint_subject;

/* Collective. Writes all files into the directory, which is there and empty, and waits until they are on the disk. */
vt_status vt_checkpoint_write(const char *directory, const vt_checkpoint_subject *subject, const vt_progress *progress);

/* Collective. Checks the files, that they fit the model and the data, and reads everything back. *damaged tells, of a
 * failure, whether the files are at fault: then another checkpoint may do. The trainer is half read after a failure. A
 * rank that fails only because another one does notes nothing. */
vt_status vt_checkpoint_read(const char *directory, const vt_checkpoint_subject *subject, vt_progress *progress,
                             bool *damaged);

/* Collective. Parameters alone: from a checkpoint, or from a file whose name ends in .safetensors and that has
 * PyTorch's names. Names may begin with what PyTorch's wrappers put there (module., _orig_mod.), and q, k and v be one
 * tensor, attn.qkv. What was changed of such a file is appended to *changes, for the log: "; …" each (NULL
 * will do for a checkpoint). */
vt_status vt_checkpoint_read_parameters(const char *path, const vt_checkpoint_subject *subject, vt_text *changes);

/* For those that look at a checkpoint without a model, which may be a stranger's: whether checkpoint.h5 is what was
 * written, and HDF5 does not crash over the files (in a process of its own, storage/trial.h: before a back end is
 * opened); and whether one shard is there, whole, and of this checkpoint. */
vt_status vt_checkpoint_check_index(const char *directory);
vt_status vt_checkpoint_check_shard(vt_tensor_file *index, const char *directory, int shard);

/* The configuration that it was made with, as one rank would have it; to be closed. */
vt_status vt_checkpoint_configuration(vt_tensor_file *index, const char *directory, vt_config **config);

/* Whether options (NULL ends them) have the values that it was made with. The error names the first that has not, and
 * says what comes of it: `otherwise`. */
vt_status vt_checkpoint_check_options(vt_tensor_file *index, const char *directory, const vt_config *config,
                                      const char *const *options, const char *otherwise);

/* Writes a checkpoint's parameters as a .safetensors file. */
vt_status vt_checkpoint_export(const char *directory, const char *path);

#endif
