/* Where a model's tensors are split over ranks, and how they come together. The residual stream is split by token
 * (context parallel, and the tensor axis with sequence_parallel); between vt_region_enter, before a column-parallel
 * layer, and vt_region_leave, behind a row-parallel one, the ranks of the tensor axis work on the same tokens, each on
 * its own columns. Each of the two is the other's backward. */
#ifndef VT_PARALLEL_REGION_H
#define VT_PARALLEL_REGION_H

#include "backend/arena.h"
#include "parallel/world.h"

typedef struct {
    vt_world *world;
    vt_group *tensor, *context;
    vt_group *tokens;       /* the ranks that share a sample's tokens */
    unsigned token_axes;    /* along which they lie */
    bool sequence;          /* the tensor axis splits tokens, too */
    bool ring;              /* keys and values go round instead of being gathered */
    int64_t token_count;    /* of a sample */
    vt_span own;            /* the tokens of this rank's residual stream */
    vt_span inner;          /* those between enter and leave: the same, or with `sequence` all of the tensor group's */
    vt_span *tensor_spans;  /* [tensor->size]: own of each rank of the tensor axis, when `sequence` */
    vt_span *context_spans; /* [context->size]: inner of each rank of the context axis */
} vt_parallel;

/* Collective. The groups for tokens and columns of a sample with `tokens` tokens, over the back end's memory. */
vt_status vt_parallel_open(const vt_config *config, vt_world *world, vt_backend *backend, int64_t tokens,
                           vt_parallel **parallel);
void vt_parallel_close(vt_parallel **parallel);

/* The tokens of any rank's residual stream: `own` above. */
vt_span vt_parallel_tokens(const vt_layout *layout, int rank, bool sequence, int64_t tokens);

/* This rank's share of a dimension of the tensor axis. */
vt_span vt_parallel_share(const vt_parallel *parallel, int64_t whole);

/* ---- between enter and leave ---- */

/* x [batch * own, columns] to [batch * inner, columns]: x itself, or gathered on the arena. Backward: dy. */
vt_matrix vt_region_enter(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix x);

/* Room for a partial sum [batch * inner, columns] of y: y itself where it is the sum, or in float32, which ranks add,
 * on the arena. Backward: of dx. */
vt_matrix vt_region_room(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix y);

/* y [batch * own, columns] = the sum of `partial` (vt_region_room's) over the tensor axis. Backward: dx. */
void vt_region_leave(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix partial, vt_matrix y);

/* ---- tokens ---- */

/* whole [batch * all tokens of `group`, columns] = the rows x [batch * spans[rank].count, columns] of all ranks, each
 * sample's tokens together. */
void vt_region_gather(vt_group *group, const vt_span *spans, vt_arena *arena, int64_t batch, vt_matrix x,
                      vt_matrix whole);

/* Backward of vt_region_gather: x = the sum over the group of `whole`'s rows that are this rank's. float32; whole is
 * used up. */
void vt_region_reduce(vt_group *group, const vt_span *spans, vt_arena *arena, int64_t batch, vt_matrix whole,
                      vt_matrix x);

#endif
