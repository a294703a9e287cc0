#include "optimizer/kinds.h"

#include <string.h>

#define ROW(name, ...) [VT_OPTIMIZER_##name] = &vt_optimizer_##name,
const vt_optimizer_kind *const vt_optimizer_kinds[] = {VT_OPTIMIZERS(ROW)};

const vt_optimizer_kind *vt_optimizer_find(const char *name)
{
    for (size_t i = 0; i < sizeof vt_optimizer_kinds / sizeof *vt_optimizer_kinds; i++)
        if (strcmp(vt_optimizer_kinds[i]->name, name) == 0) return vt_optimizer_kinds[i];
    return NULL;
}

int vt_optimizer_state_count(const vt_optimizer_kind *kind)
{
    int count = 0;
    while (count < VT_OPTIMIZER_STATES && kind->states[count].name != NULL) count++;
    return count;
}
