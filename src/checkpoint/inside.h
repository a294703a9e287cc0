/* What the files of this room share: the files of a checkpoint, and what its index says. Other rooms see checkpoint.h.
 */
#ifndef VT_CHECKPOINT_INSIDE_H
#define VT_CHECKPOINT_INSIDE_H

#include "checkpoint/checkpoint.h"

/* 1: one shard, whole tensors. 2: several shards, tensors made of boxes, and a checksum beside checkpoint.h5. */
enum { VT_CHECKPOINT_VERSION = 2 };

/* malloc'd, as all names here are. */
char *vt_checkpoint_shard_name(int64_t rank, int64_t ranks);

/* The names of the channels that the model sees, a line each; "" when there are none. */
char *vt_checkpoint_channels(const vt_checkpoint_subject *subject);

/* checkpoint.crc32c, of the index. */
vt_status vt_checkpoint_write_checksum(const char *directory, const char *index);

/* Whether its parameters are those of the subject's model, over channels of the same names. */
vt_status vt_checkpoint_check_model(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject);

/* Whether a run with the subject's configuration and data can continue from it. */
vt_status vt_checkpoint_check_run(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject,
                                  const vt_run_progress *progress);

/* vt_checkpoint_read_parameters of a .safetensors file, this rank's part of it. */
vt_status vt_checkpoint_import(const char *path, const vt_checkpoint_subject *subject, vt_text *changes);

/* Opens a whole checkpoint of a known version; the ranks share the check of the shards (world may be NULL). *damaged
 * tells, of a failure, whether the files are at fault. */
vt_status vt_checkpoint_open(const char *directory, const vt_world *world, vt_tensor_file **index, bool *damaged);

#endif
