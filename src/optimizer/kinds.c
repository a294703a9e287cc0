#include "optimizer/kinds.h"

#include <string.h>

#define ROW(name, ...) [VT_OPTIMIZER_##name] = &vt_optimizer_##name,
const vt_optimizer_kind *const vt_optimizer_kinds[] = {VT_OPTIMIZERS(ROW)};

const vt_optimizer_kind *vt_optimizer_chosen(const vt_config *config)
{
    const vt_optimizer_kind *kind = vt_optimizer_kinds[config->optimizer];
    return kind->variant != NULL ? kind->variant(config) : kind;
}

int64_t vt_optimizer_grain(const vt_config *config)
{
    const vt_optimizer_kind *kind = vt_optimizer_chosen(config);
    return kind->grain != NULL ? kind->grain(config) : 1;
}

const vt_optimizer_kind *vt_optimizer_kind_for(const vt_optimizer_kind *kind, const vt_parameter *parameter)
{
    return kind->takes == NULL || kind->takes(parameter) ? kind : kind->rest;
}

const vt_optimizer_state_kind *vt_optimizer_kept_state(const vt_optimizer_kind *kind, int i)
{
    const int own = vt_optimizer_state_count(kind);
    if (i < own) return &kind->states[i];
    for (int j = 0; kind->rest != NULL && j < vt_optimizer_state_count(kind->rest); j++) {
        bool known = false;
        for (int k = 0; k < own; k++) known = known || strcmp(kind->states[k].name, kind->rest->states[j].name) == 0;
        if (!known && i-- == own) return &kind->rest->states[j];
    }
    return NULL;
}

int vt_optimizer_state_count(const vt_optimizer_kind *kind)
{
    int count = 0;
    while (count < VT_OPTIMIZER_STATES && kind->states[count].name != NULL) count++;
    return count;
}
