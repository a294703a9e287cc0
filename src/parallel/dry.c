/* Any rank of any number, alone: operations are counted and move nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

#include "parallel/group.h"

vt_status vt_engine_open_dry(int rank, int size, vt_engine **result)
{
    vt_engine *engine = vt_allocate(1, sizeof *engine, "the dry engine");
    VT_ASSERT(engine != NULL && rank >= 0 && rank < size);
    snprintf(engine->name, sizeof engine->name, "dry");
    engine->rank = rank;
    engine->size = size;
    engine->counts_only = true;
    *result = engine;
    return VT_OK;
}
