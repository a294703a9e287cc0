/* Which back end a configuration runs on. */
#include "backend/backend.h"

const char *vt_memory_category_name(vt_memory_category category)
{
    static const char *const names[VT_MEMORY_CATEGORY_COUNT] = {"parameters",  "gradients", "optimizer state",
                                                                "activations", "data",      "workspace"};
    return names[category];
}

#ifndef VT_HAS_CUDA
vt_status vt_backend_choose_gpu(int local_rank)
{
    (void)local_rank;
    return vt_error_note(__FILE__, __LINE__, "this program was built without CUDA");
}

vt_status vt_backend_open_cuda(int local_rank, bool deterministic, vt_backend **backend)
{
    (void)local_rank, (void)deterministic;
    *backend = NULL;
    return vt_error_note(__FILE__, __LINE__,
                         "this program was built without CUDA, because make found no nvcc; make NVCC=/path/to/nvcc "
                         "builds it in. --device=cpu runs without it");
}
#endif

vt_status vt_backend_open(const vt_config *config, int threads, int local_rank, vt_backend **backend)
{
    if (config->device != VT_DEVICE_CPU) {
        if (vt_backend_open_cuda(local_rank, config->deterministic, backend) == VT_OK) return VT_OK;
        if (config->device == VT_DEVICE_CUDA) return VT_ERROR;
        vt_error_clear(); /* auto: the CPU where there is no GPU */
    }
    return vt_backend_open_cpu((vt_cpu_isa)config->cpu_isa, threads, backend);
}
