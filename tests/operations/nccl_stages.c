/* NCCL's engine (src/parallel/nccl.c) and the links between stages over stand-ins for CUDA's runtime and for NCCL: the
 * ranks of a pipeline in one process, whose work is submitted one rank after another, runs late or at once, and is
 * recorded as a graph. A send and its receive wait for each other, as NCCL's do. */
#include "test.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_HOST_CUDA) && defined(VT_HAS_NCCL)

#include "operations/fake_runtime.h"

#include "base/memory.h"
#include "libraries.h"
#include "training/trainer_inside.h"

/* ---- NCCL ---- */

enum { MOST_RANKS = 4, MOST_SPLITS = 16 };

/* A communicator of one rank; `wires` are shared by all its ranks: [from][to]. */
typedef struct {
    fake_channel *(*wires)[MOST_RANKS];
    int rank, splits, asked;
} communicator;

static struct {
    fake_channel *wires[MOST_RANKS][MOST_RANKS];
    int ends;
} split_wires[MOST_SPLITS][MOST_RANKS]; /* [n-th split][color] */

static ncclResult_t get_version(int *version)
{
    *version = 22800;
    return ncclSuccess;
}

static const char *error_string(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error";
}

static const char *last_error(ncclComm_t c)
{
    (void)c;
    return "";
}

static ncclResult_t unique_id(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *result, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    communicator *made = vt_allocate(1, sizeof *made, "a test");
    (void)ranks, (void)id, (void)config;
    made->rank = rank;
    *result = (ncclComm_t)made;
    return ncclInProgress;
}

static ncclResult_t comm_split(ncclComm_t from, int color, int key, ncclComm_t *result, ncclConfig_t *config)
{
    communicator *all = (communicator *)from, *made = vt_allocate(1, sizeof *made, "a test");
    (void)config;
    made->wires = split_wires[all->splits][color].wires;
    split_wires[all->splits++][color].ends++;
    made->rank = key;
    *result = (ncclComm_t)made;
    return ncclInProgress;
}

/* Sometimes it is still going on. */
static ncclResult_t async_error(ncclComm_t c, ncclResult_t *result)
{
    *result =
        __atomic_add_fetch(&((communicator *)c)->asked, 1, __ATOMIC_RELAXED) % 8 == 1 ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t c)
{
    (void)c;
    return ncclInProgress;
}

static ncclResult_t destroy(ncclComm_t c)
{
    free(c);
    return ncclSuccess;
}

static fake_channel *wire(ncclComm_t c, int from, int to)
{
    fake_channel **place = &((communicator *)c)->wires[from][to];
    if (*place == NULL) *place = fake_channel_open();
    return *place;
}

static ncclResult_t send_it(const void *data, size_t count, ncclDataType_t type, int to, ncclComm_t c,
                            cudaStream_t stream)
{
    VT_ASSERT(type == ncclInt8);
    fake_runtime_meet(stream, wire(c, ((communicator *)c)->rank, to), true, (void *)(uintptr_t)data, count);
    return ncclSuccess;
}

static ncclResult_t receive_it(void *data, size_t count, ncclDataType_t type, int from, ncclComm_t c,
                               cudaStream_t stream)
{
    VT_ASSERT(type == ncclInt8);
    fake_runtime_meet(stream, wire(c, from, ((communicator *)c)->rank), false, data, count);
    return ncclSuccess;
}

static ncclResult_t group_call(void)
{
    return ncclSuccess;
}

/* Collective calls of rank 1 of 3: what they were asked for, in words. Of each number that a rank gets, which is the
 * one that it gives or one of those in turn, they make one more. */
enum { RANKS = 3 };
static vt_text said;

typedef struct {
    const float *from;
    float *to;
    size_t given, got;
} collective;

static void do_collective(const void *arguments)
{
    const collective *c = arguments;
    float given[2 * RANKS]; /* a copy, as the result may be written over it */
    VT_ASSERT(c->given <= 2 * RANKS);
    memcpy(given, c->from, c->given * sizeof *given);
    for (size_t i = 0; i < c->got; i++) c->to[i] = given[i % c->given] + 1;
}

static ncclResult_t collect(const char *what, const void *from, size_t given, void *to, size_t got, int root,
                            cudaStream_t stream)
{
    const collective call = {from, to, given, got};
    vt_text_append(&said, "%s%zu %s", said.length > 0 ? ", " : "", given, what);
    if (root >= 0) vt_text_append(&said, " at %d", root);
    fake_runtime_do_in(stream, do_collective, &call, sizeof call);
    return ncclSuccess;
}

static ncclResult_t all_reduce_it(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                                  ncclComm_t c, cudaStream_t stream)
{
    VT_ASSERT(type == ncclFloat32 && sum == ncclSum && c != NULL);
    return collect("summed", send, count, receive, count, -1, stream);
}

static ncclResult_t scatter_it(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                               ncclComm_t c, cudaStream_t stream)
{
    VT_ASSERT(type == ncclFloat32 && sum == ncclSum && c != NULL && (const float *)send + count == receive);
    return collect("scattered", receive, count, receive, count, -1, stream);
}

static ncclResult_t reduce_it(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                              int root, ncclComm_t c, cudaStream_t stream)
{
    VT_ASSERT(type == ncclFloat32 && sum == ncclSum && c != NULL);
    return collect("summed", send, count, receive, count, root, stream);
}

static ncclResult_t gather_it(const void *send, void *receive, size_t bytes, ncclDataType_t type, ncclComm_t c,
                              cudaStream_t stream)
{
    const size_t count = bytes / sizeof(float);
    VT_ASSERT(type == ncclInt8 && c != NULL);
    return collect("gathered", send, count, receive, RANKS * count, -1, stream);
}

static ncclResult_t broadcast_it(const void *send, void *receive, size_t bytes, ncclDataType_t type, int root,
                                 ncclComm_t c, cudaStream_t stream)
{
    const size_t count = bytes / sizeof(float);
    VT_ASSERT(type == ncclInt8 && c != NULL);
    return collect("sent", send, count, receive, count, root, stream);
}

/* Waits for the copy. */
static cudaError_t copy_at_once(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaStream_t stream = NULL;
    VT_ASSERT(fake_cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    VT_ASSERT(fake_cudaMemcpyAsync(to, from, bytes, kind, stream) == cudaSuccess);
    VT_ASSERT(fake_cudaStreamSynchronize(stream) == cudaSuccess);
    return fake_cudaStreamDestroy(stream);
}

static const vt_nccl stand_in = {.ncclGetVersion = get_version,
                                 .ncclGetErrorString = error_string,
                                 .ncclGetLastError = last_error,
                                 .ncclGetUniqueId = unique_id,
                                 .ncclCommInitRankConfig = init_rank,
                                 .ncclCommSplit = comm_split,
                                 .ncclCommGetAsyncError = async_error,
                                 .ncclCommFinalize = finalize,
                                 .ncclCommDestroy = destroy,
                                 .ncclCommAbort = destroy,
                                 .ncclAllReduce = all_reduce_it,
                                 .ncclReduceScatter = scatter_it,
                                 .ncclReduce = reduce_it,
                                 .ncclAllGather = gather_it,
                                 .ncclBroadcast = broadcast_it,
                                 .ncclSend = send_it,
                                 .ncclRecv = receive_it,
                                 .ncclGroupStart = group_call,
                                 .ncclGroupEnd = group_call};

static vt_status library(const vt_nccl **result)
{
    *result = &stand_in;
    return VT_OK;
}

#define vt_library_nccl library
#define cudaMemcpy copy_at_once
#define vt_engine_has_nccl stages_has_nccl
#define vt_engine_open_nccl stages_open_nccl
#define vt_nccl_rest stages_rest
#define vt_nccl_operations_fill stages_fill
bool stages_has_nccl(void);
vt_status stages_open_nccl(const vt_launch *launch, vt_group *host, double timeout, vt_engine **engine);
#include "parallel/nccl.c"
#include "parallel/nccl_operations.c"

/* ---- a stage ---- */

enum { ROWS = 3, COLUMNS = 5, COUNT = ROWS * COLUMNS, MOST_PARTS = 7 };

typedef struct {
    int rank, stages, parts;
    vt_engine *engine;
    vt_backend backend; /* as much of one as links use */
    vt_group *forward[2], *back[2];
    vt_pipeline_stage place;
    float *memory;                               /* of the device; what follows is in it */
    float *input, *room, *kept, *result, *slope; /* one for each micro-batch, but `room` */
    cudaGraph_t graph;
    cudaGraphExec_t executable;
} stage;

typedef struct {
    const float *a, *b; /* b NULL: 0 */
    float *to;
    float factor, more;
} sum;

static void do_sum(const void *arguments)
{
    const sum *s = arguments;
    for (int i = 0; i < COUNT; i++) s->to[i] = s->factor * s->a[i] + (s->b != NULL ? s->b[i] : 0) + s->more;
}

static void compute(const stage *s, sum what)
{
    fake_runtime_do_in((cudaStream_t)s->backend.stream, do_sum, &what, sizeof what);
}

static void convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    const sum copy = {.a = from.data, .to = to.data, .factor = 1};
    VT_ASSERT(from.rows * from.columns == COUNT);
    fake_runtime_do_in((cudaStream_t)backend->stream, do_sum, &copy, sizeof copy);
}

static vt_status take_memory(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    (void)backend, (void)category;
    return fake_cudaMalloc(memory, bytes) == cudaSuccess ? VT_OK : VT_ERROR;
}

static void release_memory(vt_backend *backend, void *memory)
{
    (void)backend;
    fake_cudaFree(memory);
}

static vt_matrix matrix(float *data)
{
    return vt_matrix_make(data, ROWS, COLUMNS);
}

/* Forward: y = 2 x + rank + 1, of which x is kept. Backward: 0.5 dy + x, in place of a gradient; the last stage's dy is
 * 3 y. */
static void run_forward(stage *s, int64_t part)
{
    float *x = s->kept + part * COUNT, *y = s->room;
    if (s->rank > 0)
        vt_link_receive(&s->place.in[VT_SENT_STREAM], matrix(x));
    else
        compute(s, (sum){.a = s->input + part * COUNT, .to = x, .factor = 1});
    if (s->rank + 1 == s->stages) y = s->result + part * COUNT;
    compute(s, (sum){.a = x, .to = y, .factor = 2, .more = (float)s->rank + 1});
    if (s->rank + 1 < s->stages) vt_stage_pass(&s->place, VT_SENT_STREAM, matrix(y));
}

static void run_backward(stage *s, int64_t part)
{
    float *x = s->kept + part * COUNT, *dx = s->rank == 0 ? s->slope + part * COUNT : s->room;
    if (s->rank + 1 < s->stages)
        vt_link_receive(&s->place.in[VT_SENT_GRADIENT], matrix(s->room));
    else
        compute(s, (sum){.a = s->result + part * COUNT, .to = s->room, .factor = 3});
    compute(s, (sum){.a = s->room, .b = x, .to = dx, .factor = 0.5f});
    vt_stage_pass(&s->place, VT_SENT_GRADIENT, matrix(dx));
}

static void run_step(stage *s, int64_t step, bool finishes)
{
    const vt_step_shape shape = {.stages = s->stages, .stage = s->rank, .micro_batches = s->parts};
    vt_action action;
    const vt_step_counts counts = vt_schedule_counts(&shape);
    vt_stage_begin(&s->place, step, &counts, ROWS, NULL);
    for (int64_t i = 0; (action = vt_schedule_action(&shape, i)).kind != VT_STEP_ENDS; i++)
        (action.kind == VT_FORWARD ? run_forward : run_backward)(s, action.micro_batch);
    if (finishes) vt_stage_finish(&s->place);
}

/* Neighbours connect in pairs, as in training/stage.c: first those whose first stage is even. */
static void connect(stage *s, int parity)
{
    const bool has_pair = s->rank % 2 == parity ? s->rank + 1 < s->stages : s->rank > 0;
    const int first = !has_pair ? s->rank : s->rank % 2 == parity ? s->rank : s->rank - 1;
    const int members[2] = {first, first + 1}, size = has_pair ? 2 : 1, place = s->rank - first;
    EXPECT_OK(vt_group_open(s->engine, "pp", members, size, place, first, &s->backend, &s->forward[parity]));
    EXPECT_OK(vt_group_open(s->engine, "pp", members, size, place, first, &s->backend, &s->back[parity]));
    if (!has_pair) return;
    vt_pipeline_stage *p = &s->place;
    EXPECT_OK(vt_link_open(s->forward[parity], VT_FLOAT32, COUNT, "activations",
                           &(place == 0 ? p->out : p->in)[VT_SENT_STREAM]));
    EXPECT_OK(vt_link_open(s->back[parity], VT_FLOAT32, COUNT, "gradients",
                           &(place == 0 ? p->in : p->out)[VT_SENT_GRADIENT]));
}

static void open_stage(stage *s, int rank, int stages, int parts)
{
    const vt_launch launch = {.rank = rank, .world_size = stages, .address = "localhost", .port = 1};
    cudaStream_t stream = NULL;
    void *memory = NULL;
    memset(s, 0, sizeof *s);
    s->rank = rank;
    s->stages = stages;
    s->parts = parts;
    s->place = (vt_pipeline_stage){.place = {rank == 0, rank + 1 == stages}, .columns = {COLUMNS, COLUMNS}};
    EXPECT(fake_cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    s->backend = (vt_backend){.stream = stream, .allocate = take_memory, .release = release_memory, .convert = convert};
    EXPECT(fake_cudaMalloc(&memory, (4 * MOST_PARTS + 1) * COUNT * sizeof(float)) == cudaSuccess);
    s->memory = s->input = memory;
    s->kept = s->input + MOST_PARTS * COUNT;
    s->result = s->kept + MOST_PARTS * COUNT;
    s->slope = s->result + MOST_PARTS * COUNT;
    s->room = s->slope + MOST_PARTS * COUNT;
    EXPECT_OK(stages_open_nccl(&launch, NULL, 60, &s->engine));
}

static void close_stage(stage *s)
{
    vt_stage_close(&s->place);
    if (s->executable != NULL) fake_cudaGraphExecDestroy(s->executable);
    if (s->graph != NULL) fake_cudaGraphDestroy(s->graph);
    for (int i = 0; i < 2; i++) {
        vt_group_close(&s->forward[i]);
        vt_group_close(&s->back[i]);
    }
    vt_engine_close(&s->engine);
    fake_cudaFree(s->memory);
    fake_cudaStreamDestroy((cudaStream_t)s->backend.stream);
}

static cudaError_t record_step(stage *s, bool finishes)
{
    const cudaStream_t stream = (cudaStream_t)s->backend.stream;
    EXPECT(fake_cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    run_step(s, 0, finishes);
    return fake_cudaStreamEndCapture(stream, &s->graph);
}

/* ---- the ranks together ---- */

static float value(int step, int part, int i)
{
    return (float)(100 * step + 10 * part + i);
}

static void check_results(const stage *all, int stages, int step)
{
    const stage *first = &all[0], *last = &all[stages - 1];
    static float results[MOST_PARTS * COUNT], slopes[MOST_PARTS * COUNT];
    const size_t bytes = (size_t)first->parts * COUNT * sizeof(float);
    fake_cudaMemcpyAsync(results, last->result, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)last->backend.stream);
    fake_cudaMemcpyAsync(slopes, first->slope, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)first->backend.stream);
    for (int part = 0; part < first->parts; part++)
        for (int i = 0; i < COUNT; i++) {
            float x[MOST_RANKS + 1] = {value(step, part, i)};
            for (int s = 0; s < stages; s++) x[s + 1] = 2 * x[s] + (float)s + 1;
            float dx = 3 * x[stages];
            for (int s = stages - 1; s >= 0; s--) dx = 0.5f * dx + x[s];
            EXPECT(results[part * COUNT + i] == x[stages] && slopes[part * COUNT + i] == dx);
        }
}

static void give_input(const stage *first, int step)
{
    static float numbers[MOST_PARTS * COUNT];
    for (int i = 0; i < first->parts * COUNT; i++) numbers[i] = value(step, i / COUNT, i % COUNT);
    const cudaStream_t stream = (cudaStream_t)first->backend.stream;
    fake_cudaMemcpyAsync(first->input, numbers, (size_t)first->parts * COUNT * sizeof(float), cudaMemcpyHostToDevice,
                         stream);
    fake_cudaStreamSynchronize(stream);
}

static void close_wires(void)
{
    for (int n = 0; n < MOST_SPLITS; n++)
        for (int color = 0; color < MOST_RANKS; color++)
            for (int i = 0; i < MOST_RANKS * MOST_RANKS; i++)
                if (split_wires[n][color].wires[i / MOST_RANKS][i % MOST_RANKS] != NULL)
                    fake_channel_close(split_wires[n][color].wires[i / MOST_RANKS][i % MOST_RANKS]);
    memset(split_wires, 0, sizeof split_wires);
}

static void open_all(stage *all, int stages, int parts, int order)
{
    fake_runtime_begin((order & 1) != 0, (order & 2) != 0);
    for (int s = 0; s < stages; s++) open_stage(&all[s], s, stages, parts);
    for (int parity = 0; parity < 2; parity++)
        for (int s = 0; s < stages; s++) connect(&all[s], parity);
}

static void close_all(stage *all, int stages)
{
    for (int s = 0; s < stages; s++) close_stage(&all[s]);
    close_wires();
    EXPECT(fake_runtime_refused() == NULL, "in the middle of a recording: %s", fake_runtime_refused());
    EXPECT(fake_runtime_is_clean(), "streams, events, graphs or memory were not given back");
}

/* Two steps one by one, then the step is recorded and replayed; the ranks submit theirs in either order. */
static void run_pipeline(int stages, int parts, int order)
{
    stage all[MOST_RANKS];
    open_all(all, stages, parts, order);
    for (int step = 0; step < 5; step++) {
        give_input(&all[0], step);
        for (int i = 0; i < stages; i++) {
            stage *s = &all[order & 4 ? stages - 1 - i : i];
            if (step == 2) {
                EXPECT(record_step(s, true) == cudaSuccess, "stage %d of %d is not recorded", s->rank, stages);
                EXPECT(fake_cudaGraphInstantiate(&s->executable, s->graph, 0) == cudaSuccess);
            }
            if (step < 2)
                run_step(s, step, true);
            else
                fake_cudaGraphLaunch(s->executable, (cudaStream_t)s->backend.stream);
        }
        check_results(all, stages, step);
    }
    close_all(all, stages);
}

TEST(stages_over_nccl)
{
    for (int order = 0; order < 8; order++)
        for (int stages = 2; stages <= MOST_RANKS; stages++)
            for (int parts = 1; parts <= MOST_PARTS; parts += 6) run_pipeline(stages, parts, order);
}

/* A recording can't end before all messages have come back to the rank's own stream. */
TEST(a_recorded_step_waits_for_its_sends)
{
    stage all[2];
    open_all(all, 2, 2, 0);
    EXPECT(record_step(&all[1], false) == cudaErrorStreamCaptureUnjoined);
    close_operation(&all[1].place.out[VT_SENT_GRADIENT].request); /* it can't be waited for any more */
    close_all(all, 2);
}

/* ---- the other operations ---- */

typedef void run_on(vt_group *group, float *data);

static void sum_up(vt_group *group, float *data)
{
    vt_group_all_reduce(group, VT_SUM_FLOAT32, data, 6, NULL);
}

static void scatter_parts(vt_group *group, float *data)
{
    vt_group_reduce_scatter(group, data, (const int64_t[]){1, 2, 3}, NULL);
}

static void scatter_evenly(vt_group *group, float *data)
{
    vt_group_reduce_scatter(group, data, (const int64_t[]){2, 2, 2}, NULL);
}

static void gather_parts(vt_group *group, float *data)
{
    vt_group_all_gather(group, data, (const size_t[]){4, 8, 12}, NULL);
}

static void gather_with_gap(vt_group *group, float *data)
{
    vt_group_all_gather(group, data, (const size_t[]){12, 12, 0}, NULL);
}

static void gather_evenly(vt_group *group, float *data)
{
    vt_group_all_gather(group, data, (const size_t[]){8, 8, 8}, NULL);
}

static void tell(vt_group *group, float *data)
{
    vt_group_broadcast(group, data, 6 * sizeof *data, 1);
}

static void hear(vt_group *group, float *data)
{
    vt_group_broadcast(group, data, 6 * sizeof *data, 2);
}

/* What they ask NCCL for, and what a group over the host's memory then has of 10 … 15: the others' numbers are not sent
 * to the device, whose memory is NaN at first. */
TEST(collectives_over_nccl)
{
    static const struct {
        run_on *run;
        const char *calls;
        float result[6];
    } cases[] = {{sum_up, "6 summed", {11, 12, 13, 14, 15, 16}},
                 {scatter_parts, "1 summed at 0, 2 summed at 1, 3 summed at 2", {10, 12, 13, 13, 14, 15}},
                 {scatter_evenly, "2 scattered", {10, 11, 13, 14, 14, 15}},
                 {gather_parts, "1 sent at 0, 2 sent at 1, 3 sent at 2", {NAN, 12, 13, NAN, NAN, NAN}},
                 {gather_with_gap, "3 sent at 0, 3 sent at 1", {NAN, NAN, NAN, 14, 15, 16}},
                 {gather_evenly, "2 gathered", {13, 14, 13, 14, 13, 14}},
                 {tell, "6 sent at 1", {10, 11, 12, 13, 14, 15}},
                 {hear, "6 sent at 2", {NAN, NAN, NAN, NAN, NAN, NAN}}};
    const vt_launch launch = {.rank = 1, .world_size = RANKS, .address = "localhost", .port = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float data[6] = {10, 11, 12, 13, 14, 15};
        vt_engine *engine = NULL;
        vt_group *group = NULL;
        fake_runtime_begin(true, true); /* what is polled must run by itself */
        EXPECT_OK(stages_open_nccl(&launch, NULL, 60, &engine));
        EXPECT_OK(vt_group_open(engine, "world", (const int[]){0, 1, 2}, RANKS, 1, 0, NULL, &group));
        cases[i].run(group, data);
        EXPECT_TEXT(said.characters, cases[i].calls);
        for (int k = 0; k < 6; k++) {
            const float expected = cases[i].result[k];
            EXPECT(isnan(expected) ? isnan(data[k]) : data[k] == expected, "%s: number %d is %g, not %g",
                   cases[i].calls, k, (double)data[k], (double)expected);
        }
        vt_text_close(&said);
        vt_group_close(&group);
        vt_engine_close(&engine);
        close_wires();
        EXPECT(fake_runtime_is_clean(), "streams, events or memory were not given back");
    }
}

#else

TEST(stages_over_nccl)
{
    vt_test_skip("built without CUDA or NCCL, or no C++ compiler was found");
}

#endif
