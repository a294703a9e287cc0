#include "loss/loss.h"

#include "config/stages.h"

#define DECLARE(name, help) extern const vt_loss_kind vt_loss_##name;
VT_LOSSES(DECLARE)

#define ROW(name, help) &vt_loss_##name,
static const vt_loss_kind *const kinds[] = {VT_LOSSES(ROW)};

const vt_loss_kind *vt_loss_kind_at(const vt_config *config, int64_t epoch)
{
    const vt_stages losses = vt_config_losses(config);
    return kinds[(int)vt_stages_at(&losses, epoch)];
}

const vt_loss_kind *vt_loss_kind_of(const vt_config *config)
{
    const vt_stages losses = vt_config_losses(config);
    for (int i = 0; i < losses.count; i++)
        if (kinds[(int)losses.stages[i].value]->of_members) return kinds[(int)losses.stages[i].value];
    return vt_loss_kind_at(config, 0);
}

void vt_loss_finish(const vt_compared *what, float *losses, double *total)
{
    const vt_pass *pass = what->pass;
    const int64_t samples = vt_pass_samples(pass);
    vt_group_all_reduce(pass->parallel->tokens, VT_SUM_FLOAT64, what->sums, VT_LOSS_SUMS * samples, NULL);
    pass->backend->loss_values(pass->backend, what->kind->measure, samples, what->sums, losses, total);
}
