/* Engines of a rank that talks to no other: one rank by itself, for which group.c does all that there is to do, and any
 * rank of any number whose operations are counted and move nothing. */
#include <stdio.h>

#include "base/memory.h"

#include "parallel/group.h"

static vt_status open_alone(const char *name, vt_engine alone, vt_engine **result)
{
    vt_engine *engine = vt_allocate(1, sizeof *engine, "an engine");
    *engine = alone;
    snprintf(engine->name, sizeof engine->name, "%s", name);
    *result = engine;
    return VT_OK;
}

vt_status vt_engine_open_self(vt_engine **engine)
{
    return open_alone("one rank", (vt_engine){.size = 1}, engine);
}

vt_status vt_engine_open_dry(int rank, int size, vt_engine **engine)
{
    VT_ASSERT(rank >= 0 && rank < size);
    return open_alone("dry", (vt_engine){.rank = rank, .size = size, .counts_only = true}, engine);
}
