/* ‖prediction - target‖₂ / ‖target‖₂ of each sample, over all of its points that are there: the operation relative_l2
 * (backend.h). */
#include "loss/loss.h"

static void partials(const vt_pass *pass, vt_matrix prediction, vt_matrix target, double *sums)
{
    pass->backend->squared_norms(pass->backend, pass->batch, prediction, target, sums);
}

static void finish(const vt_pass *pass, const double *sums, float *losses, double *total)
{
    pass->backend->relative_l2(pass->backend, pass->batch, sums, losses, total);
}

static void backward(const vt_pass *pass, vt_matrix prediction, vt_matrix target, const double *sums, float scale,
                     const double *loss_scale, vt_matrix dprediction)
{
    pass->backend->relative_l2_backward(pass->backend, pass->batch, prediction, target, sums, scale, loss_scale,
                                        dprediction);
}

const vt_loss_kind vt_loss_relative_l2 = {
    .name = "relative_l2", .sums = 2, .partials = partials, .finish = finish, .backward = backward};
