#include "loss/loss.h"

#define DECLARE(name, help) extern const vt_loss_kind vt_loss_##name;
VT_LOSSES(DECLARE)

#define ROW(name, help) &vt_loss_##name,
static const vt_loss_kind *const kinds[] = {VT_LOSSES(ROW)};

const vt_loss_kind *vt_loss_kind_of(const vt_config *config)
{
    return kinds[config->loss];
}
