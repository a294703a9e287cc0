/* CUDA libraries that are loaded on first use, so that the program starts where they are missing: one list of symbols
 * for each. A library stays loaded until the program ends. */
#ifndef VT_CUDA_LIBRARIES_H
#define VT_CUDA_LIBRARIES_H

#include <cublasLt.h>

#include "base/status.h"

#ifdef VT_HAS_CUDNN
#include <cudnn.h>
#endif
#ifdef VT_HAS_NCCL
#include <nccl.h>
#endif

#define VT_CUBLASLT_SYMBOLS(symbol)                                                                                    \
    symbol(cublasLtCreate) symbol(cublasLtDestroy) symbol(cublasLtGetVersion) symbol(cublasLtGetStatusString)          \
        symbol(cublasLtMatmulDescCreate) symbol(cublasLtMatmulDescDestroy) symbol(cublasLtMatmulDescSetAttribute)      \
            symbol(cublasLtMatrixLayoutCreate) symbol(cublasLtMatrixLayoutDestroy)                                     \
                symbol(cublasLtMatmulPreferenceCreate) symbol(cublasLtMatmulPreferenceDestroy)                         \
                    symbol(cublasLtMatmulPreferenceSetAttribute) symbol(cublasLtMatmulAlgoGetHeuristic)                \
                        symbol(cublasLtMatmulAlgoCheck) symbol(cublasLtMatmul)

#define VT_CUDNN_SYMBOLS(symbol)                                                                                       \
    symbol(cudnnCreate) symbol(cudnnDestroy) symbol(cudnnSetStream) symbol(cudnnGetVersion)                            \
        symbol(cudnnGetLastErrorString) symbol(cudnnBackendCreateDescriptor) symbol(cudnnBackendDestroyDescriptor)     \
            symbol(cudnnBackendSetAttribute) symbol(cudnnBackendGetAttribute) symbol(cudnnBackendFinalize)             \
                symbol(cudnnBackendExecute)

#define VT_NCCL_SYMBOLS(symbol)                                                                                        \
    symbol(ncclGetVersion) symbol(ncclGetErrorString) symbol(ncclGetLastError) symbol(ncclGetUniqueId)                 \
        symbol(ncclCommInitRankConfig) symbol(ncclCommSplit) symbol(ncclCommGetAsyncError) symbol(ncclCommFinalize)    \
            symbol(ncclCommDestroy) symbol(ncclCommAbort) symbol(ncclAllReduce) symbol(ncclBroadcast) symbol(ncclSend) \
                symbol(ncclRecv) symbol(ncclReduce) symbol(ncclReduceScatter) symbol(ncclAllGather)                    \
                    symbol(ncclGroupStart) symbol(ncclGroupEnd)

#define VT_LIBRARY_FIELD(name) __typeof__(&(name)) name;
typedef struct {
    VT_CUBLASLT_SYMBOLS(VT_LIBRARY_FIELD)
} vt_cublaslt;
#ifdef VT_HAS_CUDNN
typedef struct {
    VT_CUDNN_SYMBOLS(VT_LIBRARY_FIELD)
} vt_cudnn;
#endif
#ifdef VT_HAS_NCCL
typedef struct {
    VT_NCCL_SYMBOLS(VT_LIBRARY_FIELD)
} vt_nccl;
#endif

/* Sets *library to the loaded library's functions. Errors: not found (with the names and paths that were tried), or
 * found without one of the functions. */
vt_status vt_library_cublaslt(const vt_cublaslt **library);
#ifdef VT_HAS_CUDNN
vt_status vt_library_cudnn(const vt_cudnn **library);
#endif
#ifdef VT_HAS_NCCL
vt_status vt_library_nccl(const vt_nccl **library);
#endif

#endif
