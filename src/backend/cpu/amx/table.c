#include "backend/cpu/vector/kernels.h"

void VT_KERNEL(vt_tiles_fill)(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    state->vectors = *backend;
#define FILL(name) VT_KERNEL(vt_tiles_##name##_fill)(backend);
    VT_FILES_ON_TILES(FILL)
}
