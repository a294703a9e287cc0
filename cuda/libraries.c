#include "libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *title;
    const char *file; /* with the major version of the headers of this build */
    const char *advice;
    const char *const *symbols; /* names of functions */
    size_t count;
    void *functions; /* the struct to fill with their pointers, which it has in the same order */
    bool is_open;
} description;

/* Where to look besides the loader's own paths (LD_LIBRARY_PATH, ld.so.conf). */
static const char *const environment[] = {"CUDA_HOME", "CUDA_PATH", "CUDNN_HOME", "NCCL_HOME"};
static const char *const folders[] = {"lib64", "lib"};

static void *open_file(const char *file, char *tried, size_t size)
{
    char path[1024];
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    snprintf(tried, size, "%s in the loader's paths", file);
    for (size_t i = 0; handle == NULL && i <= sizeof environment / sizeof *environment; i++) {
        const char *base = i < sizeof environment / sizeof *environment ? getenv(environment[i]) : "/usr/local/cuda";
        for (size_t j = 0; base != NULL && handle == NULL && j < sizeof folders / sizeof *folders; j++) {
            snprintf(path, sizeof path, "%s/%s/%s", base, folders[j], file);
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            size_t used = strlen(tried);
            snprintf(tried + used, size - used, ", %s", path);
        }
    }
    return handle;
}

static vt_status open_once(description *library)
{
    vt_status status = VT_OK;
    char tried[1500];
    if (library->is_open) return VT_OK;
    void *handle = open_file(library->file, tried, sizeof tried);
    VT_CHECK(handle != NULL, "%s was not found (looked for %s). %s, or name its folder in LD_LIBRARY_PATH",
             library->title, tried, library->advice);
    for (size_t i = 0; i < library->count; i++) {
        void *function = dlsym(handle, library->symbols[i]);
        VT_CHECK(function != NULL,
                 "%s (%s) has no function %s: it is older than the %s that this program was built with", library->title,
                 library->file, library->symbols[i], library->title);
        memcpy((void **)library->functions + i, &function, sizeof function);
    }
    library->is_open = true;
done:
    if (status != VT_OK && handle != NULL) dlclose(handle);
    return status;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define NAME(symbol) #symbol,

/* Defines vt_library_<name>, which fills a vt_<name>. */
#define LIBRARY(name, all_symbols, its_title, its_file, its_advice)                                                    \
    vt_status vt_library_##name(const vt_##name **library)                                                             \
    {                                                                                                                  \
        static vt_##name functions;                                                                                    \
        static const char *const symbols[] = {all_symbols(NAME)};                                                      \
        static description what = {.title = its_title,                                                                 \
                                   .file = its_file,                                                                   \
                                   .advice = its_advice,                                                               \
                                   .symbols = symbols,                                                                 \
                                   .count = sizeof symbols / sizeof *symbols,                                          \
                                   .functions = &functions};                                                           \
        *library = &functions;                                                                                         \
        return open_once(&what);                                                                                       \
    }

LIBRARY(cublaslt, VT_CUBLASLT_SYMBOLS, "cuBLASLt", "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
        "It comes with the CUDA toolkit")

#ifdef VT_HAS_CUDNN
LIBRARY(cudnn, VT_CUDNN_SYMBOLS, "cuDNN", "libcudnn.so." TEXT(CUDNN_MAJOR), "Install cuDNN")
#endif

#ifdef VT_HAS_NCCL
LIBRARY(nccl, VT_NCCL_SYMBOLS, "NCCL", "libnccl.so." TEXT(NCCL_MAJOR), "Install NCCL, or use --comm=mpi")
#endif
