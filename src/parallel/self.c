/* One rank: group.c does all that there is to do. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

#include "parallel/group.h"

vt_status vt_engine_open_self(vt_engine **result)
{
    vt_engine *engine = vt_allocate(1, sizeof *engine, "a single rank");
    snprintf(engine->name, sizeof engine->name, "one rank");
    engine->size = 1;
    *result = engine;
    return VT_OK;
}
