/* A one-way connection between two ranks, over which matrices go in order: from a stage of a pipeline to the one behind
 * it, or back. Each end has room for one matrix on its way. A send returns at once; the memory of what is sent is the
 * caller's again. What is expected is received while the caller computes. */
#ifndef VT_PARALLEL_LINK_H
#define VT_PARALLEL_LINK_H

#include "parallel/world.h"

typedef struct {
    vt_group *group; /* sender and receiver; NULL: this rank is neither */
    vt_type type;    /* of the numbers on their way */
    void *room;
    vt_request request; /* of the matrix in `room`; over: it has been sent, or has come */
    int64_t expected;   /* matrices that are still to come, the one on its way included */
    int64_t count;      /* of this step, in all */
    int64_t cycle;      /* micro-batches, which these matrices are of in turn */
    int64_t elements;   /* of each of them */
    int64_t step;
    const char *contents; /* "activations", in messages */
} vt_link;

/* Over a group of two ranks; of one: the link leads nowhere. elements: of the largest matrix. */
vt_status vt_link_open(vt_group *group, vt_type type, int64_t elements, const char *contents, vt_link *link);
void vt_link_close(vt_link *link);

/* matrix: float32, rows one behind another. Waits until the last one has been sent. */
void vt_link_send(vt_link *link, vt_matrix matrix);

/* `count` matrices of this size are going to come in step `step`, of the micro-batches 0, 1, … cycle - 1, 0, 1, … */
void vt_link_expect(vt_link *link, int64_t step, int64_t count, int64_t cycle, int64_t elements);

/* Which micro-batch's matrix comes next. */
int64_t vt_link_next(const vt_link *link);

/* The next matrix. The one behind it, if any, is then received meanwhile. */
void vt_link_receive(vt_link *link, vt_matrix matrix);

#endif
