/* What a step sends, counted with the dry engine, against the formulas of docs/parallelism.md: 64 ranks of a model of
 * real size. */
#include "communication_formulas.h"

#include "training/plan.h"
#include "unit/config_open.h"

/* Ranks with spans of tokens of every size, also next to a smaller one. */
static const int ranks_tried[] = {0, 5, 24, 31, 47, 63};

static void check_rank(const vt_config *config, int rank, const int *node_of, const char *what)
{
    vt_world *world = NULL;
    vt_plan plan;
    vt_volume expected[VT_TRAFFIC_COUNT];
    EXPECT_OK(vt_world_open_dry(config, rank, (int)config->ranks, node_of, &world));
    const vt_plan_options planned = vt_plan_options_of(world, NULL);
    EXPECT_OK(vt_plan_make(config, &planned, &plan));
    communication_by_formula(config, world, expected);
    for (vt_traffic i = 0; i < VT_TRAFFIC_COUNT; i++) {
        const vt_volume *counted = &plan.communication[i];
        double bytes = counted->bytes - counted->padding;
        EXPECT(fabs(bytes - expected[i].bytes) <= 1e-12 * expected[i].bytes,
               "%s, rank %d: %s: %.0f bytes, expected %.0f", what, rank, vt_traffic_name(i), bytes, expected[i].bytes);
        EXPECT(counted->padding >= 0 && counted->padding <= 2e-3 * bytes);
        if (i != VT_TRAFFIC_GRADIENTS)
            EXPECT(counted->operations == expected[i].operations, "%s, rank %d: %s: %lld operations, expected %lld",
                   what, rank, vt_traffic_name(i), (long long)counted->operations, (long long)expected[i].operations);
    }
    vt_world_close(&world, false);
}

/* `ranks_per_node` 0: one node. */
static void check_layout(const char *what, int ranks_per_node, const char *const *flags)
{
    vt_config *config = NULL;
    int node_of[64];
    EXPECT_OK(open_on_ranks(64, NULL, &config, flags));
    if (config == NULL) return;
    for (int rank = 0; rank < 64; rank++) node_of[rank] = ranks_per_node > 0 ? rank / ranks_per_node : 0;
    for (size_t i = 0; i < sizeof ranks_tried / sizeof ranks_tried[0]; i++)
        check_rank(config, ranks_tried[i], node_of, what);
    vt_config_close(&config);
}
#define CHECK_LAYOUT(ranks_per_node, ...)                                                                              \
    check_layout(#__VA_ARGS__, ranks_per_node,                                                                         \
                 (const char *const[]){"--embed_dim=1024", "--depth=3", "--global_batch_size=128", __VA_ARGS__, NULL})

TEST(activations_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=8");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--sequence_parallel");
    CHECK_LAYOUT(0, "--context_parallel=64");
    CHECK_LAYOUT(0, "--context_parallel=64", "--cp_comm=ring");
    CHECK_LAYOUT(0, "--context_parallel=64", "--patch_size=7", "--pad=wrap", "--missing=mask", "--mask_channels");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=8", "--recompute=block");
    CHECK_LAYOUT(0, "--tensor_parallel=2", "--context_parallel=8", "--sequence_parallel", "--cp_comm=ring",
                 "--recompute=block", "--grad_accumulation=2");
}

TEST(stages_send_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8");
    CHECK_LAYOUT(0, "--pipeline_parallel=2", "--grad_accumulation=4", "--recompute=block", "--pipeline_schedule=gpipe");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8", "--tensor_parallel=4", "--context_parallel=2");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8", "--tensor_parallel=4", "--sequence_parallel",
                 "--context_parallel=2", "--cp_comm=ring", "--parallel_order=pp-tp-cp-dp");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=2", "--zero_stage=1", "--amp_mode=bf16",
                 "--pipeline_comm=bf16");
    CHECK_LAYOUT(0, "--pipeline_parallel=8", "--depth=12", "--grad_accumulation=8", "--tensor_parallel=2",
                 "--context_parallel=2", "--parallel_order=cp-pp-tp-dp");
    CHECK_LAYOUT(8, "--pipeline_parallel=4", "--grad_accumulation=2", "--zero_stage=1", "--zero_group=node",
                 "--parallel_order=dp-tp-cp-pp");
    CHECK_LAYOUT(0, "--pipeline_parallel=64", "--depth=62", "--grad_accumulation=16", "--embed_dim=64");
}

TEST(bf16_activations_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--amp_mode=bf16");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--amp_mode=bf16", "--sequence_parallel",
                 "--cp_comm=ring");
}

TEST(gradients_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--bucket_cap_mb=1");
    CHECK_LAYOUT(0, "--bucket_cap_mb=100", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=1", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=2", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=3");
    CHECK_LAYOUT(0, "--zero_stage=3", "--grad_accumulation=2", "--recompute=block");
    CHECK_LAYOUT(0, "--noddp");
}

TEST(gradients_over_several_axes_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=2", "--sequence_parallel", "--zero_stage=1");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--zero_stage=3", "--parallel_order=dp-cp-tp");
    CHECK_LAYOUT(8, "--zero_stage=2", "--zero_group=node");
    CHECK_LAYOUT(16, "--tensor_parallel=2", "--context_parallel=2", "--zero_stage=3", "--zero_group=node");
    CHECK_LAYOUT(4, "--tensor_parallel=4", "--zero_stage=2", "--zero_group=node", "--grad_accumulation=2");
}
