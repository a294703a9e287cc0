/* The back ends that every operation is tested on: the paths of the CPU that this machine can run (the plain oracle and
 * every vector instruction set), and the CUDA kernels compiled for the host (cuda/host_cuda.h). */
#ifndef VT_TESTS_OPERATIONS_PATHS_H
#define VT_TESTS_OPERATIONS_PATHS_H

#include "backend/backend.h"

/* Beside vt_cpu_isa: the CUDA back end's kernels, run on the host. */
#define PATH_HOST_CUDA ((vt_cpu_isa)(VT_ISA_AVX512 + 1))

/* The table with every hand-written kernel of cuda/, compiled for the host; matrix products, which are a library's
 * there, are the plain loops. Its memory does not count as the host's own: layers must copy. */
vt_status open_host_cuda(vt_backend **backend);
bool has_host_cuda(void); /* in this build: a C++ compiler was found */

static inline vt_status path_open(vt_cpu_isa isa, vt_backend **backend)
{
    return isa == PATH_HOST_CUDA ? open_host_cuda(backend) : vt_backend_open_cpu(isa, 0, backend);
}

static inline bool path_is_available(vt_cpu_isa isa)
{
    vt_backend *backend = NULL;
    if (isa == PATH_HOST_CUDA) return has_host_cuda();
    bool available = vt_backend_open_cpu(isa, 0, &backend) == VT_OK;
    vt_backend_close(&backend);
    vt_error_clear();
    return available;
}

#define FOR_EACH_CPU_PATH(isa)                                                                                         \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= VT_ISA_AVX512; isa++)                                                   \
        if (path_is_available(isa))

#define FOR_EACH_PATH(isa)                                                                                             \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= PATH_HOST_CUDA; isa++)                                                  \
        if (path_is_available(isa))

/* All but the oracle. */
#define FOR_EACH_FAST_PATH(isa)                                                                                        \
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= PATH_HOST_CUDA; isa++)                                               \
        if (path_is_available(isa))

#endif
