#if defined(VT_HAS_CUDA) && defined(VT_HAS_HOST_CUDA)

#include "operations/fake_runtime.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct fake_stream fake_stream;

/* A task; or a meeting, if there is a channel; or else, without `run`, a wait for the first `until` tasks of another
 * stream. */
typedef struct {
    void (*run)(const void *arguments);
    void *arguments;
    size_t bytes;
    fake_stream *other;
    int64_t until;
    fake_channel *channel;
    bool sends;
    void *memory; /* of a meeting, `room` bytes */
    size_t room;
    int64_t place; /* among the channel's meetings */
} task;

typedef struct {
    task *tasks;
    int64_t count, capacity;
} task_list;

struct fake_stream {
    task_list list;
    int64_t done;
    bool at_once, running;
    task_list *capture;  /* NULL: none is under way */
    fake_stream *origin; /* of that capture */
    fake_stream *next;
};

typedef struct {
    fake_stream *stream; /* NULL: never recorded */
    int64_t until;
    bool captured;    /* `until` counts in the capture, not in the stream */
    bool takes_times; /* not made with cudaEventDisableTiming */
} fake_event;

/* What one end submits meets what the other end submits, in order. */
struct fake_channel {
    struct {
        fake_stream *stream;
        int64_t index; /* in that stream */
        void *memory;
        size_t bytes;
    } * posts[2]; /* of the receiver, of the sender */
    int64_t count[2], met;
};

/* The streams of a capture: the first is the one it began in. */
typedef struct {
    task_list list;
    fake_stream *stream; /* where it was captured */
    fake_stream *runs;   /* where it runs: a stream of its own for all but the first */
} branch;

enum { MOST_BRANCHES = 8 };
typedef struct {
    branch branches[MOST_BRANCHES];
    int count;
} graph;

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

/* To what a stream really does, where meetings get their places. */
static void submit(fake_stream *stream, const task *what)
{
    fake_channel *channel = what->channel;
    add(&stream->list, what);
    if (channel == NULL) return;
    const int64_t place = channel->count[what->sends]++;
    channel->posts[what->sends] =
        vt_reallocate(channel->posts[what->sends], (size_t)place + 1, sizeof *channel->posts[0], "a test");
    channel->posts[what->sends][place].stream = stream;
    channel->posts[what->sends][place].index = stream->list.count - 1;
    channel->posts[what->sends][place].memory = what->memory;
    channel->posts[what->sends][place].bytes = what->room;
    stream->list.tasks[stream->list.count - 1].place = place;
}

static bool run_until(fake_stream *stream, int64_t until);

/* Neither end goes on before both are here, as with NCCL's kernels. */
static bool meet(const task *here)
{
    fake_channel *channel = here->channel;
    const int64_t place = here->place;
    if (channel->met > place) return true;
    if (channel->count[!here->sends] <= place) return false;
    if (!run_until(channel->posts[!here->sends][place].stream, channel->posts[!here->sends][place].index)) return false;
    if (channel->met > place) return true;
    VT_ASSERT(channel->met == place && channel->posts[0][place].bytes == channel->posts[1][place].bytes);
    memcpy(channel->posts[0][place].memory, channel->posts[1][place].memory, channel->posts[1][place].bytes);
    channel->met++;
    return true;
}

static bool run_next(fake_stream *stream)
{
    const task now = stream->list.tasks[stream->done];
    if (now.channel != NULL) {
        if (!meet(&now)) return false;
    } else if (now.run == NULL) {
        if (!run_until(now.other, now.until)) return false;
    }
    stream->done++;
    if (now.run == NULL) return true;
    now.run(now.arguments);
    free(now.arguments);
    return true;
}

/* False: something that it waits for was not submitted yet. */
static bool run_until(fake_stream *stream, int64_t until)
{
    if (stream->running) return stream->done >= until;
    if (stream->done >= until) return true;
    stream->running = true;
    open_device();
    while (stream->done < until && run_next(stream)) {
    }
    close_device();
    stream->running = false;
    return stream->done >= until;
}

/* All that does not wait for anyone; what was just submitted may be what something else has waited for. */
static void run_at_once(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (fake_stream *s = fake.streams; s != NULL; s = s->next) {
            const int64_t before = s->done;
            if (s->at_once) run_until(s, s->list.count);
            moved = moved || s->done > before;
        }
    }
}

static void give(fake_stream *stream, const task *what)
{
    if (stream->capture != NULL) {
        add(stream->capture, what);
        return;
    }
    submit(stream, what);
    if (stream->at_once) run_at_once();
}

static bool run_all(void)
{
    bool all = true;
    for (fake_stream *s = fake.streams; s != NULL; s = s->next) all = run_until(s, s->list.count) && all;
    return all;
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

void fake_runtime_do_in(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments, size_t bytes)
{
    give((fake_stream *)stream, &(task){.run = run, .arguments = (void *)(uintptr_t)arguments, .bytes = bytes});
}

void fake_runtime_do(void (*run)(const void *arguments), const void *arguments, size_t bytes)
{
    fake_stream *first = fake.streams;
    VT_ASSERT(first != NULL);
    while (first->next != NULL) first = first->next;
    fake_runtime_do_in((cudaStream_t)first, run, arguments, bytes);
}

fake_channel *fake_channel_open(void)
{
    return vt_allocate(1, sizeof(fake_channel), "a test");
}

void fake_channel_close(fake_channel *channel)
{
    for (int i = 0; i < 2; i++) free(channel->posts[i]);
    free(channel);
}

void fake_runtime_meet(cudaStream_t stream, fake_channel *channel, bool sends, void *memory, size_t bytes)
{
    VT_ASSERT(is_on_device(memory));
    give((fake_stream *)stream, &(task){.channel = channel, .sends = sends, .memory = memory, .room = bytes});
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

cudaError_t fake_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
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

cudaError_t fake_cudaStreamDestroy(cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream, **place = &fake.streams;
    VT_ASSERT(run_until(s, s->list.count));
    while (*place != s) place = &(*place)->next;
    *place = s->next;
    clear(&s->list, s->done);
    free(s);
    fake.made--;
    return cudaSuccess;
}

cudaError_t fake_cudaStreamSynchronize(cudaStream_t stream)
{
    REFUSE("waiting for a stream");
    VT_ASSERT(run_until((fake_stream *)stream, ((fake_stream *)stream)->list.count));
    return cudaSuccess;
}

cudaError_t fake_cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    fake_event *made = vt_allocate(1, sizeof *made, "a test");
    made->takes_times = flags != cudaEventDisableTiming;
    *event = (cudaEvent_t)made;
    fake.made++;
    return cudaSuccess;
}

cudaError_t fake_cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    fake.made--;
    return cudaSuccess;
}

cudaError_t fake_cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    fake_event *e = (fake_event *)event;
    *e = s->capture != NULL ? (fake_event){s, s->capture->count, true, e->takes_times}
                            : (fake_event){s, s->list.count, false, e->takes_times};
    return cudaSuccess;
}

/* A stream that waits for an event of a capture belongs to it from then on. */
cudaError_t fake_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const fake_event *e = (const fake_event *)event;
    fake_stream *s = (fake_stream *)stream;
    (void)flags;
    if (e->stream == NULL) return cudaSuccess;
    if (!e->captured && s->capture != NULL) REFUSE("waiting for an event from outside");
    if (e->captured && e->stream->capture == NULL) return cudaErrorInvalidValue; /* of a capture that is over */
    if (e->captured && s->capture == NULL) {
        s->capture = vt_allocate(1, sizeof *s->capture, "a test");
        s->origin = e->stream->origin;
    }
    give(s, &(task){.other = e->stream, .until = e->until});
    return cudaSuccess;
}

cudaError_t fake_cudaEventSynchronize(cudaEvent_t event)
{
    const fake_event *e = (const fake_event *)event;
    REFUSE("waiting for an event");
    if (e->stream != NULL) VT_ASSERT(run_until(e->stream, e->until));
    return cudaSuccess;
}

cudaError_t fake_cudaEventQuery(cudaEvent_t event)
{
    const fake_event *e = (const fake_event *)event;
    return e->stream == NULL || e->stream->done >= e->until ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t fake_cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    const bool captures = stream != NULL && ((fake_stream *)stream)->capture != NULL; /* NULL: the default stream */
    *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t fake_cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

cudaError_t fake_cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    if (!((const fake_event *)begin)->takes_times || !((const fake_event *)end)->takes_times)
        return cudaErrorInvalidResourceHandle;
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

cudaError_t fake_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    memory_task t = {.to = memory, .bytes = bytes, .value = value};
    VT_ASSERT(is_on_device(memory));
    give((fake_stream *)stream, &(task){.run = do_set, .arguments = &t, .bytes = sizeof t});
    return cudaSuccess;
}

/* Pageable memory, too, may be read only when the copy runs: CUDA promises nothing else. */
cudaError_t fake_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                 cudaStream_t stream)
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
    if (is_down && !is_pinned(to)) VT_ASSERT(run_until(s, s->list.count)); /* such a copy waits */
    return cudaSuccess;
}

cudaError_t fake_cudaMalloc(void **memory, size_t bytes)
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
cudaError_t fake_cudaFree(void *memory)
{
    if (memory == NULL) return cudaSuccess;
    REFUSE("giving memory back");
    VT_ASSERT(is_on_device(memory));
    VT_ASSERT(run_all());
    fake.made--;
    if (--fake.blocks > 0) return cudaSuccess;
    madvise(device, device_used, MADV_DONTNEED);
    device_used = 0;
    return cudaSuccess;
}

cudaError_t fake_cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
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

cudaError_t fake_cudaFreeHost(void *memory)
{
    REFUSE("giving pinned memory back");
    VT_ASSERT(run_all());
    for (int i = 0; i < PINNED; i++)
        if (fake.pinned[i].memory == memory) fake.pinned[i].memory = NULL;
    free(memory);
    fake.made--;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t fake_cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fake_stream *s = (fake_stream *)stream;
    VT_ASSERT(mode == cudaStreamCaptureModeThreadLocal && s->capture == NULL);
    s->capture = vt_allocate(1, sizeof *s->capture, "a test");
    s->origin = s;
    fake.spoilt = false;
    return cudaSuccess;
}

static cudaError_t give_back(graph *g)
{
    for (int i = 0; i < g->count; i++) {
        clear(&g->branches[i].list, 0);
        if (i > 0 && g->branches[i].runs != NULL) fake_cudaStreamDestroy((cudaStream_t)g->branches[i].runs);
    }
    free(g);
    fake.made--;
    return cudaSuccess;
}

/* Does anything of the capture wait for all of that branch? */
static bool is_joined(const graph *g, const branch *forked)
{
    for (int i = 0; i < g->count; i++)
        for (int64_t t = 0; t < g->branches[i].list.count; t++) {
            const task *one = &g->branches[i].list.tasks[t];
            if (one->other == forked->stream && one->until == forked->list.count) return true;
        }
    return false;
}

cudaError_t fake_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *result)
{
    fake_stream *s = (fake_stream *)stream;
    graph *g = vt_allocate(1, sizeof *g, "a test");
    bool joined = true;
    fake.made++;
    *result = NULL;
    g->branches[g->count++] = (branch){*s->capture, s, NULL};
    for (fake_stream *other = fake.streams; other != NULL; other = other->next) {
        if (other == s || other->capture == NULL || other->origin != s) continue;
        VT_ASSERT(g->count < MOST_BRANCHES);
        g->branches[g->count++] = (branch){*other->capture, other, NULL};
    }
    for (int i = 0; i < g->count; i++) {
        free(g->branches[i].stream->capture);
        g->branches[i].stream->capture = NULL;
        joined = joined && (i == 0 || is_joined(g, &g->branches[i]));
    }
    if (fake.spoilt || !joined) {
        give_back(g);
        return joined ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    }
    *result = (cudaGraph_t)g;
    return cudaSuccess;
}

cudaError_t fake_cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t from, unsigned long long flags)
{
    const graph *g = (const graph *)from;
    (void)flags;
    if (fake.refuse_graphs > 0) {
        fake.refuse_graphs--;
        return cudaErrorNotSupported;
    }
    graph *made = vt_allocate(1, sizeof *made, "a test");
    made->count = g->count;
    for (int i = 0; i < g->count; i++) {
        branch *b = &made->branches[i];
        b->stream = g->branches[i].stream;
        for (int64_t t = 0; t < g->branches[i].list.count; t++) add(&b->list, &g->branches[i].list.tasks[t]);
        cudaStream_t own;
        if (i > 0 && fake_cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess)
            b->runs = (fake_stream *)own;
    }
    fake.made++;
    *executable = (cudaGraphExec_t)made;
    return cudaSuccess;
}

cudaError_t fake_cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    graph *g = (graph *)executable;
    int64_t before[MOST_BRANCHES];
    REFUSE("starting a graph");
    g->branches[0].runs = (fake_stream *)stream;
    for (int i = 0; i < g->count; i++) before[i] = g->branches[i].runs->list.count;
    for (int i = 0; i < g->count; i++) {
        const branch *b = &g->branches[i];
        for (int64_t t = 0; t < b->list.count; t++) {
            task one = b->list.tasks[t];
            for (int k = 0; k < g->count; k++)
                if (one.other != NULL && b->list.tasks[t].other == g->branches[k].stream) {
                    one.other = g->branches[k].runs;
                    one.until += before[k];
                }
            submit(b->runs, &one);
        }
    }
    run_at_once();
    return cudaSuccess;
}

cudaError_t fake_cudaGraphDestroy(cudaGraph_t old)
{
    return give_back((graph *)old);
}

cudaError_t fake_cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    return give_back((graph *)executable);
}

/* ---- the device ---- */

const char *fake_cudaGetErrorString(cudaError_t error)
{
    static char text[32];
    snprintf(text, sizeof text, "error %d", (int)error);
    return text;
}

cudaError_t fake_cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t fake_cudaGetDevice(int *number)
{
    *number = 0;
    return cudaSuccess;
}

cudaError_t fake_cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t fake_cudaSetDevice(int number)
{
    return number == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t fake_cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number)
{
    (void)number;
    *properties = (struct cudaDeviceProp){.name = "a stand-in", .major = 9, .multiProcessorCount = 4};
    return cudaSuccess;
}

cudaError_t fake_cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    *attributes = (struct cudaPointerAttributes){.type = is_on_device(memory) ? cudaMemoryTypeDevice
                                                         : is_pinned(memory)  ? cudaMemoryTypeHost
                                                                              : cudaMemoryTypeUnregistered};
    return cudaSuccess;
}

cudaError_t fake_cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = device_bytes - device_used;
    *total = device_bytes;
    return cudaSuccess;
}

#endif
