/* What the ranks of an MPI run send in a step is what the dry engine said before, to the operation and byte;
 * unit/communication.c compares that with the formulas of docs/parallelism.md. */
#include "parallel/world.h"

#include "config/stages.h"
#include "rig.h"
#include "training/plan.h"

enum { HEIGHT = 36, WIDTH = 36, CHANNELS = 2, BATCH = 8, PATCH = 4, LONGEST = 3 };

static void compare(const vt_volume *counted, const vt_volume *planned, const char *what)
{
    for (vt_traffic i = 0; i < VT_TRAFFIC_COUNT; i++) {
        EXPECT(counted[i].operations == planned[i].operations && counted[i].bytes == planned[i].bytes,
               "%s: %s: %ld operations, %.0f bytes; the dry engine has %ld, %.0f", what, vt_traffic_names[i],
               counted[i].operations, counted[i].bytes, planned[i].operations, planned[i].bytes);
        EXPECT(counted[i].seconds >= 0 && (counted[i].operations > 0 || counted[i].seconds == 0));
    }
}

/* All that this rank's groups have counted since they were made: the difference over a step is the step's. */
static void take_counts(const vt_world *world, vt_volume counted[VT_TRAFFIC_COUNT])
{
    memset(counted, 0, VT_TRAFFIC_COUNT * sizeof *counted);
    for (int i = 0; i < world->group_count; i++) {
        const vt_group *group = world->groups[i];
        vt_volume_add(&counted[vt_traffic_of(group->name)], &group->volume, 1);
    }
}

static void check(const char *settings)
{
    static const char common[] = "img_size=[36,36] patch_size=4 n_in_channels=2 n_out_channels=2 embed_dim=64 depth=2 "
                                 "num_heads=8 num_iters=10 bucket_cap_mb=0.01 global_batch_size=8";
    static float fields[BATCH * LONGEST * CHANNELS * HEIGHT * WIDTH];
    SCOPED(rig) r = {.config = config_with(vt_test_engine->size, common, settings)};
    vt_launch launch;
    vt_plan plan;
    vt_volume before[VT_TRAFFIC_COUNT], counted[VT_TRAFFIC_COUNT];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) fields[i] = (float)sin(0.37 * (double)i);
    EXPECT_OK(vt_launch_detect(&launch));
    EXPECT_OK(vt_world_open(r.config, &launch, &r.world));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &r.backend));
    const vt_plan_options planned = vt_plan_options_of(r.world, r.backend);
    EXPECT_OK(vt_plan_make(r.config, &planned, &plan));
    EXPECT_OK(rig_open(&r, NULL, NULL, false));
    vt_batch batch = {.sample_count = BATCH / r.config->data_parallel,
                      .global_count = BATCH,
                      .steps = vt_config_longest_rollout(r.config),
                      .tensors = {fields, fields}};
    for (int step = 0; step < 2; step++) { /* the second is as the first */
        take_counts(r.world, before);
        rig_train(&r, &batch, 1);
        take_counts(r.world, counted);
        for (int i = 0; i < VT_TRAFFIC_COUNT; i++) vt_volume_add(&counted[i], &before[i], -1);
        compare(counted, plan.communication, settings);
    }
}

TEST(steps_send_what_was_planned)
{
    const int all = vt_test_engine->size;
    if (all == 3) return vt_test_skip("the model's sizes are powers of two");
    check("zero_stage=0");
    check("zero_stage=1");
    check("zero_stage=2");
    check("zero_stage=3");
    check(SETTINGS("tensor_parallel=%d", all));
    check(SETTINGS("tensor_parallel=%d sequence_parallel=true", all));
    check(SETTINGS("context_parallel=%d", all));
    check(SETTINGS("context_parallel=%d cp_comm=ring", all));
    check(SETTINGS("patch_size=5 pad=wrap missing=mask mask_channels=true context_parallel=%d", all));
}

TEST(stages_send_what_was_planned)
{
    const int all = vt_test_engine->size;
    if (all == 1 || all == 3) return vt_test_skip("one rank has one stage, and the model's sizes are powers of two");
    check(SETTINGS("pipeline_parallel=%d depth=6 grad_accumulation=8", all));
    check("pipeline_parallel=2 grad_accumulation=2 zero_stage=1 pipeline_schedule=gpipe amp_mode=bf16");
    if (all >= 4) check("pipeline_parallel=2 tensor_parallel=2 sequence_parallel=true grad_accumulation=4");
    if (all == 8) check("pipeline_parallel=2 context_parallel=2 grad_accumulation=4 parallel_order=dp-pp-cp");
    check("pipeline_parallel=2 grad_accumulation=2 rollout=3 predict=tendency zero_stage=1");
    if (all >= 4) check("pipeline_parallel=2 tensor_parallel=2 grad_accumulation=2 rollout=2 recompute=block");
    if (all == 8) check("pipeline_parallel=4 context_parallel=2 grad_accumulation=8 rollout=3 rollout_gradient=last");
}

TEST(steps_on_mixed_layouts_send_what_was_planned)
{
    if (vt_test_engine->size % 4 != 0) return vt_test_skip("needs 4 or 8 ranks");
    check("tensor_parallel=2 context_parallel=2 sequence_parallel=true recompute=block");
    check("tensor_parallel=2 zero_stage=3 grad_accumulation=2 parallel_order=dp-tp-cp");
    check("context_parallel=2 zero_stage=2 grad_accumulation=2 cp_comm=ring amp_mode=bf16");
}
