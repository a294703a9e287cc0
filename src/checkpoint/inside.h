/* What the files of this room share: the tensors of a checkpoint, and which rank writes which part of them; its files,
 * and what its index says. Other rooms see checkpoint.h. */
#ifndef VT_CHECKPOINT_INSIDE_H
#define VT_CHECKPOINT_INSIDE_H

#include "checkpoint/checkpoint.h"
#include "storage/safetensors.h"
#include "storage/tensor_box.h"

/* ---- the tensors of a checkpoint, and which boxes of each one every rank writes and reads (parts.c): parameters, then
 * each state of the optimizer, then the parameters' average ---- */

enum { VT_STORED_NAME = VT_PARAMETER_NAME + 32 };

typedef struct {
    char name[VT_STORED_NAME];     /* "parameters/head.weight", "optimizer/moment1/head.weight", "average/…"; several
                                      parameters may be rows of one (vt_parameter.file_name) */
    char own[VT_STORED_NAME];      /* the same of the parameter's own name */
    const vt_parameter *parameter; /* NULL: there is no such tensor, nothing of this name is kept of the parameter */
    vt_tensor_shape shape;         /* of the whole tensor in files */
    vt_kept_part part;             /* what this rank keeps of it, in the back end's memory */
    bool is_whole;                 /* every rank of its stage keeps all of it */
    bool sliced;
} vt_stored_tensor;

/* Parameters first: as many as the registry has. */
int64_t vt_stored_count(const vt_checkpoint_subject *subject);
vt_stored_tensor vt_stored_at(const vt_checkpoint_subject *subject, int64_t index);

/* The parameter's name in files. */
const char *vt_stored_name(const vt_parameter *parameter);

/* The piece as boxes of the whole tensor, in the order of its elements; returns how many. */
int vt_stored_boxes(const vt_stored_tensor *tensor, vt_tensor_box boxes[VT_TENSOR_BOXES]);

/* Host memory for the largest piece. */
float *vt_stored_room(const vt_checkpoint_subject *subject);

/* A box that a rank wrote. */
typedef struct {
    int32_t tensor, rank, number; /* the number-th box of the rank's piece */
    int32_t count;                /* of how many */
    vt_tensor_box box;
} vt_written_box;

/* Its name in the rank's shard: the tensor's `own`, with "@number" when there are several. */
void vt_written_name(const vt_written_box *box, const char *tensor, char name[VT_STORED_NAME + 8]);

/* The boxes that this rank is to write, so that each element is written once, and the copies of a tensor
 * take turns (with noddp, the first one writes): *boxes is malloc'd. */
void vt_stored_own_boxes(const vt_checkpoint_subject *subject, vt_written_box **boxes, int64_t *count);

/* Collective. The boxes of all ranks, sorted by tensor and rank; malloc'd. */
void vt_stored_all_boxes(const vt_world *world, const vt_written_box *own, int64_t own_count, vt_written_box **boxes,
                         int64_t *count);

/* ---- its files, and what its index says ---- */

/* 1: one shard, whole tensors. 2: several shards, tensors made of boxes, and a checksum beside checkpoint.h5. */
enum { VT_CHECKPOINT_VERSION = 2 };

/* The attributes that keep a run's progress and the optimizer's, in the index. */
vt_status vt_checkpoint_write_progress(vt_tensor_file *index, const vt_run_progress *progress,
                                       const vt_optimizer_progress *optimizer);

/* malloc'd, as all names here are. */
char *vt_checkpoint_shard_name(int64_t rank, int64_t ranks);

/* checkpoint.crc32c, of the index. */
vt_status vt_checkpoint_write_checksum(const char *directory);

/* Brings a file beside the index onto the disk, and its checksum into the index, under this name. */
vt_status vt_checkpoint_note_checksum(vt_tensor_file *index, const char *name, const char *path);

/* Is it a parameter that comes later, and not there yet? */
bool vt_checkpoint_lacks(vt_tensor_file *file, const vt_parameter *parameter);

/* Whether its parameters are those of the subject's model. */
vt_status vt_checkpoint_check_model(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject);

/* Whether a run with the subject's configuration and data can continue from it. */
vt_status vt_checkpoint_check_run(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject,
                                  const vt_run_progress *progress);

/* Whether its data go with the subject's; if so, the subject's task takes its normalisation. */
vt_status vt_checkpoint_join_data(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject,
                                  vt_fields_use use);

/* Whether the losses of the run's validations measure what the checkpoint's do. If not, the smallest loss and the
 * baseline's are not known any more, and the log says why. */
vt_status vt_checkpoint_compare_measure(vt_tensor_file *index, const char *directory,
                                        const vt_checkpoint_subject *subject, vt_run_progress *progress);

/* vt_checkpoint_read_parameters for a run that begins, this rank's part of it. */
vt_status vt_checkpoint_read_initial(const char *path, const vt_checkpoint_subject *subject, vt_text *changes);

/* Reads what this rank keeps of a tensor, which has this name in the file, straight from the shards that hold it; or
 * takes it from the `whole` tensor, unless that is NULL. room: vt_stored_room. */
vt_status vt_checkpoint_read_part(vt_tensor_file *index, const char *name, const float *whole,
                                  const vt_stored_tensor *tensor, const vt_checkpoint_subject *subject, float *room);

/* to [new[0] new[1], dim] = the position embedding from [old[0] old[1], dim] of another grid of tokens, interpolated as
 * timm.layers.resample_abs_pos_embed does: torch.nn.functional.interpolate, bicubic, antialias=True,
 * align_corners=False (aten/src/ATen/native/cpu/UpSampleKernel.cpp). */
void vt_positions_resample(const float *from, const int64_t old[2], int64_t dim, const int64_t new[2], float *to);

/* Appends "num_heads 2, not 4" for each of the options (NULL ends them) that differs. */
void vt_checkpoint_compare_options(const vt_config *stored, const vt_config *config, const char *const *options,
                                   vt_text *differences);

/* Appends the first word that differs from those of the data, and how many both have. */
vt_status vt_checkpoint_compare_vocabulary(const char *directory, const vt_task *task, vt_text *difference);

/* Opens a whole checkpoint of a known version; the ranks share the check of the shards (world may be NULL). *damaged
 * (NULL: not wanted) tells, of a failure, whether the files are at fault. */
vt_status vt_checkpoint_open(const char *directory, const vt_world *world, vt_tensor_file **index, bool *damaged);

/* ---- the files of a checkpoint on its way to the disk (write.c) ---- */

/* What they hold; the saver fills it in. */
typedef struct {
    const vt_checkpoint_subject *subject; /* its configuration, shapes and names; the numbers are those of `copy` */
    char *directory, id[33];
    vt_run_progress progress; /* as it is written, as the next two are */
    vt_optimizer_progress optimizer;
    char *choices; /* or NULL */
    void *copy;    /* NULL: the shard is written from the back end's memory */
    vt_written_box *own, *all;
    int64_t own_count, all_count;
    int64_t own_bytes, *shard_bytes; /* of this rank's shard; of all ranks' */
    int64_t own_checksum, *shard_checksums;
} vt_checkpoint_work;

/* Begins to copy what this rank writes. The copy is complete when the back end has finished its queued work. */
void vt_checkpoint_work_copy(const vt_checkpoint_work *work);

/* Writes this rank's shard, and notes its size and checksum; with a copy in any thread. */
vt_status vt_checkpoint_work_shard(vt_checkpoint_work *work);

/* Writes the index, once rank 0 knows all shards; in any thread. */
vt_status vt_checkpoint_work_index(const vt_checkpoint_work *work);

#endif
