/* The paths of the CPU back end that this machine can run: the plain oracle and every vector instruction set. */
#ifndef VT_TESTS_OPERATIONS_PATHS_H
#define VT_TESTS_OPERATIONS_PATHS_H

#include "backend/backend.h"

static inline bool path_is_available(vt_cpu_isa isa)
{
    vt_backend *backend = NULL;
    bool available = vt_backend_open_cpu(isa, 0, &backend) == VT_OK;
    vt_backend_close(&backend);
    vt_error_clear();
    return available;
}

#define FOR_EACH_PATH(isa)                                                                                             \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= VT_ISA_AVX512; isa++)                                                   \
        if (path_is_available(isa))

/* All but the oracle. */
#define FOR_EACH_FAST_PATH(isa)                                                                                        \
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= VT_ISA_AVX512; isa++)                                                \
        if (path_is_available(isa))

#endif
