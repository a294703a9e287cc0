#include "operations/paths.h"

#include "backend/cpu/cpu.h"
#include "operations/mirror.h"
#include "operations/tiles_model.h"
#include "test.h"

#ifdef VT_HAS_CUDA
#include "cuda/attention_choice.h"
#endif

static vt_status open_gpu(bool deterministic, vt_backend **backend)
{
    if (path_gpu_is_host()) return open_host_cuda(backend);
    /* NVIDIA's libraries read it when they start */
    setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    const vt_status status = vt_backend_open_cuda(0, deterministic, backend);
#ifdef VT_HAS_CUDA
    /* our kernels for every GPU are compared with the oracle, other engines elsewhere (cuda_libraries.c, cuda_wgmma.c)
     */
    if (status == VT_OK && deterministic) vt_attention_prefer(*backend, VT_ATTENTION_OWN);
#endif
    return status;
}

vt_status path_open_gpu(vt_backend **backend)
{
    return open_gpu(true, backend);
}

vt_status path_open_timed_gpu(vt_backend **backend)
{
    vt_status status = VT_OK;
    vt_backend *inner = NULL;
    *backend = NULL;
    vt_test_gpu_used = true;
    VT_TRY(open_gpu(false, &inner));
    VT_TRY(open_mirror(inner, backend));
done:
    return status;
}

static vt_status check_tiles_model(vt_backend *backend)
{
    const char *refused = tiles_model_refused();
    if (refused != NULL) return vt_error_note(__FILE__, __LINE__, "%s", refused);
    vt_cpu_state *state = backend->state;
    return state->failed ? VT_ERROR : VT_OK;
}

static vt_status open_tiles_model(vt_backend **result)
{
    vt_status status = VT_OK;
    vt_backend *backend = NULL;
    *result = NULL;
    VT_TRY(vt_backend_open_cpu(VT_ISA_BASELINE, 0, &backend));
    vt_tiles_fill_model(backend);
    backend->check = check_tiles_model;
    tiles_model_refused();
    *result = backend;
done:
    return status;
}

static bool has_gpu(void)
{
    static int known = -1;
    if (vt_test_gpu_known()) return true;
    if (known < 0) {
        vt_backend *backend = NULL;
        known = path_open_gpu(&backend) == VT_OK;
        vt_backend_close(&backend);
        vt_error_clear();
    }
    return known > 0;
}

vt_status path_open_trainers(vt_cpu_isa isa, vt_backend **backend)
{
    if (isa == PATH_HOST_CUDA) return open_host_cuda(backend);
    if (isa == PATH_TILES_MODEL) return open_tiles_model(backend);
    if (isa == PATH_CUDNN) return open_cudnn_path(backend);
    if (isa >= PATH_STREAMS_LATE) return open_streams_path(isa, backend);
    if (isa != PATH_GPU) return vt_backend_open_cpu(isa, 0, backend);
    vt_test_gpu_used = true;
    return path_open_gpu(backend);
}

vt_status path_open(vt_cpu_isa isa, vt_backend **backend)
{
    vt_status status = VT_OK;
    vt_backend *inner = NULL;
    *backend = NULL;
    VT_TRY(path_open_trainers(isa, &inner));
    if (isa == PATH_GPU) return open_mirror(inner, backend);
    *backend = inner;
done:
    return status;
}

bool path_is_available(vt_cpu_isa isa)
{
    vt_backend *backend = NULL;
    if (isa == PATH_GPU) {
        vt_test_gpu_wanted = true;
        return has_gpu();
    }
    if (vt_test_gpu_alone()) return false;
    if (isa == PATH_HOST_CUDA) return has_host_cuda();
    if (isa == PATH_CUDNN) return has_cudnn_path();
    if (isa >= PATH_STREAMS_LATE) return has_streams();
    if (isa == PATH_TILES_MODEL) return true;
    bool available = vt_backend_open_cpu(isa, 0, &backend) == VT_OK;
    vt_backend_close(&backend);
    vt_error_clear();
    return available;
}

bool path_has_turn(vt_cpu_isa isa, size_t number_of_case)
{
    return isa == PATH_GPU || isa == PATH_STREAMS_LATE + (vt_cpu_isa)(number_of_case % 3);
}

vt_backend *open_path(vt_cpu_isa isa)
{
    vt_backend *backend = NULL;
    EXPECT_OK(path_open(isa, &backend));
    return backend;
}

void close_path(vt_backend **backend)
{
    EXPECT_OK((*backend)->check(*backend));
    vt_backend_close(backend);
}

pair open_pair(vt_cpu_isa isa)
{
    return (pair){open_path(VT_ISA_PLAIN), open_path(isa)};
}

void close_pair(pair *p)
{
    close_path(&p->fast);
    vt_backend_close(&p->plain);
}

path_list open_paths(bool wanted(vt_cpu_isa isa))
{
    path_list paths = {.plain = open_path(VT_ISA_PLAIN)};
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= PATH_CUDNN; isa++) {
        if (!wanted(isa) || !path_is_available(isa)) continue;
        paths.isa[paths.count] = isa;
        paths.at[paths.count++] = open_path(isa);
    }
    return paths;
}

void close_paths(path_list *paths)
{
    for (int i = 0; i < paths->count; i++) close_path(&paths->at[i]);
    close_path(&paths->plain);
}

vt_backend *open_with_threads(int threads)
{
    vt_backend *backend = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, threads, &backend));
    return backend;
}

void restore_threads(void)
{
    SCOPED(vt_backend) *backend = open_with_threads(2);
}

bool path_gpu_is_host(void)
{
    const char *which = getenv("VITRAIN_TEST_GPU");
    return which != NULL && strcmp(which, "host") == 0;
}

bool path_use_wgmma(vt_backend *backend)
{
#ifdef VT_HAS_CUDA
    backend = mirror_inner(backend);
    vt_attention_prefer(backend, VT_ATTENTION_WGMMA);
    return vt_attention_has(backend, VT_ATTENTION_WGMMA);
#else
    (void)backend;
    return false;
#endif
}

bool path_wgmma_served(vt_backend *backend)
{
#ifdef VT_HAS_CUDA
    return vt_attention_served(mirror_inner(backend), VT_ATTENTION_WGMMA) > 0;
#else
    (void)backend;
    return false;
#endif
}
