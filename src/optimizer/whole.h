/* Updates of whole tensors, of which a rank may have parts only: for kinds whose step of an element depends on others
 * of its tensor. */
#ifndef VT_OPTIMIZER_WHOLE_H
#define VT_OPTIMIZER_WHOLE_H

#include "optimizer/kept.h"

/* What this rank updates of a tensor. */
typedef struct {
    const vt_parameter *parameter;
    vt_piece piece;          /* of this rank's part; its count may be 0 */
    int64_t value, gradient; /* where it begins in the block of values, of gradients */
    bool counts;             /* of the ranks of the group that have the same piece, this is the first */
    double share;            /* 1 / the number of ranks, of all, that have the same piece */
} vt_whole_part;

typedef struct {
    const vt_config *config;
    vt_backend *backend;
    const vt_update *rule;
    const vt_step_state *state; /* back end's memory */
    const vt_parameters *parameters;
    const vt_kept *kept;
    vt_group *group; /* all ranks that share these tensors: along the kind's axes, and the shards of ZeRO */
    int64_t count;
    const vt_whole_part *parts; /* [count], of the tensors that the kind takes; those of this rank's stage */
} vt_whole;

struct vt_whole_update {
    unsigned axes; /* over which tensors that the kind takes may be split */
    /* Takes the memory it needs. *own: its own, for the other two. */
    vt_status (*open)(const vt_whole *whole, void **own);
    /* *result += this rank's share of the squares of all gradients, which begins a step; NULL: the kind's first pass
     * over the gradients has no use for their squares, or the kind doesn't take all tensors. */
    void (*squares)(const vt_whole *whole, void *own, double *result);
    /* Collective over the group: one update, none if the state's factor is NaN. It rounds the values, too, where
     * vt_parameters_rounded says so. */
    void (*step)(const vt_whole *whole, void *own);
    void (*close)(const vt_whole *whole, void *own);
};

#endif
