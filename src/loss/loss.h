/* The loss of a prediction against its target: a number for each sample. Each loss is a row of VT_LOSSES in
 * config/kinds.def. */
#ifndef VT_LOSS_LOSS_H
#define VT_LOSS_LOSS_H

#include "config/config.h"
#include "model/pass.h"

typedef struct vt_loss_kind vt_loss_kind;

/* What is compared. Matrices [batch * rows, columns]: prediction and target (with members: [samples * rows, columns]),
 * float32, laid out alike, of the rows that this rank has. weights [rows, columns], float32: the weight of each number
 * of a sample; without memory each is 1. All memory is the back end's. */
typedef struct {
    const vt_loss_kind *kind;
    const vt_pass *pass;
    vt_matrix prediction, target, weights;
    /* [batch, VT_LOSS_SUMS]: what a sample's loss is made of, each a sum over the ranks that share the sample. */
    double *sums;
} vt_compared;
enum { VT_LOSS_SUMS = 2 };

struct vt_loss_kind {
    vt_loss_measure measure; /* how vt_loss_finish makes the loss of the sums; of errors.c also what is summed */
    const char *infinite;    /* what is wrong with the target of a sample whose loss is infinite; NULL: unknown */
    bool of_members;         /* it compares the members of each sample, pass->members, and needs pass->crps */
    /* Training has the sums of `backward`, which computes them together with the gradient: partials is for evaluation.
     */
    bool sums_in_backward;
    /* Makes this rank's part of the sums. */
    void (*partials)(const vt_compared *what);
    /* dprediction = scale * *loss_scale * the loss's gradient, from the whole sums; in the pass's type; may be the
     * prediction itself. With sums_in_backward it also makes the sums, and adds to the gradients of pass->head. */
    void (*backward)(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction);
};

/* Collective over the ranks that share the samples. Sums their parts up, of which losses [batch] follow; these are also
 * added to *total unless that is NULL. */
void vt_loss_finish(const vt_compared *what, float *losses, double *total);

/* The row of the table that the configuration names for an epoch; and the one that needs most memory: that of
 * members where some epoch has it, else the first. */
const vt_loss_kind *vt_loss_kind_at(const vt_config *config, int64_t epoch);
const vt_loss_kind *vt_loss_kind_of(const vt_config *config);

#endif
