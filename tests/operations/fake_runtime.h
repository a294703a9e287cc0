/* A stand-in for CUDA's runtime: streams, events, memory and graphs as documented, on the host. Work submitted to a
 * stream waits there; it runs when it must (someone waits for it), or as soon as it may, as `fake_runtime_begin` says:
 * anything that depends on an order that CUDA does not guarantee shows up as wrong numbers. Host code can't access the
 * device's memory, which is full of NaN at first, and again when it is freed. A capture refuses what CUDA's refuses.
 * Include it before a file that is to run over it: every call that it knows goes to the stand-in. */
#ifndef VT_TESTS_OPERATIONS_FAKE_RUNTIME_H
#define VT_TESTS_OPERATIONS_FAKE_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* From here on: whether work on the first stream that is created, and on the others, runs late or at once. */
void fake_runtime_begin(bool first_at_once, bool others_at_once);
/* run(arguments [bytes, copied]), queued in the first stream. */
void fake_runtime_do(void (*run)(const void *arguments), const void *arguments, size_t bytes);
/* The same in a stream. */
void fake_runtime_do_in(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments, size_t bytes);

/* Captures may go over to other streams by events, until fake_runtime_begin. Without this such calls are refused. */
void fake_runtime_allow_forks(void);

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

const char *fake_error_string(cudaError_t error);
cudaError_t fake_last_error(void);
cudaError_t fake_device(int *number);
cudaError_t fake_device_count(int *count);
cudaError_t fake_set_device(int device);
cudaError_t fake_device_properties(struct cudaDeviceProp *properties, int device);
cudaError_t fake_mem_info(size_t *available, size_t *total);
cudaError_t fake_pointer_get_attributes(struct cudaPointerAttributes *attributes, const void *memory);
cudaError_t fake_malloc(void **memory, size_t bytes);
cudaError_t fake_free(void *memory);
cudaError_t fake_host_alloc(void **memory, size_t bytes, unsigned flags);
cudaError_t fake_free_host(void *memory);
cudaError_t fake_memset_async(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t fake_memcpy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t fake_stream_create(cudaStream_t *stream, unsigned flags);
cudaError_t fake_stream_destroy(cudaStream_t stream);
cudaError_t fake_stream_synchronize(cudaStream_t stream);
cudaError_t fake_stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t fake_event_create(cudaEvent_t *event);
cudaError_t fake_event_create_with_flags(cudaEvent_t *event, unsigned flags);
cudaError_t fake_event_destroy(cudaEvent_t event);
cudaError_t fake_event_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t fake_event_synchronize(cudaEvent_t event);
cudaError_t fake_event_query(cudaEvent_t event);
cudaError_t fake_stream_is_capturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t fake_exchange_capture_mode(enum cudaStreamCaptureMode *mode);
cudaError_t fake_event_elapsed_time(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t fake_stream_begin_capture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t fake_stream_end_capture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t fake_graph_instantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t fake_graph_launch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t fake_graph_destroy(cudaGraph_t graph);
cudaError_t fake_graph_exec_destroy(cudaGraphExec_t executable);

#ifndef VT_FAKE_RUNTIME_ITSELF
#define cudaGetErrorString fake_error_string
#define cudaGetLastError fake_last_error
#define cudaGetDevice fake_device
#define cudaEventQuery fake_event_query
#define cudaStreamIsCapturing fake_stream_is_capturing
#define cudaThreadExchangeStreamCaptureMode fake_exchange_capture_mode
#define cudaGetDeviceCount fake_device_count
#define cudaSetDevice fake_set_device
#undef cudaGetDeviceProperties
#define cudaGetDeviceProperties fake_device_properties
#define cudaMemGetInfo fake_mem_info
#define cudaPointerGetAttributes fake_pointer_get_attributes
#define cudaMalloc fake_malloc
#define cudaFree fake_free
#define cudaHostAlloc fake_host_alloc
#define cudaFreeHost fake_free_host
#define cudaMemsetAsync fake_memset_async
#define cudaMemcpyAsync fake_memcpy_async
#define cudaStreamCreateWithFlags fake_stream_create
#define cudaStreamDestroy fake_stream_destroy
#define cudaStreamSynchronize fake_stream_synchronize
#define cudaStreamWaitEvent fake_stream_wait_event
#define cudaEventCreate fake_event_create
#define cudaEventCreateWithFlags fake_event_create_with_flags
#define cudaEventDestroy fake_event_destroy
#define cudaEventRecord fake_event_record
#define cudaEventSynchronize fake_event_synchronize
#define cudaEventElapsedTime fake_event_elapsed_time
#define cudaStreamBeginCapture fake_stream_begin_capture
#define cudaStreamEndCapture fake_stream_end_capture
#define cudaGraphInstantiate fake_graph_instantiate
#define cudaGraphLaunch fake_graph_launch
#define cudaGraphDestroy fake_graph_destroy
#define cudaGraphExecDestroy fake_graph_exec_destroy
#endif

#endif
