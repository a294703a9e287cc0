/* The ranks of a run: groups along axes and within nodes, and what ranks agree on. */
#include "parallel/world.h"

#include <unistd.h>

#include "base/text.h"
#include "settings.h"
#include "test.h"

static vt_world *open_world(int ranks_per_node, const char *settings)
{
    vt_launch launch;
    vt_world *world = NULL;
    SCOPED(vt_config) *config = default_config();
    set_options(config, settings);
    char text[16];
    snprintf(text, sizeof text, "%d", ranks_per_node);
    if (ranks_per_node > 0) setenv("VITRAIN_RANKS_PER_NODE", text, 1);
    EXPECT_OK(vt_launch_detect(&launch));
    EXPECT_OK(vt_world_open(config, &launch, &world));
    unsetenv("VITRAIN_RANKS_PER_NODE");
    return world;
}

/* The sum of 1 << rank over the group shows which ranks are in it. */
static void expect_members(vt_world *world, unsigned axes, vt_scope scope, const char *expected)
{
    vt_group *group = NULL, *again = NULL;
    EXPECT_OK(vt_world_group(world, axes, scope, NULL, NULL, &group));
    EXPECT_OK(vt_world_group(world, axes, scope, NULL, NULL, &again));
    EXPECT(group == again);
    if (group == NULL) return;
    double members = 0, sum = (double)(1 << world->rank);
    vt_group_all_reduce(group, VT_SUM_FLOAT64, &sum, 1, NULL);
    for (int i = 0; i < group->size; i++) members += 1 << group->members[i];
    EXPECT(sum == members, "%s sums over %g, its members are %g", group->name, sum, members);
    EXPECT(group->members[group->rank] == world->rank);
    char text[VT_GROUP_TEXT_SIZE];
    vt_group_text(group, text);
    if (expected != NULL) EXPECT_TEXT(text, expected);
}

TEST(groups_of_every_axis)
{
    int ranks = vt_test_engine->size;
    vt_world *world = open_world(
        2, SETTINGS("tensor_parallel=%d context_parallel=%d", ranks % 2 == 0 ? 2 : 1, ranks % 4 == 0 ? 2 : 1));
    for (unsigned axes = 1; axes <= VT_AXES_ALL; axes++) {
        expect_members(world, axes, VT_SCOPE_ALL, NULL);
        expect_members(world, axes, VT_SCOPE_WITHIN_NODE, NULL);
        if (ranks % 2 == 0 || ranks == 1) expect_members(world, axes, VT_SCOPE_ACROSS_NODES, NULL);
    }
    char expected[64] = "";
    int first = world->rank - world->rank % 4;
    if (ranks % 4 == 0) {
        snprintf(expected, sizeof expected, "tp-cp [%d %d %d %d]", first, first + 1, first + 2, first + 3);
        expect_members(world, VT_AXES(VT_AXIS_TENSOR) | VT_AXES(VT_AXIS_CONTEXT), VT_SCOPE_ALL, expected);
    }
    vt_world_close(&world, false);
    EXPECT(world == NULL);
}

TEST(nodes)
{
    vt_world *world = open_world(2, "");
    int ranks = world->ranks, rank = world->rank;
    EXPECT(world->nodes == (ranks + 1) / 2, "%d", world->nodes);
    EXPECT(world->node_of[rank] == rank / 2);
    bool is_alone = rank == ranks - 1 && rank % 2 == 0;
    EXPECT(vt_world_ranks_of_memory(world, NULL) == (is_alone ? 1 : 2));
    EXPECT(world->cores >= 1);
    EXPECT(world->launch.local_size >= 1 && world->launch.local_rank < world->launch.local_size);
    vt_group *group = NULL;
    unsigned data = VT_AXES(VT_AXIS_DATA);
    if (ranks == 8) {
        char expected[64];
        snprintf(expected, sizeof expected, "dp in node [%d %d]", rank - rank % 2, rank - rank % 2 + 1);
        expect_members(world, data, VT_SCOPE_WITHIN_NODE, expected);
        snprintf(expected, sizeof expected, "dp across nodes [%d %d %d %d]", rank % 2, rank % 2 + 2, rank % 2 + 4,
                 rank % 2 + 6);
        expect_members(world, data, VT_SCOPE_ACROSS_NODES, expected);
    }
    if (ranks == 3) /* 2 + 1 */
        EXPECT_ERROR(vt_world_group(world, data, VT_SCOPE_ACROSS_NODES, NULL, NULL, &group), "unequally");
    vt_world_close(&world, false);
}

TEST(threads_share_the_cores)
{
    vt_world *world = open_world(0, "");
    double sum = world->cores;
    vt_world_sum(world, &sum, 1);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    EXPECT(sum <= (double)(cores > world->ranks ? cores : world->ranks), "%g threads in all", sum);
    EXPECT(world->nodes == 1 && world->launch.local_size == world->ranks);
    vt_world_close(&world, false);
}

TEST(agree)
{
    vt_world *world = open_world(0, "");
    int last = world->ranks - 1;
    EXPECT(vt_world_agree(world, VT_OK) == VT_OK);
    EXPECT(vt_world_agree(world, world->rank == last ? VT_STOPPED : VT_OK) == VT_STOPPED);
    EXPECT(vt_world_speaks(world) == (world->rank == 0));
    /* the last two fail: the lower one reports */
    int teller = last > 0 ? last - 1 : 0;
    vt_status status = world->rank == 0 && last > 1 ? VT_STOPPED : VT_OK;
    if (world->rank >= teller) status = vt_error_note(__FILE__, __LINE__, "'%s' can't be read", "x.h5");
    EXPECT(vt_world_agree(world, status) == VT_ERROR);
    EXPECT(vt_world_speaks(world) == (world->rank == teller));
    char host[VT_HOST_SIZE], expected[160];
    vt_host_name(host);
    snprintf(expected, sizeof expected, "rank %d on %s: 'x.h5' can't be read", teller, host);
    if (last == 0) snprintf(expected, sizeof expected, "'x.h5' can't be read");
    char text[200];
    snprintf(text, sizeof text, "%s%s", world->rank == teller ? "" : "all ranks: stop: ", expected);
    EXPECT_TEXT(vt_error_text(), text);
    vt_error_clear();
    vt_world_close(&world, true); /* all know: nothing is aborted */
}

/* A failure that the run survives: all ranks know whose it is and why, and none has to end. */
TEST(cause)
{
    vt_world *world = open_world(0, "");
    const int last = world->ranks - 1;
    vt_status status = VT_ERROR; /* the others end because of the last one */
    char host[VT_HOST_SIZE], expected[160] = "'x.h5' is damaged";
    vt_host_name(host);
    if (last > 0) snprintf(expected, sizeof expected, "rank %d on %s: 'x.h5' is damaged", last, host);
    if (world->rank == last) status = vt_error_note(__FILE__, __LINE__, "'%s' is damaged", "x.h5");
    char *cause = vt_test_owned(vt_world_cause(world, status));
    EXPECT(cause != NULL && strcmp(cause, expected) == 0, "'%s', expected '%s'", cause, expected);
    vt_error_clear();
    EXPECT(vt_world_cause(world, VT_OK) == NULL);
    EXPECT(vt_world_agree(world, VT_OK) == VT_OK && vt_world_speaks(world) == (world->rank == 0));
    vt_world_close(&world, false);
}

TEST(any_sum_and_text)
{
    vt_world *world = open_world(0, "");
    int rank = world->rank, ranks = world->ranks;
    EXPECT(!vt_world_any(world, false));
    EXPECT(vt_world_any(world, true));
    EXPECT(vt_world_any(world, rank == ranks - 1));
    double values[3] = {rank, 1, 1e-17};
    vt_world_sum(world, values, 3);
    EXPECT_NEAR(values[0], ranks * (ranks - 1) / 2, 0);
    EXPECT_NEAR(values[1], ranks, 0);
    EXPECT_NEAR(values[2], ranks * 1e-17, 1e-30);
    char *text = rank == 0 ? vt_text_copy("runs/07") : rank == 1 ? vt_text_copy("something longer than that") : NULL;
    vt_world_broadcast_text(world, &text);
    EXPECT(text != NULL && strcmp(text, "runs/07") == 0, "'%s'", text);
    if (rank == 0) text[0] = '\0';
    vt_world_broadcast_text(world, &text);
    EXPECT(text != NULL && text[0] == '\0');
    if (rank == 0) {
        free(text);
        text = NULL;
    }
    vt_world_broadcast_text(world, &text);
    EXPECT(text == NULL);
    vt_world_close(&world, false);
}

TEST(refused)
{
    vt_launch launch;
    vt_world *world = NULL;
    SCOPED(vt_config) *config = default_config();
    EXPECT_OK(vt_launch_detect(&launch));
    EXPECT_OK(vt_config_set(config, "comm", "nccl"));
    vt_backend *backend = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 1, &backend));
    EXPECT_OK(vt_world_open(config, &launch, &world));
    EXPECT_ERROR(vt_world_open_device(config, world, backend), "NCCL connects GPUs");
    vt_world_close(&world, false);
    vt_backend_close(&backend);
    EXPECT_OK(vt_config_set(config, "comm", "auto"));
    launch.launcher = VT_LAUNCHER_TORCHRUN;
    if (launch.world_size > 1)
        EXPECT_ERROR(vt_world_open(config, &launch, &world), "mpirun -np");
    else
        EXPECT_OK(vt_world_open(config, &launch, &world));
    vt_world_close(&world, launch.world_size > 1);
    EXPECT_OK(vt_launch_detect(&launch));
    EXPECT_OK(vt_config_set(config, "tensor_parallel", "64"));
    EXPECT(vt_world_open(config, &launch, &world) == VT_ERROR);
    EXPECT_PART(vt_error_text(), "64");
    EXPECT(vt_world_speaks(world) == (launch.rank == 0));
    vt_error_clear();
    vt_world_close(&world, true);
}

TEST(dry)
{
    SCOPED(vt_config) *config = config_with(64, "tensor_parallel=4", "global_batch_size=64");
    vt_world *world = NULL;
    vt_group *group = NULL;
    EXPECT_OK(vt_world_open_dry(config, 13, 64, NULL, &world));
    EXPECT(world->coordinate[VT_AXIS_TENSOR] == 1 && world->coordinate[VT_AXIS_DATA] == 3);
    EXPECT_OK(vt_world_group(world, VT_AXES(VT_AXIS_TENSOR), VT_SCOPE_ALL, NULL, NULL, &group));
    EXPECT(group->size == 4 && group->rank == 1 && group->members[0] == 12);
    int64_t counts[4] = {8, 8, 8, 8};
    vt_request request = {0};
    vt_group_reduce_scatter(group, (float *)8, counts, &request); /* no memory is touched */
    EXPECT(!vt_request_test(&request));                           /* in progress until it is waited for */
    const size_t copies = 2 * 128;                                /* of 32 floats two */
    EXPECT(world->engine->copies == copies);
    vt_request_wait(&request);
    EXPECT(vt_request_test(&request) && world->engine->copies == 0 && world->engine->hole == copies / 2);
    vt_group_all_reduce(group, VT_SUM_FLOAT32, (void *)8, 100, NULL);
    EXPECT(world->engine->most_copies == 400 && world->engine->copies == 0 && world->engine->hole == copies / 2);
    EXPECT(group->volume.operations == 2);
    EXPECT_NEAR(group->volume.bytes, 0.75 * 128 + 2 * 0.75 * 400, 0);
    EXPECT(vt_world_agree(world, VT_OK) == VT_OK);
    vt_world_close(&world, false);
}
