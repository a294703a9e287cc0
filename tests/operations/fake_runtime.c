#if defined(VT_HAS_CUDA) && defined(VT_HAS_HOST_CUDA)

#define VT_FAKE_RUNTIME_ITSELF
#include "operations/fake_runtime.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct fake_stream fake_stream;

/* A task, or, without `run`, a wait for the first `until` tasks of another stream. */
typedef struct {
    void (*run)(const void *arguments);
    void *arguments;
    size_t bytes;
    fake_stream *other;
    int64_t until;
} task;

typedef struct {
    task *tasks;
    int64_t count, capacity;
} task_list;

struct fake_stream {
    task_list list;
    int64_t done;
    bool at_once;
    task_list *capture; /* NULL: none is under way */
    fake_stream *next;
};

typedef struct {
    fake_stream *stream; /* NULL: never recorded */
    int64_t until;
} fake_event;

enum { PINNED = 256 };

static struct {
    bool first_at_once, others_at_once;
    fake_stream *streams; /* the first one created is the last of the list */
    const char *refused;
    bool spoilt; /* the capture under way */
    int refuse_graphs;
    int64_t made; /* streams, events, graphs and memory that were not given back */
    struct {
        char *memory;
        size_t bytes;
    } pinned[PINNED];
    int64_t blocks; /* of the device's memory */
    int running;
} fake;

/* ---- the device's memory ---- */

static const size_t device_bytes = (size_t)4 << 30; /* addresses; memory as it is written */
static char *device;
static size_t device_used;

static bool is_on_device(const void *memory)
{
    return device != NULL && (const char *)memory >= device && (const char *)memory < device + device_bytes;
}

static void open_device(void)
{
    if (fake.running++ == 0 && device_used > 0) VT_ASSERT(mprotect(device, device_used, PROT_READ | PROT_WRITE) == 0);
}

static void close_device(void)
{
    if (--fake.running == 0 && device_used > 0) VT_ASSERT(mprotect(device, device_used, PROT_NONE) == 0);
}

static bool is_pinned(const void *memory)
{
    const char *at = memory;
    for (int i = 0; i < PINNED; i++)
        if (fake.pinned[i].memory != NULL && at >= fake.pinned[i].memory &&
            at < fake.pinned[i].memory + fake.pinned[i].bytes)
            return true;
    return false;
}

/* ---- streams ---- */

static void add(task_list *list, const task *what)
{
    if (list->count == list->capacity) {
        list->capacity = 2 * list->capacity + 64;
        list->tasks = vt_reallocate(list->tasks, (size_t)list->capacity, sizeof *list->tasks, "a test");
    }
    task *kept = &list->tasks[list->count++];
    *kept = *what;
    if (what->bytes == 0) return;
    kept->arguments = vt_allocate(1, what->bytes, "a test");
    memcpy(kept->arguments, what->arguments, what->bytes);
}

static void clear(task_list *list, int64_t first)
{
    for (int64_t i = first; i < list->count; i++) free(list->tasks[i].arguments);
    free(list->tasks);
    *list = (task_list){0};
}

static void run_until(fake_stream *stream, int64_t until)
{
    while (stream->done < until) {
        const task now = stream->list.tasks[stream->done++];
        if (now.run == NULL) {
            run_until(now.other, now.until);
            continue;
        }
        open_device();
        now.run(now.arguments);
        close_device();
        free(now.arguments);
    }
}

static void give(fake_stream *stream, const task *what)
{
    if (stream->capture != NULL) {
        add(stream->capture, what);
        return;
    }
    add(&stream->list, what);
    if (stream->at_once) run_until(stream, stream->list.count);
}

static void run_all(void)
{
    for (fake_stream *s = fake.streams; s != NULL; s = s->next) run_until(s, s->list.count);
}

/* A call that a capture refuses invalidates it. */
static bool refuses(const char *what)
{
    for (const fake_stream *s = fake.streams; s != NULL; s = s->next) {
        if (s->capture == NULL) continue;
        fake.refused = what;
        fake.spoilt = true;
        return true;
    }
    return false;
}

#define REFUSE(what)                                                                                                   \
    if (refuses(what)) return cudaErrorStreamCaptureUnsupported

void fake_runtime_begin(bool first_at_once, bool others_at_once)
{
    fake.first_at_once = first_at_once;
    fake.others_at_once = others_at_once;
    fake.refused = NULL;
    fake.refuse_graphs = 0;
}

void fake_runtime_do(void (*run)(const void *arguments), const void *arguments, size_t bytes)
{
    fake_stream *first = fake.streams;
    VT_ASSERT(first != NULL);
    while (first->next != NULL) first = first->next;
    give(first, &(task){.run = run, .arguments = (void *)(uintptr_t)arguments, .bytes = bytes});
}

const char *fake_runtime_refused(void)
{
    return fake.refused;
}

bool fake_runtime_is_clean(void)
{
    return fake.made == 0;
}

void fake_runtime_refuse_graphs(int count)
{
    fake.refuse_graphs = count;
}

cudaError_t fake_stream_create(cudaStream_t *stream, unsigned flags)
{
    VT_ASSERT(flags == cudaStreamNonBlocking); /* otherwise the default stream would wait for it */
    fake_stream *made = vt_allocate(1, sizeof *made, "a test");
    made->at_once = fake.streams == NULL ? fake.first_at_once : fake.others_at_once;
    made->next = fake.streams;
    fake.streams = made;
    fake.made++;
    *stream = (cudaStream_t)made;
    return cudaSuccess;
}

cudaError_t fake_stream_destroy(cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream, **place = &fake.streams;
    run_until(s, s->list.count);
    while (*place != s) place = &(*place)->next;
    *place = s->next;
    clear(&s->list, s->done);
    free(s);
    fake.made--;
    return cudaSuccess;
}

cudaError_t fake_stream_synchronize(cudaStream_t stream)
{
    REFUSE("waiting for a stream");
    run_until((fake_stream *)stream, ((fake_stream *)stream)->list.count);
    return cudaSuccess;
}

cudaError_t fake_event_create_with_flags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = vt_allocate(1, sizeof(fake_event), "a test");
    fake.made++;
    return cudaSuccess;
}

cudaError_t fake_event_create(cudaEvent_t *event)
{
    return fake_event_create_with_flags(event, 0);
}

cudaError_t fake_event_destroy(cudaEvent_t event)
{
    free(event);
    fake.made--;
    return cudaSuccess;
}

cudaError_t fake_event_record(cudaEvent_t event, cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    REFUSE("recording an event that others look at");
    *(fake_event *)event = (fake_event){s, s->list.count};
    return cudaSuccess;
}

cudaError_t fake_stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const fake_event *e = (const fake_event *)event;
    (void)flags;
    REFUSE("waiting for an event from outside");
    if (e->stream != NULL) give((fake_stream *)stream, &(task){.other = e->stream, .until = e->until});
    return cudaSuccess;
}

cudaError_t fake_event_synchronize(cudaEvent_t event)
{
    const fake_event *e = (const fake_event *)event;
    REFUSE("waiting for an event");
    if (e->stream != NULL) run_until(e->stream, e->until);
    return cudaSuccess;
}

cudaError_t fake_event_elapsed_time(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    (void)begin, (void)end;
    *milliseconds = 1;
    return cudaSuccess;
}

/* ---- memory ---- */

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} memory_task;

static void do_set(const void *arguments)
{
    const memory_task *t = arguments;
    memset(t->to, t->value, t->bytes);
}

static void do_copy(const void *arguments)
{
    const memory_task *t = arguments;
    memcpy(t->to, t->from, t->bytes);
}

cudaError_t fake_memset_async(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    memory_task t = {.to = memory, .bytes = bytes, .value = value};
    VT_ASSERT(is_on_device(memory));
    give((fake_stream *)stream, &(task){.run = do_set, .arguments = &t, .bytes = sizeof t});
    return cudaSuccess;
}

/* Pageable memory, too, may be read only when the copy runs: CUDA promises nothing else. */
cudaError_t fake_memcpy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    const memory_task t = {.to = to, .from = from, .bytes = bytes};
    const bool is_down = !is_on_device(to), is_up = !is_on_device(from);
    VT_ASSERT(kind == cudaMemcpyDefault ||
              (is_down ? kind == cudaMemcpyDeviceToHost
                       : kind == (is_up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice)));
    VT_ASSERT(!is_down || !is_up);
    if ((is_up && !is_pinned(from)) || (is_down && !is_pinned(to))) REFUSE("a copy of pageable memory");
    give(s, &(task){.run = do_copy, .arguments = (void *)&t, .bytes = sizeof t});
    if (is_down && !is_pinned(to)) run_until(s, s->list.count); /* such a copy waits */
    return cudaSuccess;
}

cudaError_t fake_malloc(void **memory, size_t bytes)
{
    REFUSE("taking memory");
    const size_t page = 4096, rounded = (bytes + page - 1) / page * page;
    if (device == NULL) {
        device = mmap(NULL, device_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        VT_ASSERT(device != MAP_FAILED);
    }
    if (device_used + rounded > device_bytes) return cudaErrorMemoryAllocation;
    *memory = device + device_used;
    device_used += rounded;
    open_device();
    memset(*memory, 0xff, bytes); /* NaN */
    close_device();
    fake.blocks++;
    fake.made++;
    return cudaSuccess;
}

/* Waits for the device, as CUDA does. */
cudaError_t fake_free(void *memory)
{
    if (memory == NULL) return cudaSuccess;
    REFUSE("giving memory back");
    VT_ASSERT(is_on_device(memory));
    run_all();
    fake.made--;
    if (--fake.blocks > 0) return cudaSuccess;
    madvise(device, device_used, MADV_DONTNEED);
    device_used = 0;
    return cudaSuccess;
}

cudaError_t fake_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    REFUSE("pinning memory");
    *memory = vt_allocate(1, bytes, "a test");
    memset(*memory, 0xff, bytes);
    for (int i = 0; i < PINNED; i++) {
        if (fake.pinned[i].memory != NULL) continue;
        fake.pinned[i].memory = *memory;
        fake.pinned[i].bytes = bytes;
        fake.made++;
        return cudaSuccess;
    }
    VT_ASSERT(!"room for so many pinned blocks");
    return cudaErrorMemoryAllocation;
}

cudaError_t fake_free_host(void *memory)
{
    REFUSE("giving pinned memory back");
    run_all();
    for (int i = 0; i < PINNED; i++)
        if (fake.pinned[i].memory == memory) fake.pinned[i].memory = NULL;
    free(memory);
    fake.made--;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t fake_stream_begin_capture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fake_stream *s = (fake_stream *)stream;
    VT_ASSERT(mode == cudaStreamCaptureModeThreadLocal && s->capture == NULL);
    s->capture = vt_allocate(1, sizeof *s->capture, "a test");
    fake.spoilt = false;
    return cudaSuccess;
}

static cudaError_t give_back(void *list)
{
    clear(list, 0);
    free(list);
    fake.made--;
    return cudaSuccess;
}

cudaError_t fake_stream_end_capture(cudaStream_t stream, cudaGraph_t *graph)
{
    fake_stream *s = (fake_stream *)stream;
    task_list *captured = s->capture;
    s->capture = NULL;
    fake.made++;
    *graph = NULL;
    if (fake.spoilt) {
        give_back(captured);
        return cudaErrorStreamCaptureInvalidated;
    }
    *graph = (cudaGraph_t)captured;
    return cudaSuccess;
}

static void copy_tasks(const task_list *from, task_list *to)
{
    for (int64_t i = 0; i < from->count; i++) add(to, &from->tasks[i]);
}

cudaError_t fake_graph_instantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    if (fake.refuse_graphs > 0) {
        fake.refuse_graphs--;
        return cudaErrorNotSupported;
    }
    task_list *made = vt_allocate(1, sizeof *made, "a test");
    copy_tasks((const task_list *)graph, made);
    fake.made++;
    *executable = (cudaGraphExec_t)made;
    return cudaSuccess;
}

cudaError_t fake_graph_launch(cudaGraphExec_t executable, cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    REFUSE("starting a graph");
    copy_tasks((const task_list *)executable, &s->list);
    if (s->at_once) run_until(s, s->list.count);
    return cudaSuccess;
}

cudaError_t fake_graph_destroy(cudaGraph_t graph)
{
    return give_back(graph);
}

cudaError_t fake_graph_exec_destroy(cudaGraphExec_t executable)
{
    return give_back(executable);
}

/* ---- the device ---- */

const char *fake_error_string(cudaError_t error)
{
    static char text[32];
    snprintf(text, sizeof text, "error %d", (int)error);
    return text;
}

cudaError_t fake_last_error(void)
{
    return cudaSuccess;
}

cudaError_t fake_device_count(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t fake_set_device(int number)
{
    return number == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t fake_device_properties(struct cudaDeviceProp *properties, int number)
{
    (void)number;
    *properties = (struct cudaDeviceProp){.name = "a stand-in", .major = 9, .multiProcessorCount = 4};
    return cudaSuccess;
}

cudaError_t fake_pointer_get_attributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    *attributes = (struct cudaPointerAttributes){.type = is_on_device(memory) ? cudaMemoryTypeDevice
                                                         : is_pinned(memory)  ? cudaMemoryTypeHost
                                                                              : cudaMemoryTypeUnregistered};
    return cudaSuccess;
}

cudaError_t fake_mem_info(size_t *available, size_t *total)
{
    *available = device_bytes - device_used;
    *total = device_bytes;
    return cudaSuccess;
}

#endif
