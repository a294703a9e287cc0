/* One checkpoint: a directory with checkpoint.h5, in which every tensor stands whole under its name (as a virtual
 * dataset), and a shard of every rank, with the numbers. Any layout reads what any other wrote. docs/checkpoints.md
 * describes the format; store.h keeps several. */
#ifndef VT_CHECKPOINT_CHECKPOINT_H
#define VT_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "checkpoint/progress.h"
#include "optimizer/gradient_sync.h"
#include "optimizer/optimizer.h"
#include "storage/tensor_file.h"
#include "task/task.h"

/* What a checkpoint is written from and read into. */
typedef struct {
    const vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_parameters *parameters;
    vt_optimizer *optimizer;
    vt_gradient_sync *sync;
    vt_task *task;  /* its description of the data, and its words, go with the parameters; it takes the checkpoint's
                       normalisation */
    bool forecasts; /* parameters alone are read to forecast with them, not to begin a run */
    /* needed only where a run continues */
    int64_t training_samples; /* that an epoch's order is made of */
    int64_t crossing_samples; /* those of them that reach from one file into the next */
    int64_t validation_samples;
} vt_checkpoint_subject;

/* Host memory for a copy of what this rank writes (async_checkpoint). */
size_t vt_checkpoint_copy_bytes(const vt_checkpoint_subject *subject);

/* Collective. Checks the files, that they fit the model and the data, and reads everything back. *damaged tells, of a
 * failure, whether the files are at fault: then another checkpoint may do. The subject is half read after a failure. A
 * rank that fails only because another one does notes nothing. */
vt_status vt_checkpoint_read(const char *directory, const vt_checkpoint_subject *subject, vt_run_progress *progress,
                             bool *damaged);

/* Collective. Parameters alone (their averages, where a checkpoint has them and the option `weights` is not live). To
 * forecast with them: all, of a checkpoint of the same model. To begin a run: those that fit by name and shape, also of
 * a file whose name ends in .safetensors and that has PyTorch's names, which may begin with what PyTorch's wrappers put
 * there (module., _orig_mod.), and whose q, k and v may be one tensor, attn.qkv; position embeddings of another grid
 * are interpolated. If none fits it fails. What was changed is appended to *changes (NULL: not) for the log, "; …"
 * each, and then what begins anew and what was not used, a line each after a newline; a warning's begins with '!'. */
vt_status vt_checkpoint_read_parameters(const char *path, const vt_checkpoint_subject *subject, vt_text *changes);

/* What tells one checkpoint, or .safetensors file, from another: the checksum of its index, which holds a random id, or
 * of all of it. */
vt_status vt_checkpoint_checksum(const char *path, uint32_t *checksum);

/* For commands that look at a checkpoint, which may be a stranger's, without a model. (HDF5 may crash on it: they call
 * vt_tensor_files_try before.) The first checks that checkpoint.h5 is what
 * was written. The second checks that one shard is there, whole, and of this checkpoint, with `contents` also its
 * checksum, for which it reads all of it; the third that the words of a language model and the description of fields
 * are what was written. */
vt_status vt_checkpoint_check_index(const char *directory);
vt_status vt_checkpoint_check_shard(vt_tensor_file *index, const char *directory, int shard, bool contents);
vt_status vt_checkpoint_check_beside(vt_tensor_file *index, const char *directory);

/* How far the run that made it had come, as the index says. */
vt_status vt_checkpoint_progress(vt_tensor_file *index, vt_run_progress *progress);

/* The configuration that it was made with, as one rank would have it; to be closed. */
vt_status vt_checkpoint_configuration(vt_tensor_file *index, const char *directory, vt_config **config);

/* Checks that options (NULL ends them) have the values that it was made with. The error names the first that differs,
 * and says what follows from that: `otherwise`. */
vt_status vt_checkpoint_check_options(vt_tensor_file *index, const char *directory, const vt_config *config,
                                      const char *const *options, const char *otherwise);

/* The data that it was trained on, and what normalised them; older checkpoints know no more than the names of channels,
 * and the deviations of departures. *about NULL: not even that, as of data that are no fields. */
vt_status vt_checkpoint_about(vt_tensor_file *index, const char *directory, vt_fields_about **about);

/* The file with its words, a line each; malloc'd. Checkpoints of other tasks don't have it. */
char *vt_checkpoint_vocabulary(const char *directory);

/* Does it hold an average of its parameters (ema_decay)? */
bool vt_checkpoint_has_average(vt_tensor_file *index);

/* Writes a checkpoint's parameters as a .safetensors file: unless `weights` is live, their averages where it has them,
 * as *averaged then says. */
vt_status vt_checkpoint_export(const char *directory, const char *path, vt_weights weights, bool *averaged);

#endif
