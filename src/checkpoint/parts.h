/* The tensors of a checkpoint (parameters, then each state of the optimizer, then the parameters' average), and which
 * boxes of each one every rank writes and reads. */
#ifndef VT_CHECKPOINT_PARTS_H
#define VT_CHECKPOINT_PARTS_H

#include "checkpoint/checkpoint.h"
#include "storage/tensor_box.h"

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

/* Parameters first: the first vt_parameters_count of them. */
int64_t vt_stored_count(const vt_checkpoint_subject *subject);
vt_stored_tensor vt_stored_at(const vt_checkpoint_subject *subject, int64_t index);

/* Is it a frozen parameter, beside others with averages? It is its own average, which has this name. */
bool vt_stored_average_name(const vt_checkpoint_subject *subject, int64_t index, char name[VT_STORED_NAME]);

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

#endif
