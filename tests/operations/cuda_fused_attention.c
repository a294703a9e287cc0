/* cuda/attention_choice.c and cuda/fused_attention.c without a GPU, over a stand-in for cuDNN that computes what it is
 * described: what its graphs compute, whose attention runs, what is kept, and what is reported if the library refuses.
 */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN)

#include "cuda/fused_attention.h"
#include "cuda/wgmma_attention.h"
#include "operations/fake_gpu.h"
#include "operations/fake_graph.h"

/* ---- the stand-in ---- */

static struct {
    size_t version; /* of cuDNN */
    double own_time, cudnn_time, wgmma_time;
    bool wgmma_refuses;
    size_t memory; /* all of it free unless gpu_is_full */
    int own_runs, wgmma_runs;
} gpu;

static cudnnStatus_t fake_create(cudnnHandle_t *handle)
{
    *handle = (cudnnHandle_t)&fake;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_destroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

static size_t fake_version(void)
{
    return gpu.version;
}

static void fake_compute_graph(const fake_descriptor *graph, const fake_descriptor *pack)
{
    fake_graph_run(graph, pack);
}

static vt_status fake_library(const vt_cudnn **library)
{
    static vt_cudnn functions;
    functions = fake_functions;
    functions.cudnnCreate = fake_create;
    functions.cudnnDestroy = fake_destroy;
    functions.cudnnSetStream = fake_set_stream;
    functions.cudnnGetVersion = fake_version;
    *library = &functions;
    return VT_OK;
}

static void fake_time_all(vt_backend *backend, int count, vt_cuda_trial *trials)
{
    (void)backend;
    for (int i = 0; i < count; i++) {
        const int runs = fake.runs, wgmma_runs = gpu.wgmma_runs;
        fake.timings++;
        const bool works = trials[i].run(trials[i].context);
        trials[i].milliseconds = !works                        ? (double)INFINITY
                                 : fake.runs > runs            ? gpu.cudnn_time
                                 : gpu.wgmma_runs > wgmma_runs ? gpu.wgmma_time
                                                               : gpu.own_time;
    }
}

static cudaError_t fake_mem_info(size_t *available, size_t *total)
{
    *total = gpu.memory;
    *available = gpu_is_full ? 0 : *total;
    return cudaSuccess;
}

static bool wgmma_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                          vt_matrix out, float *log_sum)
{
    (void)backend, (void)shape, (void)q, (void)k, (void)v, (void)out, (void)log_sum;
    gpu.wgmma_runs++;
    return !gpu.wgmma_refuses;
}

static bool wgmma_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                           vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq, vt_matrix dk,
                           vt_matrix dv)
{
    (void)backend, (void)shape, (void)q, (void)k, (void)v, (void)out, (void)log_sum;
    (void)dout, (void)dq, (void)dk, (void)dv;
    gpu.wgmma_runs++;
    return !gpu.wgmma_refuses;
}

/* The files themselves, with other names and over the stand-ins. */
#ifndef VT_HAS_WGMMA
#define VT_HAS_WGMMA
#endif
#define vt_cuda_wgmma_attention_forward wgmma_forward
#define vt_cuda_wgmma_attention_backward wgmma_backward
#define vt_library_cudnn fake_library
#define vt_cuda_time_all fake_time_all
#define cudaPeekAtLastError no_error
#define cudaMemGetInfo fake_mem_info
#define vt_cudnn_open fused_open
#define vt_cudnn_close fused_close
#define vt_cudnn_version fused_version
#define vt_fused_attention_failure fused_failure
#define vt_fused_attention_note fused_note
#define vt_fused_attention_fits fused_fits
#define vt_fused_attention_workspace fused_workspace
#define vt_fused_attention_run fused_run
#define vt_fused_attention_plan_open fused_plan_open
#define vt_fused_attention_plan_close fused_plan_close
#define vt_attention_open choice_open
#define vt_attention_close choice_close
#define vt_attention_prefer choice_prefer
#define vt_attention_served choice_served
#define vt_attention_has choice_has
#define vt_attention_is_masked choice_is_masked
struct vt_cudnn_state *fused_open(vt_backend *backend);
void fused_close(struct vt_cudnn_state **cudnn);
size_t fused_version(const struct vt_cudnn_state *cudnn);
const char *fused_failure(vt_backend *backend);
void fused_note(vt_backend *backend, const char *failure);
bool fused_fits(const vt_attention_call *call);
size_t fused_workspace(const vt_attention_call *call);
bool fused_run(void *call);
vt_fused_graph *fused_plan_open(vt_backend *backend, const vt_attention_key *shape);
void fused_plan_close(vt_fused_graph **plan);
struct vt_attention_choices *choice_open(vt_backend *backend);
void choice_close(struct vt_attention_choices **choices);
void choice_prefer(vt_backend *backend, vt_attention_engine engine);
int choice_served(vt_backend *backend, vt_attention_engine engine);
bool choice_has(vt_backend *backend, vt_attention_engine engine);
bool choice_is_masked(const vt_attention_shape *shape);
#include "cuda/attention_choice.c"
#include "cuda/fused_attention.c"

/* ---- a back end over it ---- */

enum { TOKENS = 5, HEADS = 2, HEAD_DIM = 16, WIDTH = HEADS * HEAD_DIM };

typedef struct {
    vt_cuda_state state;
    vt_backend backend;
    uint16_t *memory;
    _Alignas(16) float log_sum[HEADS * TOKENS]; /* as cuDNN wants it */
} fixture;

static void own_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                        vt_matrix out, float *log_sum)
{
    (void)backend, (void)shape, (void)q, (void)k, (void)v, (void)out, (void)log_sum;
    gpu.own_runs++;
}

static void own_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                         vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv)
{
    (void)backend, (void)shape, (void)q, (void)k, (void)v, (void)out, (void)log_sum;
    (void)dout, (void)dq, (void)dk, (void)dv;
    gpu.own_runs++;
}

static void open_fixture(fixture *f, bool deterministic)
{
    memset(f, 0, sizeof *f);
    memset(&fake, 0, sizeof fake);
    memset(&gpu, 0, sizeof gpu);
    gpu.version = FIRST_RIGHT_VERSION;
    gpu.own_time = 2;
    gpu.cudnn_time = 1;
    gpu.wgmma_time = 0.5;
    gpu.memory = (size_t)1 << 30;
    f->backend = (vt_backend){.state = f, .attention_forward = own_forward, .attention_backward = own_backward};
    open_fake_gpu(&f->backend);
    f->state.fixed_choices = deterministic;
    f->state.capability = 9;
    f->memory = aligned_alloc(64, 16 * TOKENS * WIDTH * sizeof *f->memory);
    VT_ASSERT(f->memory != NULL);
    f->state.cudnn = fused_open(&f->backend);
    VT_ASSERT(f->state.cudnn != NULL);
    f->state.attention = choice_open(&f->backend);
}

static void fixture_close(fixture *f)
{
    choice_close(&f->state.attention);
    fused_close(&f->state.cudnn);
    EXPECT(fake_descriptors == 0, "%d descriptors are left", fake_descriptors);
    close_fake_gpu(&f->backend);
    free(f->memory);
}

static vt_matrix matrix(const fixture *f, int place)
{
    return (vt_matrix){.half = f->memory + place * TOKENS * WIDTH,
                       .rows = TOKENS,
                       .columns = WIDTH,
                       .stride = WIDTH,
                       .type = VT_BFLOAT16};
}

static vt_attention_shape shape_of(float dropout)
{
    return (vt_attention_shape){.batch = 1,
                                .heads = HEADS,
                                .head_dim = HEAD_DIM,
                                .queries = TOKENS,
                                .keys = TOKENS,
                                .dropout = {.rate = dropout}};
}

static void forward_of(fixture *f, const vt_attention_shape *shape)
{
    f->backend.attention_forward(&f->backend, shape, matrix(f, 0), matrix(f, 1), matrix(f, 2), matrix(f, 3),
                                 f->log_sum);
}

static void backward_of(fixture *f, const vt_attention_shape *shape)
{
    f->backend.attention_backward(&f->backend, shape, matrix(f, 0), matrix(f, 1), matrix(f, 2), matrix(f, 3),
                                  f->log_sum, matrix(f, 4), matrix(f, 5), matrix(f, 6), matrix(f, 7));
}

static void forward(fixture *f, float dropout)
{
    const vt_attention_shape shape = shape_of(dropout);
    forward_of(f, &shape);
}

static void backward(fixture *f)
{
    const vt_attention_shape shape = shape_of(0);
    backward_of(f, &shape);
}

/* That of `id` in the pack that ran last. */
static const void *pointer_of(int64_t id)
{
    for (int64_t i = 0; i < fake.ids.count; i++)
        if (fake.ids.numbers[i] == id) return fake.pointers.pointers[i];
    return NULL;
}

TEST(the_faster_attention_runs)
{
    for (int faster = 0; faster < 2; faster++) {
        SCOPED(fixture) f;
        open_fixture(&f, false);
        gpu.cudnn_time = faster ? 1 : 3;
        forward(&f, 0);
        backward(&f);
        EXPECT(fake.timings == 4 && choice_served(&f.backend, VT_ATTENTION_CUDNN) == (faster ? 2 : 0));
        fake.runs = gpu.own_runs = 0;
        forward(&f, 0);
        backward(&f);
        EXPECT(fake.timings == 4, "it is timed once");
        EXPECT(fake.runs == (faster ? 2 : 0) && gpu.own_runs == (faster ? 0 : 2));
        forward(&f, 0.1f); /* whose random numbers are the CPU's */
        EXPECT(gpu.own_runs == (faster ? 1 : 3));
        EXPECT(!f.state.failed);
    }
}

TEST(cudnn_is_not_asked_where_its_backward_fails)
{
    SCOPED(fixture) f;
    vt_attention_shape shape = shape_of(0);
    shape.queries = shape.keys = 192; /* half a tile of 128 is left */
    open_fixture(&f, false);
    backward_of(&f, &shape);
    EXPECT(fake.timings == 0 && gpu.own_runs == 1 && choice_served(&f.backend, VT_ATTENTION_CUDNN) == 0);
}

/* As a language model that writes has them, word after word; but where an engine is named, it runs. */
TEST(nothing_is_timed_for_one_query)
{
    SCOPED(fixture) f;
    vt_attention_shape shape = shape_of(0);
    shape.queries = 1;
    open_fixture(&f, false);
    for (shape.keys = 2; shape.keys <= TOKENS; shape.keys++) forward_of(&f, &shape);
    EXPECT(fake.timings == 0 && gpu.own_runs == TOKENS - 1 && fake.runs == 0);
    shape.keys = TOKENS;
    choice_prefer(&f.backend, VT_ATTENTION_CUDNN);
    forward_of(&f, &shape);
    EXPECT(fake.runs == 1);
}

TEST(a_plan_gets_each_tensor)
{
    SCOPED(fixture) f;
    open_fixture(&f, false);
    forward(&f, 0);
    EXPECT(fake.ids.count == VT_FUSED_SCALE && pointer_of(VT_FUSED_Q) == matrix(&f, 0).half &&
           pointer_of(VT_FUSED_K) == matrix(&f, 1).half && pointer_of(VT_FUSED_V) == matrix(&f, 2).half &&
           pointer_of(VT_FUSED_OUT) == matrix(&f, 3).half && pointer_of(VT_FUSED_LOG_SUM) == f.log_sum);
    backward(&f);
    static const int64_t places[] = {VT_FUSED_Q,    VT_FUSED_K,  VT_FUSED_V,  VT_FUSED_OUT,
                                     VT_FUSED_DOUT, VT_FUSED_DQ, VT_FUSED_DK, VT_FUSED_DV};
    EXPECT(fake.ids.count == VT_FUSED_UNSEEN - 1);
    for (int i = 0; i < 8; i++) EXPECT(pointer_of(places[i]) == matrix(&f, i).half, "tensor %d", i);
    /* behind the library's own workspace, each at a multiple of 256 */
    const char *delta = pointer_of(VT_FUSED_DELTA), *sums = pointer_of(VT_FUSED_DQ_SUM);
    EXPECT(delta == (char *)f.state.workspace + 1024 && sums == delta + 256);
}

/* Against the plain loops on the same numbers; what is rounded: cuda_kernels.c. */
static void check_graphs(vt_type type, const vt_attention_shape *shape, bool deterministic, bool is_served)
{
    SCOPED(fixture) f;
    float *log_sum = vt_test_owned(aligned_alloc(16, 4096));
    SCOPED(vt_backend) *plain = open_path(VT_ISA_PLAIN);
    VT_ASSERT(log_sum != NULL && shape->batch * shape->heads * shape->queries <= 1024);
    open_fixture(&f, deterministic);
    twins_attention a = twins_attention_open(type, shape, 1, TWINS_ALIGNED);
    twins_attention_forward(plain, &a, true);
    f.backend.attention_forward(&f.backend, shape, a.q.own, a.k.own, a.v.own, a.out.own, log_sum);
    EXPECT(choice_served(&f.backend, VT_ATTENTION_CUDNN) == is_served, "%s", fused_failure(&f.backend));
    if (is_served) {
        for (int64_t i = 0; i < a.log_sum[0].matrix.columns; i++)
            EXPECT_NEAR(log_sum[i], a.log_sum[0].matrix.data[i], 1e-5);
        twins_compare(&a.out, 2, "out");
        twins_attention_backward(plain, &a, true, a.out.wide, &a.log_sum[0]);
        f.backend.attention_backward(&f.backend, shape, a.q.own, a.k.own, a.v.own, a.out.own, log_sum, a.dout.own,
                                     a.dq.own, a.dk.own, a.dv.own);
        twins_compare(&a.dq, 4, "dq");
        twins_compare(&a.dk, 4, "dk");
        twins_compare(&a.dv, 4, "dv");
        EXPECT(choice_served(&f.backend, VT_ATTENTION_CUDNN) == 2 && !f.state.failed);
    }
}

TEST(graphs_are_attention)
{
    static const vt_attention_shape shapes[] = {
        {.batch = 2, .heads = 3, .head_dim = 16, .queries = 13, .keys = 21},
        {.batch = 2, .heads = 2, .head_dim = 24, .queries = 19, .keys = 19, .causal = true},
        {.batch = 1, .heads = 2, .head_dim = 8, .queries = 9, .keys = 14, .causal = true, .unscaled = true},
        {.batch = 1,
         .heads = 2,
         .head_dim = 8,
         .queries = 12,
         .keys = 7,
         .first_query = 5,
         .first_key = 5,
         .causal = true},
        /* all keys are seen */
        {.batch = 1, .heads = 2, .head_dim = 8, .queries = 12, .keys = 7, .first_query = 7, .causal = true},
        /* a mask that the graphs don't have */
        {.batch = 1, .heads = 2, .head_dim = 8, .queries = 12, .keys = 12, .first_query = 5, .causal = true}};
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++)
            check_graphs(type, &shapes[i], deterministic, i + 1 < sizeof shapes / sizeof *shapes);
}

/* By a rule, nothing being timed: on GPUs whose plan gives the same bits every time, if its workspace is no more than a
 * sixteenth of the memory. */
TEST(with_deterministic_a_rule_chooses)
{
    SCOPED(fixture) f;
    open_fixture(&f, true);
    gpu.cudnn_time = 3;
    forward(&f, 0);
    backward(&f);
    EXPECT(fake.runs == 2 && gpu.own_runs == 0 && fake.timings == 0 && !f.state.failed);
    EXPECT(fake.ids.count == VT_FUSED_DQ_SUM - 1 && pointer_of(VT_FUSED_DQ_SUM) == NULL);
    fixture_close(&f);
    open_fixture(&f, true);
    f.state.capability = 10;
    forward(&f, 0);
    EXPECT(gpu.own_runs == 1 && fake.questions == 0);
    fixture_close(&f);
    open_fixture(&f, true);
    gpu.memory = 16 * 1024; /* the library's part, rounded, fits; what backward needs beside it does not */
    f.state.workspace_bytes = 1 << 20;
    forward(&f, 0);
    backward(&f);
    EXPECT(fake.runs == 1 && gpu.own_runs == 1 && fake.timings == 0 && f.backend.choices != NULL);
    char *kept = vt_test_owned(vt_choices_text(f.backend.choices));
    fixture_close(&f);
    open_fixture(&f, true); /* a GPU with more memory keeps to it */
    EXPECT(vt_choices_take(f.backend.choices, kept) == 2);
    forward(&f, 0);
    backward(&f);
    EXPECT(fake.runs == 1 && gpu.own_runs == 1);
}

TEST(choices_of_a_checkpoint_are_used)
{
    SCOPED(fixture) f;
    open_fixture(&f, false);
    forward(&f, 0);
    char *kept = vt_test_owned(vt_choices_text(f.backend.choices));
    fixture_close(&f);
    open_fixture(&f, true);
    f.state.capability = 8;
    EXPECT(vt_choices_take(f.backend.choices, kept) == 1);
    forward(&f, 0);
    EXPECT(gpu.own_runs == 0 && fake.runs == 1 && fake.timings == 0);
    backward(&f); /* the checkpoint has none whose bits are the same every time */
    EXPECT(gpu.own_runs == 1 && fake.runs == 1 && fake.timings == 0);
}

/* The same matrices as one head, which is as wide as wgmma's kernels take it. */
static void attend_wide(fixture *f, float dropout)
{
    vt_attention_shape shape = shape_of(dropout);
    shape.heads = 1, shape.head_dim = WIDTH;
    forward_of(f, &shape);
    backward_of(f, &shape);
}

TEST(the_fastest_of_three_attentions_runs)
{
    static const struct {
        double own, cudnn, wgmma;
        vt_attention_engine fastest;
    } times[] = {{3, 2, 1, VT_ATTENTION_WGMMA}, {3, 1, 2, VT_ATTENTION_CUDNN}, {1, 2, 3, VT_ATTENTION_OWN}};
    for (int i = 0; i < 3; i++) {
        SCOPED(fixture) f;
        open_fixture(&f, false);
        gpu.own_time = times[i].own, gpu.cudnn_time = times[i].cudnn, gpu.wgmma_time = times[i].wgmma;
        attend_wide(&f, 0);
        EXPECT(fake.timings == 6 && choice_served(&f.backend, times[i].fastest) == 2);
        char *kept = vt_test_owned(vt_choices_text(f.backend.choices));
        fixture_close(&f);
        open_fixture(&f, true); /* what a checkpoint says comes before the rule; backward has another key */
        EXPECT(vt_choices_take(f.backend.choices, kept) == 2);
        attend_wide(&f, 0);
        EXPECT(fake.timings == 0 && choice_served(&f.backend, VT_ATTENTION_WGMMA) == (i == 0 ? 2 : 1));
    }
}

/* cuDNN's random numbers are not the CPU's. The choice is one of its own. */
TEST(the_faster_attention_with_dropout_runs)
{
    for (int faster = 0; faster < 2; faster++) {
        SCOPED(fixture) f;
        open_fixture(&f, false);
        gpu.own_time = 2, gpu.cudnn_time = 1, gpu.wgmma_time = faster ? 1.5 : 3;
        attend_wide(&f, 0);
        EXPECT(fake.timings == 6 && choice_served(&f.backend, VT_ATTENTION_CUDNN) == 2);
        attend_wide(&f, 0.1f);
        EXPECT(fake.timings == 10 && choice_served(&f.backend, VT_ATTENTION_CUDNN) == 2);
        EXPECT(choice_served(&f.backend, faster ? VT_ATTENTION_WGMMA : VT_ATTENTION_OWN) == 2);
    }
}

TEST(wgmma_attention_needs_its_gpu)
{
    SCOPED(fixture) f;
    open_fixture(&f, true);
    attend_wide(&f, 0);
    EXPECT(gpu.wgmma_runs == 2 && fake.runs + gpu.own_runs + fake.timings + fake.questions == 0);
    EXPECT(choice_has(&f.backend, VT_ATTENTION_WGMMA));
    fixture_close(&f);
    open_fixture(&f, true);
    f.state.capability = 10;
    attend_wide(&f, 0);
    EXPECT(gpu.own_runs == 2 && gpu.wgmma_runs == 0 && !choice_has(&f.backend, VT_ATTENTION_WGMMA));
    fixture_close(&f);
    open_fixture(&f, false); /* without cuDNN */
    choice_close(&f.state.attention);
    fused_close(&f.state.cudnn);
    f.backend.attention_forward = own_forward;
    f.backend.attention_backward = own_backward;
    f.state.attention = choice_open(&f.backend);
    attend_wide(&f, 0);
    EXPECT(fake.timings == 4 && choice_served(&f.backend, VT_ATTENTION_WGMMA) == 2);
    forward(&f, 0);
    EXPECT(fake.timings == 4 && gpu.own_runs == 3);
}

TEST(an_attention_can_be_preferred)
{
    SCOPED(fixture) f;
    open_fixture(&f, false);
    for (int engine = 0; engine < VT_ATTENTION_ENGINES; engine++) {
        choice_prefer(&f.backend, (vt_attention_engine)engine);
        attend_wide(&f, 0);
        EXPECT(choice_served(&f.backend, (vt_attention_engine)engine) == 2 && fake.timings == 0);
    }
    EXPECT(gpu.own_runs == 2 && fake.runs == 2 && gpu.wgmma_runs == 2);
    EXPECT(f.backend.prefer_attention(&f.backend, VT_ATTENTION_ENGINES) == NULL);
    EXPECT_TEXT(f.backend.prefer_attention(&f.backend, 2), "wgmma");
    forward(&f, 0); /* which it can't */
    EXPECT(strcmp(f.backend.attention_ran(&f.backend), "own") == 0 && gpu.own_runs == 3);
    f.backend.prefer_attention(&f.backend, -1);
    attend_wide(&f, 0);
    EXPECT(fake.timings == 6 && strcmp(f.backend.attention_ran(&f.backend), "wgmma") == 0);
    gpu.wgmma_refuses = true;
    attend_wide(&f, 0);
    EXPECT(f.state.failed && strstr(vt_error_text(), "over wgmma, which had worked before, failed") != NULL, "%s",
           vt_error_text());
    vt_error_clear();
}

TEST(a_new_attention_ends_a_recording)
{
    SCOPED(fixture) f;
    open_fixture(&f, false);
    f.state.recording = true;
    forward(&f, 0);
    EXPECT(f.state.recording_fault != NULL && fake.timings == 0 && fake.questions == 0);
    f.state.recording = false;
    f.state.recording_fault = NULL;
    forward(&f, 0);
    f.state.recording = true;
    fake.runs = 0;
    forward(&f, 0);
    EXPECT(f.state.recording_fault == NULL && fake.runs == 1);
}

TEST(refusals_of_cudnn_are_reported)
{
    fixture f;
    open_fixture(&f, false);
    fake.refuses_plans = true;
    forward(&f, 0);
    EXPECT(gpu.own_runs == 1 && !f.state.failed && choice_served(&f.backend, VT_ATTENTION_CUDNN) == 0);
    EXPECT_PART(fused_failure(&f.backend), "status 3000, the library's own words");
    fixture_close(&f);
    open_fixture(&f, false);
    fake.refuses_runs = true; /* from the first run on: it is slower than anything */
    forward(&f, 0);
    EXPECT(gpu.own_runs == 2 && !f.state.failed);
    fixture_close(&f);
    open_fixture(&f, false);
    forward(&f, 0);
    fake.refuses_runs = true;
    forward(&f, 0);
    EXPECT(f.state.failed &&
               strstr(vt_error_text(), "worked before, failed: running a plan: the library's own words") != NULL,
           "%s", vt_error_text());
    vt_error_clear();
    fixture_close(&f);
    open_fixture(&f, false);
    gpu_is_full = true; /* a run that fits without it continues without it, and the choice is not kept */
    forward(&f, 0);
    EXPECT(gpu.own_runs == 1 && fake.timings == 0 && f.state.workspace == NULL && !f.state.failed);
    EXPECT_PART(fused_failure(&f.backend), "no memory to try it");
    fixture_close(&f);
    gpu.version = FIRST_RIGHT_VERSION - 1;
    EXPECT(fused_open(&f.backend) == NULL);
}

#endif
