/* The CUDA back end where there is no GPU: what it says, and what of it can be tried. */
#include "operations/paths.h"
#include "test.h"

static bool has_gpu(void)
{
    vt_backend *backend = NULL;
    bool has = vt_backend_open_cuda(0, true, &backend) == VT_OK;
    vt_backend_close(&backend);
    vt_error_clear();
    return has;
}

TEST(without_a_gpu_auto_is_the_cpu_and_cuda_an_error)
{
    if (has_gpu()) {
        vt_test_skip("this machine has a GPU");
        return;
    }
    vt_config *config = NULL;
    vt_backend *backend = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    EXPECT_OK(vt_backend_open(config, 0, 0, &backend));
    EXPECT(backend != NULL && strncmp(backend->name, "CPU", 3) == 0);
    vt_backend_close(&backend);
    EXPECT_OK(vt_config_set(config, "device", "cuda"));
    EXPECT_ERROR(vt_backend_open(config, 0, 0, &backend), "--device=cpu");
    EXPECT(backend == NULL);
    vt_config_close(&config);
}

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN)

#include <dlfcn.h>

#include "cuda/fused_attention.h"

/* What cuDNN says of an H200. */
static const char *const h200 =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":150109880320,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"deviceName\":\"NVIDIA H200\"}";

/* cuDNN compiles its kernels through the driver's library. Where there is no driver, the CUDA toolkit's stand-in for it
 * is enough for the compiling. */
static bool load_driver(void)
{
    const char *home = getenv("CUDA_HOME");
    char path[512];
    snprintf(path, sizeof path, "%s/lib64/stubs/libcuda.so", home != NULL ? home : "/usr/local/cuda");
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL || dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

/* The reference model's attention: the library takes the graphs and has kernels for them. Without a GPU they can't be
 * loaded, so there is no plan. */
TEST(cudnn_proposes_kernels_for_attention)
{
    const vt_cudnn *library = NULL;
    if (!load_driver() || vt_library_cudnn(&library) != VT_OK || library->cudnnGetVersion() < 91501) {
        vt_test_skip("no libcuda, nor a stand-in, or no cuDNN 9.15.1 or newer: %s", vt_error_text());
        vt_error_clear();
        return;
    }
    for (int kind = 0; kind < 4; kind++) {
        int backward = kind % 2;
        vt_type type = kind < 2 ? VT_BFLOAT16 : VT_FLOAT16;
        vt_fused_shape shape = {16, 8, 48, 4050, 4050, 384, 384, 384, 384, 384, 384, 384, 384, backward, type};
        vt_fused_graph graph;
        vt_fused_graph_open(library, NULL, h200, &shape, &graph);
        EXPECT(graph.operation_count == (backward ? 18 : 10), "%d operations", graph.operation_count);
        EXPECT(graph.proposals > 0, "no proposal, backward %d, type %d", backward, type);
        vt_fused_graph_close(&graph);
    }
}

TEST(a_missing_library_is_named)
{
    const vt_cublaslt *library = NULL;
    if (vt_library_cublaslt(&library) == VT_OK) return;
    EXPECT(strstr(vt_error_text(), "libcublasLt.so") != NULL, "%s", vt_error_text());
    vt_error_clear();
}

#endif
