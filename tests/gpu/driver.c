/* build/tests/driver/libcuda.so.1, a stand-in for the driver in the tests of cuDNN's plans without a GPU. It has the
 * functions that cuDNN calls to compile and load a kernel; nothing can be run. */
#include <stddef.h>

enum { DONE = 0, STUB_LIBRARY = 34 };

static int loaded;

int cuInit(unsigned flags)
{
    (void)flags;
    return DONE;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return DONE;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "no driver, but a stand-in for tests";
    return DONE;
}

int cuLibraryLoadData(void **library, const void *code, void *options, void *values, unsigned count, void *more,
                      void *more_values, unsigned more_count)
{
    (void)code, (void)options, (void)values, (void)count, (void)more, (void)more_values, (void)more_count;
    *library = &loaded;
    return DONE;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &loaded;
    return DONE;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return DONE;
}

#define REFUSE(name)                                                                                                   \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return STUB_LIBRARY;                                                                                           \
    }

/* Functions that cuDNN looks for but does not need; without those of modules and tensor maps 9.28 does not load. */
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxGetLimit)
REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetCount)
REFUSE(cuGetErrorName)
REFUSE(cuGetExportTable) /* without it nvrtc crashes */
REFUSE(cuKernelGetAttribute)
REFUSE(cuKernelGetFunction)
REFUSE(cuKernelSetAttribute)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
REFUSE(cuLibraryLoadFromFile)
REFUSE(cuLinkAddData)
REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate)
REFUSE(cuLinkDestroy)
REFUSE(cuModuleGetFunction)
REFUSE(cuModuleLoadData)
REFUSE(cuModuleUnload)
REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamGetCtx)
REFUSE(cuTensorMapEncodeIm2col)
REFUSE(cuTensorMapEncodeTiled)
