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

static void partials(const vt_compared *what)
{
    const vt_pass *pass = what->pass;
    const vt_crps how = terms_of(pass);
    pass->backend->crps_sums(pass->backend, &how, what->prediction, what->target, what->weights, pass->crps->units,
                             what->sums);
}

static void backward(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const vt_pass *pass = what->pass;
    const vt_crps how = terms_of(pass);
    pass->backend->crps_backward(pass->backend, &how, what->prediction, what->target, what->weights, pass->crps->units,
                                 what->sums, scale, loss_scale, dprediction);
}

const vt_loss_kind vt_loss_crps = {
    .measure = VT_MEASURE_ABSOLUTE, .of_members = true, .partials = partials, .backward = backward};
