/* NCCL on one GPU: a job of one rank. It opens the library, connects to itself, splits off a communicator and runs each
 * operation, also while a step is recorded; communication between ranks needs several GPUs. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "parallel/group.h"
#include "test.h"

enum { COUNT = 1013 };

typedef struct {
    vt_engine *self, *engine;
    vt_group *host;  /* over which the ranks learn of one another */
    vt_group device; /* of one rank, over the GPU's memory */
    vt_backend *backend;
    float *data, *other; /* [COUNT], there */
    float values[COUNT];
} alone;

static bool open_alone(alone *a)
{
    static int member = 0;
    memset(a, 0, sizeof *a);
    EXPECT_OK(vt_backend_open_cuda(0, true, &a->backend));
    a->self = vt_engine_open_alone(0, 1, false);
    EXPECT_OK(vt_group_open(a->self, "test", &member, 1, 0, 0, NULL, &a->host));
    const vt_launch launch = {.world_size = 1};
    if (vt_engine_open_nccl(&launch, a->host, 60, &a->engine) != VT_OK) return false;
    void *memory[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        EXPECT_OK(a->backend->allocate(a->backend, VT_MEMORY_WORKSPACE, sizeof a->values, &memory[i]));
    a->data = memory[0];
    a->other = memory[1];
    fill_random(a->values, COUNT, 1, 1);
    a->device = (vt_group){.name = "alone", .size = 1, .members = &member, .backend = a->backend, .engine = a->engine};
    EXPECT_OK(a->engine->split(a->engine, 0, 0, &a->device));
    printf("    %s\n", a->engine->name);
    return true;
}

static void alone_close(alone *a)
{
    a->backend->release(a->backend, a->data);
    a->backend->release(a->backend, a->other);
    vt_backend_close(&a->backend); /* first, as a run does: a communicator waits for the graphs that use it */
    if (a->device.state != NULL) a->engine->group_close(&a->device);
    vt_engine_close(&a->engine);
    vt_group_close(&a->host);
    vt_engine_close(&a->self);
}

static void expect_values(const alone *a, const float *memory, const char *what)
{
    float got[COUNT] = {0};
    a->backend->copy_to_host(a->backend, got, memory, sizeof got);
    EXPECT_OK(a->backend->check(a->backend));
    EXPECT(memcmp(got, a->values, sizeof got) == 0, "%s: %g, not %g, …", what, (double)got[0], (double)a->values[0]);
}

static void fill(const alone *a)
{
    a->backend->copy_from_host(a->backend, a->data, a->values, sizeof a->values);
    a->backend->zero(a->backend, a->other, sizeof a->values);
}

/* With one rank each leaves the numbers unchanged, in place or at the destination. */
static void run(alone *a, vt_group_operation_kind kind)
{
    const vt_group_bytes own = {(char *)a->data, sizeof a->values}, other = {(char *)a->other, sizeof a->values};
    const bool exchanges = kind == VT_EXCHANGE;
    const vt_group_operation operation = {.kind = kind,
                                          .block = exchanges ? (vt_group_bytes){NULL, 2 * own.count} : own,
                                          .send = own,
                                          .receive = exchanges ? other : own,
                                          .parts = &own.count};
    vt_request request = {.group = &a->device};
    a->engine->start(&a->device, &operation, &request);
    a->engine->wait(&request);
}

GPU_TEST(nccl_of_one_rank)
{
    alone a;
    if (!vt_test_gpu_alone() || !path_is_available(PATH_GPU) || getenv("VITRAIN_TEST_GPU") != NULL)
        return vt_test_skip("on a GPU alone (VITRAIN_TEST_PATHS=gpu)");
    vt_test_gpu_used = true;
    if (!open_alone(&a)) {
        vt_test_skip("%s", vt_error_text());
        vt_error_clear();
        alone_close(&a);
        return;
    }
    for (vt_group_operation_kind kind = VT_ALL_REDUCE; kind <= VT_BROADCAST; kind++) {
        const float *result = kind == VT_EXCHANGE ? a.other : a.data;
        const char *name = vt_group_operation_names[kind];
        fill(&a);
        run(&a, kind);
        expect_values(&a, result, name);
        fill(&a);
        EXPECT_OK(a.backend->check(a.backend));
        EXPECT(a.backend->record_begin(a.backend));
        run(&a, kind);
        EXPECT(a.backend->record_end(a.backend), "%s is not recorded", name);
        EXPECT(a.backend->replay(a.backend));
        expect_values(&a, result, name);
    }
    alone_close(&a);
}
