/* The CUDA back end: memory, the stream, errors. The operations are in the kernels' files, products.c and
 * attention_choice.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "state.h"

static vt_cuda_state *state_of(vt_backend *backend)
{
    return backend->state;
}

bool vt_cuda_succeeds(vt_backend *backend, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return true;
    vt_cuda_state *state = state_of(backend);
    if (vt_cuda_ends_recording(state, what)) return false;
    state->failed = true;
    vt_error_note(__FILE__, __LINE__, "%s failed on GPU %d (%s): %s", what, state->device, state->device_name,
                  cudaGetErrorString(error));
    return false;
}

static void cuda_fail(vt_backend *backend, const char *sentence)
{
    if (vt_cuda_ends_recording(state_of(backend), "an operation of a library")) return;
    state_of(backend)->failed = true;
    vt_error_note(__FILE__, __LINE__, "%s", sentence);
}

static vt_status cuda_check(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    vt_cuda_succeeds(backend, cudaGetLastError(), "starting a kernel");
    vt_cuda_succeeds(backend, cudaStreamSynchronize(state->stream), "a kernel");
    return state->failed ? VT_ERROR : VT_OK;
}

static double cuda_available_memory(vt_backend *backend)
{
    (void)backend;
    size_t available, total;
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? (double)available : -1;
}

static double cuda_used_memory(vt_backend *backend)
{
    (void)backend;
    size_t available, total;
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? (double)(total - available) : 0;
}

static vt_status cuda_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    vt_status status = VT_OK;
    vt_cuda_state *state = state_of(backend);
    char needed[VT_NUMBER_SIZE], available[VT_NUMBER_SIZE];
    if (bytes == 0) bytes = 1;
    cudaError_t error = cudaMalloc(memory, bytes);
    if (error != cudaSuccess) {
        *memory = NULL;
        cudaGetLastError(); /* clears the error */
    }
    VT_CHECK(error == cudaSuccess,
             "%s need %s of GPU memory, %s are free (%s). A smaller batch (--local_batch_size), --recompute=block or a "
             "larger --patch_size need less",
             vt_memory_category_name(category), vt_text_bytes((double)bytes, needed),
             vt_text_bytes(cuda_available_memory(backend), available), cudaGetErrorString(error));
    state->allocations =
        vt_grow(state->allocations, state->allocation_count, sizeof *state->allocations, "the GPU's memory");
    state->allocations[state->allocation_count++] = *memory;
    vt_cuda_succeeds(backend, cudaMemsetAsync(*memory, 0, bytes, state->stream), "clearing memory");
    /* the next use may be as staging memory: no upload may start before it is cleared */
    vt_cuda_succeeds(backend, cudaEventRecord(state->staging_free, state->stream), "clearing memory");
done:
    return status;
}

static void cuda_release(vt_backend *backend, void *memory)
{
    vt_cuda_state *state = state_of(backend);
    size_t i = 0;
    if (memory == NULL) return;
    while (i < state->allocation_count && state->allocations[i] != memory) i++;
    VT_ASSERT(i < state->allocation_count); /* this back end owns it */
    cudaStreamSynchronize(state->stream);
    cudaFree(memory);
    state->allocations[i] = state->allocations[--state->allocation_count];
}

static void cuda_zero(vt_backend *backend, void *memory, size_t bytes)
{
    vt_cuda_succeeds(backend, cudaMemsetAsync(memory, 0, bytes, state_of(backend)->stream), "clearing memory");
}

static void cuda_copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    vt_cuda_succeeds(backend, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_of(backend)->stream),
                     "copying in the GPU's memory");
}

/* Memory that CUDA did not allocate or pin. */
static bool is_pageable(const void *host)
{
    struct cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, host) != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered;
}

/* From pageable memory the bytes are copied before this returns (CUDA alone does not promise that); pinned memory must
 * stay unchanged until a later mark or check. The source may also be GPU memory. */
static void cuda_copy_from_host(vt_backend *backend, void *memory, const void *host, size_t bytes)
{
    static const char what[] = "copying to the GPU";
    cudaStream_t stream = state_of(backend)->stream;
    if (vt_cuda_succeeds(backend, cudaMemcpyAsync(memory, host, bytes, cudaMemcpyDefault, stream), what) &&
        is_pageable(host))
        vt_cuda_succeeds(backend, cudaStreamSynchronize(stream), what);
}

static void cuda_copy_to_host_later(vt_backend *backend, void *host, const void *memory, size_t bytes)
{
    vt_cuda_succeeds(backend, cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, state_of(backend)->stream),
                     "copying from the GPU");
}

static void cuda_copy_to_host(vt_backend *backend, void *host, const void *memory, size_t bytes)
{
    cuda_copy_to_host_later(backend, host, memory, bytes);
    vt_cuda_succeeds(backend, cudaStreamSynchronize(state_of(backend)->stream), "copying from the GPU");
}

/* ---- uploads on a second stream ---- */

static vt_status cuda_allocate_host(vt_backend *backend, size_t bytes, void **memory)
{
    (void)backend;
    vt_status status = VT_OK;
    char needed[VT_NUMBER_SIZE];
    cudaError_t error = cudaHostAlloc(memory, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
    if (error != cudaSuccess) {
        *memory = NULL;
        cudaGetLastError(); /* clears the error */
    }
    VT_CHECK(error == cudaSuccess,
             "%s of host memory can't be pinned for the GPU's copies: %s. A smaller batch or --prefetch needs less",
             vt_text_bytes((double)bytes, needed), cudaGetErrorString(error));
    memset(*memory, 0, bytes);
done:
    return status;
}

static void cuda_release_host(vt_backend *backend, void *memory)
{
    (void)backend;
    if (memory != NULL) cudaFreeHost(memory);
}

static void cuda_mark(vt_backend *backend, int mark)
{
    vt_cuda_state *state = state_of(backend);
    vt_cuda_succeeds(backend, cudaEventRecord(state->marks[mark], state->stream), "marking a place in the GPU's work");
}

static vt_status cuda_wait(vt_backend *backend, int mark)
{
    vt_cuda_state *state = state_of(backend);
    vt_cuda_succeeds(backend, cudaGetLastError(), "starting a kernel");
    vt_cuda_succeeds(backend, cudaEventSynchronize(state->marks[mark]), "a kernel");
    return state->failed ? VT_ERROR : VT_OK;
}

static void cuda_upload(vt_backend *backend, void *staging, const void *host, size_t bytes)
{
    vt_cuda_state *state = state_of(backend);
    static const char what[] = "copying a batch to the GPU";
    /* an event that was never recorded counts as complete */
    vt_cuda_succeeds(backend, cudaStreamWaitEvent(state->copy_stream, state->staging_free, 0), what);
    vt_cuda_succeeds(backend, cudaMemcpyAsync(staging, host, bytes, cudaMemcpyDefault, state->copy_stream), what);
    vt_cuda_succeeds(backend, cudaEventRecord(state->uploaded, state->copy_stream), what);
}

static void cuda_upload_end(vt_backend *backend, void *memory, const void *staging, size_t bytes)
{
    vt_cuda_state *state = state_of(backend);
    static const char what[] = "copying a batch to the GPU";
    vt_cuda_succeeds(backend, cudaStreamWaitEvent(state->stream, state->uploaded, 0), what);
    vt_cuda_succeeds(backend, cudaMemcpyAsync(memory, staging, bytes, cudaMemcpyDeviceToDevice, state->stream), what);
    vt_cuda_succeeds(backend, cudaEventRecord(state->staging_free, state->stream), what);
    vt_cuda_succeeds(backend, cudaEventSynchronize(state->uploaded), what);
}

/* ---- copies beside other work, on a third stream. In a recording they are a branch of the graph. ---- */

static void cuda_copy_beside(vt_backend *backend, int place, void *to, const void *from, size_t bytes)
{
    vt_cuda_state *state = state_of(backend);
    static const char what[] = "copying activations";
    vt_cuda_succeeds(backend, cudaEventRecord(state->asked, state->stream), what);
    vt_cuda_succeeds(backend, cudaStreamWaitEvent(state->beside_stream, state->asked, 0), what);
    vt_cuda_succeeds(backend, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, state->beside_stream), what);
    vt_cuda_succeeds(backend, cudaEventRecord(state->beside[place], state->beside_stream), what);
}

static void cuda_copy_beside_end(vt_backend *backend, int place)
{
    vt_cuda_state *state = state_of(backend);
    vt_cuda_succeeds(backend, cudaStreamWaitEvent(state->stream, state->beside[place], 0), "copying activations");
}

/* ---- recording: a CUDA graph of what is submitted to the stream ---- */

static void drop_recording(vt_cuda_state *state)
{
    if (state->graph != NULL) cudaGraphExecDestroy(state->graph);
    state->graph = NULL;
}

enum { MOST_RECORD_FAILURES = 3 }; /* in a row */

/* A step that can't be recorded is not an error: it runs without recording. */
static bool refuse_recording(vt_cuda_state *state, const char *why)
{
    cudaGetLastError(); /* clears the error */
    state->graph = NULL;
    state->record_failures++;
    vt_log_warning("the step can't be recorded as a CUDA graph (%s): it runs without one%s", why,
                   state->record_failures < MOST_RECORD_FAILURES ? "; the next one is tried again"
                                                                 : ", and so do all that follow");
    return false;
}

/* Thread-local, because readers' threads may pin memory meanwhile. */
static bool cuda_record_begin(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    drop_recording(state);
    if (state->record_failures == MOST_RECORD_FAILURES) return false;
    cudaError_t error = cudaStreamBeginCapture(state->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return refuse_recording(state, cudaGetErrorString(error));
    state->recording = true;
    state->recording_fault = NULL;
    return true;
}

static bool cuda_record_end(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    cudaGraph_t graph = NULL;
    state->recording = false;
    cudaError_t error = cudaStreamEndCapture(state->stream, &graph);
    if (error == cudaSuccess && state->recording_fault == NULL) error = cudaGraphInstantiate(&state->graph, graph, 0);
    if (graph != NULL) cudaGraphDestroy(graph);
    if (state->recording_fault != NULL) return refuse_recording(state, state->recording_fault);
    if (error != cudaSuccess) return refuse_recording(state, cudaGetErrorString(error));
    state->record_failures = 0;
    return true;
}

static bool cuda_replay(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    if (state->graph == NULL) return false;
    vt_cuda_succeeds(backend, cudaGraphLaunch(state->graph, state->stream), "replaying a step");
    return true;
}

/* ---- how long the GPU works on an operation, by its own clock (backend/times.h) ---- */

static void cuda_clock_start(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    vt_cuda_succeeds(backend, cudaEventRecord(state->clock[0], state->stream), "starting a clock");
}

static double cuda_clock_stop(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    float milliseconds = 0;
    if (vt_cuda_succeeds(backend, cudaEventRecord(state->clock[1], state->stream), "stopping a clock") &&
        vt_cuda_succeeds(backend, cudaEventSynchronize(state->clock[1]), "waiting for a clock"))
        vt_cuda_succeeds(backend, cudaEventElapsedTime(&milliseconds, state->clock[0], state->clock[1]),
                         "reading a clock");
    return 1e-3 * (double)milliseconds;
}

/* ---- workspace and choices ---- */

static void *cuda_workspace(vt_backend *backend, size_t bytes)
{
    vt_cuda_state *state = state_of(backend);
    if (bytes <= state->workspace_bytes) return state->workspace;
    /* it can't grow now: the recording is tried again after a step that makes it grow */
    if (vt_cuda_ends_recording(state, VT_CUDA_WOULD_WAIT)) return NULL;
    drop_recording(state);
    cuda_release(backend, state->workspace);
    state->workspace = NULL;
    state->workspace_bytes = 0;
    if (cuda_allocate(backend, VT_MEMORY_WORKSPACE, bytes, &state->workspace) != VT_OK) {
        state->failed = true;
        return NULL;
    }
    state->workspace_bytes = bytes;
    return state->workspace;
}

static void open_choices(vt_backend *backend)
{
    const vt_cuda_state *state = backend->state;
    char machine[400];
    snprintf(machine, sizeof machine, "%s, cuBLASLt %zu, cuDNN %zu", state->device_name,
             vt_products_version(state->products), vt_cudnn_version(state->cudnn));
    char *path = state->fixed_choices ? NULL : vt_choices_place(machine);
    backend->choices = vt_choices_open(machine, path);
    free(path);
}

static void cuda_close(vt_backend *backend)
{
    vt_cuda_state *state = state_of(backend);
    for (int i = 0; i < VT_CUDA_STREAMS; i++)
        if (state->streams[i] != NULL) cudaStreamSynchronize(state->streams[i]);
    drop_recording(state);
    vt_graph_plans_close(state->cudnn);
    vt_attention_close(&state->attention);
    vt_cudnn_close(&state->cudnn);
    vt_products_close(&state->products);
    vt_choices_close(&backend->choices);
    while (state->allocation_count > 0) cuda_release(backend, state->allocations[0]);
    for (int i = 0; i < VT_CUDA_EVENTS; i++)
        if (state->events[i] != NULL) cudaEventDestroy(state->events[i]);
    for (int i = VT_CUDA_STREAMS - 1; i >= 0; i--)
        if (state->streams[i] != NULL) cudaStreamDestroy(state->streams[i]);
    free(state->allocations);
    free(state);
}

/* NVIDIA's libraries obey this variable, too. */
static bool tf32_is_off(void)
{
    const char *value = getenv("NVIDIA_TF32_OVERRIDE");
    return value != NULL && strcmp(value, "0") == 0;
}

vt_status vt_backend_choose_gpu(int local_rank)
{
    vt_status status = VT_OK;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    VT_CHECK(error == cudaSuccess, "no GPU can be used: %s. --device=cpu runs without one%s", cudaGetErrorString(error),
             error == cudaErrorInsufficientDriver
                 ? "; with one, its driver is missing (libcuda.so.1) or older than this program's CUDA"
                 : "");
    VT_CHECK(count > 0, "this machine has no GPU (CUDA_VISIBLE_DEVICES hides it?); --device=cpu runs without one");
    error = cudaSetDevice(local_rank % count);
    VT_CHECK(error == cudaSuccess, "GPU %d can't be used: %s", local_rank % count, cudaGetErrorString(error));
done:
    return status;
}

static vt_status open_streams(vt_cuda_state *state)
{
    vt_status status = VT_OK;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < VT_CUDA_STREAMS && error == cudaSuccess; i++)
        error = cudaStreamCreateWithFlags(&state->streams[i], cudaStreamNonBlocking);
    for (int i = 0; i < VT_CUDA_EVENTS && error == cudaSuccess; i++)
        error =
            cudaEventCreateWithFlags(&state->events[i], i < VT_CUDA_CLOCK ? cudaEventDefault : cudaEventDisableTiming);
    VT_CHECK(error == cudaSuccess, "GPU %d has no stream: %s", state->device, cudaGetErrorString(error));
done:
    return status;
}

static vt_status open_device(vt_backend *backend, int local_rank)
{
    vt_status status = VT_OK;
    vt_cuda_state *state = state_of(backend);
    struct cudaDeviceProp properties;
    cudaError_t error = cudaSuccess;
    VT_TRY(vt_backend_choose_gpu(local_rank));
    error = cudaGetDevice(&state->device);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, state->device);
    VT_CHECK(error == cudaSuccess, "can't read the properties of GPU %d: %s", state->device, cudaGetErrorString(error));
    snprintf(state->device_name, sizeof state->device_name, "%s", properties.name);
    state->common.multiprocessors = properties.multiProcessorCount;
    state->capability = properties.major;
    VT_CHECK(properties.major >= 8,
             "GPU %d (%s) has compute capability %d.%d; 8.0 (Ampere) is the least that has bfloat16. --device=cpu runs "
             "without it",
             state->device, state->device_name, properties.major, properties.minor);
    VT_TRY(open_streams(state));
    backend->stream = state->stream;
done:
    return status;
}

static void fill(vt_backend *backend)
{
    enum { MOST_HEAD_COLUMNS = 128 }; /* attention_forward.cu and attention_backward.cu have no wider instances */
    backend->most_head_columns = MOST_HEAD_COLUMNS;
    backend->used_memory = cuda_used_memory;
    backend->close = cuda_close;
    backend->check = cuda_check;
    backend->available_memory = cuda_available_memory;
    backend->allocate = cuda_allocate;
    backend->release = cuda_release;
    backend->zero = cuda_zero;
    backend->copy_from_host = cuda_copy_from_host;
    backend->copy = cuda_copy;
    backend->copy_to_host = cuda_copy_to_host;
    backend->allocate_host = cuda_allocate_host;
    backend->release_host = cuda_release_host;
    backend->copy_to_host_later = cuda_copy_to_host_later;
    backend->mark = cuda_mark;
    backend->wait = cuda_wait;
    backend->upload = cuda_upload;
    backend->upload_end = cuda_upload_end;
    backend->copy_beside = cuda_copy_beside;
    backend->copy_beside_end = cuda_copy_beside_end;
    backend->record_begin = cuda_record_begin;
    backend->record_end = cuda_record_end;
    backend->replay = cuda_replay;
    backend->clock_start = cuda_clock_start;
    backend->clock_stop = cuda_clock_stop;
    vt_cuda_fill_kernels(backend);
    vt_products_fill(backend);
}

vt_status vt_backend_open_cuda(int local_rank, bool deterministic, vt_backend **result)
{
    vt_status status = VT_OK;
    vt_backend *backend = vt_allocate(1, sizeof *backend, "the CUDA back end");
    vt_cuda_state *state = vt_allocate(1, sizeof *state, "the CUDA back end");
    backend->state = state;
    state->common.workspace = cuda_workspace;
    state->common.fail = cuda_fail;
    state->common.exact_float32 = tf32_is_off();
    state->fixed_choices = deterministic;
    fill(backend);
    VT_TRY(open_device(backend, local_rank));
    VT_TRY(vt_products_open(backend, &state->products));
    state->cudnn = vt_cudnn_open(backend);
    state->attention = vt_attention_open(backend);
    if (state->cudnn != NULL) {
        vt_convolutions_fill(backend);
        vt_gelu_products_fill(backend);
    }
    open_choices(backend);
    const size_t cudnn = vt_cudnn_version(state->cudnn);
    int length = snprintf(backend->name, sizeof backend->name, "GPU %d, %.60s, %s", state->device, state->device_name,
                          state->common.exact_float32 ? "float32 products exact" : "TF32 products");
    if (state->cudnn != NULL)
        snprintf(backend->name + length, sizeof backend->name - (size_t)length, ", cuDNN %zu.%zu.%zu", cudnn / 10000,
                 cudnn / 100 % 100, cudnn % 100);
    else
        snprintf(backend->name + length, sizeof backend->name - (size_t)length, ", own attention");
done:
    if (status != VT_OK) vt_backend_close(&backend);
    *result = backend;
    return status;
}
