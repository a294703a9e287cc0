/* The score of each sample's members together (backend/crps_measure.h). */
#include "loss/loss.h"

/* Of the members of this pass: as many as training makes, or one, such as persistence. */
static vt_crps terms_of(const vt_pass *pass)
{
    vt_crps how = pass->crps->how;
    how.members = vt_pass_members(pass);
    how.grid.batch = vt_pass_samples(pass);
    return how;
}

static void partials(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums)
{
    (void)loss;
    const vt_crps how = terms_of(pass);
    pass->backend->crps_sums(pass->backend, &how, prediction, target, weights, pass->crps->units, sums);
}

static void backward(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums, float scale, const double *loss_scale, vt_matrix dprediction)
{
    (void)loss;
    const vt_crps how = terms_of(pass);
    pass->backend->crps_backward(pass->backend, &how, prediction, target, weights, pass->crps->units, sums, scale,
                                 loss_scale, dprediction);
}

const vt_loss_kind vt_loss_crps = {.sums = 2,
                                   .measure = VT_MEASURE_ABSOLUTE,
                                   .of_members = true,
                                   .partials = partials,
                                   .finish = vt_loss_finish,
                                   .backward = backward};
