#include "backend/cpu/vector/kernels.h"

void VT_TILES(fill)(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    state->vectors = *backend;
    state->multiply_adds = VT_TILES(multiply_adds);
#define FILL(name) backend->name = VT_TILES(name);
    VT_ON_TILES(FILL)
}
