#include "loss/loss.h"

#include "config/stages.h"

#define DECLARE(name, help) extern const vt_loss_kind vt_loss_##name;
VT_LOSSES(DECLARE)

#define ROW(name, help) &vt_loss_##name,
static const vt_loss_kind *const kinds[] = {VT_LOSSES(ROW)};

const vt_loss_kind *vt_loss_kind_at(const vt_config *config, int64_t epoch)
{
    return kinds[vt_config_loss_at(config, epoch)];
}

const vt_loss_kind *vt_loss_kind_of(const vt_config *config)
{
    return vt_config_members(config) > 1 ? &vt_loss_crps : vt_loss_kind_at(config, 0);
}
