/* A stand-in for CUDA's runtime: streams, events, memory and graphs as documented, on the host. Work submitted to a
 * stream waits there; it runs when it must (someone waits for it), or as soon as it may, as `fake_runtime_begin` says:
 * anything that depends on an order that CUDA does not guarantee shows up as wrong numbers. Host code can't access the
 * device's memory, which is full of NaN at first, and again when it is freed. A capture refuses what CUDA's refuses.
 * Include it before everything else of CUDA, and then the file that is to run over it. */
#ifndef VT_TESTS_OPERATIONS_FAKE_RUNTIME_H
#define VT_TESTS_OPERATIONS_FAKE_RUNTIME_H

/* Each call that it knows has its own name behind fake_, also in CUDA's own header. */
#define cudaGetErrorString fake_cudaGetErrorString
#define cudaGetLastError fake_cudaGetLastError
#define cudaGetDevice fake_cudaGetDevice
#define cudaEventQuery fake_cudaEventQuery
#define cudaStreamIsCapturing fake_cudaStreamIsCapturing
#define cudaThreadExchangeStreamCaptureMode fake_cudaThreadExchangeStreamCaptureMode
#define cudaGetDeviceCount fake_cudaGetDeviceCount
#define cudaSetDevice fake_cudaSetDevice
#define cudaMemGetInfo fake_cudaMemGetInfo
#define cudaPointerGetAttributes fake_cudaPointerGetAttributes
#define cudaMalloc fake_cudaMalloc
#define cudaFree fake_cudaFree
#define cudaHostAlloc fake_cudaHostAlloc
#define cudaFreeHost fake_cudaFreeHost
#define cudaMemsetAsync fake_cudaMemsetAsync
#define cudaMemcpyAsync fake_cudaMemcpyAsync
#define cudaStreamCreateWithFlags fake_cudaStreamCreateWithFlags
#define cudaStreamDestroy fake_cudaStreamDestroy
#define cudaStreamSynchronize fake_cudaStreamSynchronize
#define cudaStreamWaitEvent fake_cudaStreamWaitEvent
#define cudaEventCreateWithFlags fake_cudaEventCreateWithFlags
#define cudaEventDestroy fake_cudaEventDestroy
#define cudaEventRecord fake_cudaEventRecord
#define cudaEventSynchronize fake_cudaEventSynchronize
#define cudaEventElapsedTime fake_cudaEventElapsedTime
#define cudaStreamBeginCapture fake_cudaStreamBeginCapture
#define cudaStreamEndCapture fake_cudaStreamEndCapture
#define cudaGraphInstantiate fake_cudaGraphInstantiate
#define cudaGraphLaunch fake_cudaGraphLaunch
#define cudaGraphDestroy fake_cudaGraphDestroy
#define cudaGraphExecDestroy fake_cudaGraphExecDestroy
#include <cuda_runtime_api.h>
#include <stdbool.h>

extern __typeof__(cudaGetDeviceProperties) fake_cudaGetDeviceProperties; /* which may be a macro there */
#undef cudaGetDeviceProperties
#define cudaGetDeviceProperties fake_cudaGetDeviceProperties

/* From here on: whether work on the first stream that is created, and on the others, runs late or at once. */
void fake_runtime_begin(bool first_at_once, bool others_at_once);
/* run(arguments [bytes, copied]), queued in the first stream. */
void fake_runtime_do(void (*run)(const void *arguments), const void *arguments, size_t bytes);
/* The same in a stream. */
void fake_runtime_do_in(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments, size_t bytes);

/* A one-way connection between two streams, as of two ranks. The n-th memory [bytes] of the receiving end gets that of
 * the sending end once the work before both is over, and neither stream goes on before. */
typedef struct fake_channel fake_channel;
fake_channel *fake_channel_open(void);
void fake_channel_close(fake_channel *channel);
void fake_runtime_meet(cudaStream_t stream, fake_channel *channel, bool sends, void *memory, size_t bytes);

/* A call that was made during a capture although CUDA refuses it there; NULL: none. */
const char *fake_runtime_refused(void);
/* Has everything that was created been released? */
bool fake_runtime_is_clean(void);
/* The next `count` graphs can't be instantiated. */
void fake_runtime_refuse_graphs(int count);

#endif
