/* src/planning: the machine's table, the arithmetic of a step's cost, and the search over layouts. */
#include "planning/layouts.h"

#include "settings.h"
#include "training/plan.h"
#include "unit/config_open.h"

/* A machine with round figures: 1 TFLOP/s, 100 GB/s, messages of 1 GB/s within a node and 0.1 GB/s a rank between. */
static vt_hardware simple_machine(void)
{
    vt_hardware machine = {.name = "simple",
                           .memory_gib = 4,
                           .reserved_gib = 1,
                           .ranks_per_node = 4,
                           .matrix_tflops = {1, 2},
                           .matrix_fraction = {1, 0.5},
                           .attention_fraction = {0.5, 0.25},
                           .head_multiple = 1,
                           .memory_gb_s = 100,
                           .memory_fraction = 1,
                           .within_gb_s = 1,
                           .within_us = 10,
                           .between_gb_s = 0.1,
                           .between_us = 100,
                           .overlap = 1};
    for (int i = 0; i < VT_WORK_COUNT; i++) machine.work_fraction[i] = 1;
    return machine;
}

/* ---- arithmetic ---- */

TEST(products_attention_and_memory)
{
    vt_hardware machine = simple_machine();
    vt_plan plan = {.group_count = 0};
    vt_cost cost;
    SCOPED(vt_config) *config = OPENED_ON(1, "--embed_dim=384", "--num_heads=8");
    plan.step.products[0] = (vt_dry_product){.flops = 1e12, .bytes = 1e9, .calls = 3}; /* bound by arithmetic: 1 s */
    plan.step.products[1] = (vt_dry_product){.flops = 1e6, .bytes = 2e11, .calls = 1}; /* by memory: 2 s */
    plan.step.product_count = 2;
    plan.step.attention_flops = 1e12; /* at 0.5 TFLOP/s */
    plan.step.moved[VT_WORK_GELU] = 1e11;
    plan.step.moved[VT_WORK_NORM] = 1e11;
    machine.work_fraction[VT_WORK_NORM] = 0.25;
    plan.step.operations = 1000;
    machine.operation_us = 500;
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.seconds[VT_COST_MATRIX], 3 + 2, 1e-9);
    EXPECT_NEAR(cost.seconds[VT_COST_ATTENTION], 2, 1e-9);
    EXPECT_NEAR(cost.seconds[VT_COST_MEMORY], 1 + 4, 1e-9);
    EXPECT_NEAR(cost.seconds[VT_COST_START], 0.5, 1e-9);
    EXPECT_NEAR(cost.step, 12.5, 1e-9);
    machine.head_multiple = 32; /* heads of 48 are computed as 64 */
    config->amp_mode = VT_AMP_BF16;
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.seconds[VT_COST_ATTENTION], 2 * 64.0 / 48, 1e-9);
    EXPECT(cost.bound == VT_COST_ATTENTION || cost.seconds[cost.bound] >= cost.seconds[VT_COST_ATTENTION]);
}

/* Of 9 s of computing the forward is a third, with recompute a quarter; what goes each way hides behind it. */
TEST(offloaded_activations_hide_behind_computing)
{
    vt_hardware machine = simple_machine();
    vt_plan plan = {.offloaded_bytes = 4e9};
    vt_cost cost;
    SCOPED(vt_config) *config = OPENED_ON(1, "--offload_activations=host");
    plan.step.moved[VT_WORK_GELU] = 9e11;
    plan.step.moved[VT_WORK_OPTIMIZER] = 5e11; /* hides nothing */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT(cost.seconds[VT_COST_LINK] == 0); /* not known */
    machine.host_gb_s = 1;                   /* 4 s out beside 3, 4 s back beside 6 */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.seconds[VT_COST_LINK], 1, 1e-9);
    EXPECT_NEAR(cost.step, 9 + 5 + 1, 1e-9);
    EXPECT_NEAR(cost.pass, 9 + 1, 1e-9);
    config->recompute = VT_RECOMPUTE_BLOCK; /* beside 2.25 and 6.75 */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.seconds[VT_COST_LINK], 1.75, 1e-9);
    machine.host_gb_s = 0.25; /* 16 s each way */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.seconds[VT_COST_LINK], 2 * 16 - 9, 1e-9);
    EXPECT(cost.bound == VT_COST_LINK && strcmp(vt_cost_names[cost.bound], "link") == 0);
    machine.host_gb_s = 4;
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT(cost.seconds[VT_COST_LINK] == 0);
}

TEST(messages_within_and_between_nodes)
{
    vt_hardware machine = simple_machine();
    vt_volume volume = {.operations = 100, .bytes = 1e9};
    EXPECT_NEAR(vt_cost_messages(&machine, 4, 4, &volume), 1 + 100 * 2 * 1e-5, 1e-9);    /* log2 4 doublings */
    EXPECT_NEAR(vt_cost_messages(&machine, 8, 1, &volume), 10 + 100 * 3 * 1e-4, 1e-9);   /* its own way out only */
    EXPECT_NEAR(vt_cost_messages(&machine, 16, 4, &volume), 2.5 + 100 * 4 * 1e-4, 1e-9); /* that of four ranks */
    machine.between_gb_s = 10;                                                           /* no faster than within */
    EXPECT_NEAR(vt_cost_messages(&machine, 16, 4, &volume), 1 + 100 * 4 * 1e-4, 1e-9);
}

/* 3 s of backward of a 4.5 s step may hide sums of gradients, but for the last bucket; other messages are waited for.
 */
TEST(reductions_hide_behind_backward)
{
    vt_hardware machine = simple_machine();
    vt_cost cost;
    vt_plan plan = {.group_count = 2,
                    .groups = {{.name = "dp of gradients", .size = 2, .in_node = 2, .volume = {.bytes = 2e9}},
                               {.name = "tp", .size = 2, .in_node = 2, .volume = {.bytes = 1e9}}}};
    SCOPED(vt_config) *config = OPENED_ON(1, "--bucket_cap_mb=25");
    plan.bytes[VT_MEMORY_GRADIENTS] = 4 * 25 * 1024 * 1024; /* four buckets */
    plan.step.moved[VT_WORK_GELU] = 4.5e11;
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.hidden, 1.5, 1e-9);
    EXPECT_NEAR(cost.seconds[VT_COST_COMMUNICATION], 1 + 0.5, 1e-9);
    machine.overlap = 0.1; /* of backward's 3 s */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.hidden, 0.3, 1e-9);
    config->zero_stage = 1; /* half of it is the gathering of new values, behind the update */
    machine.overlap = 1;
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.hidden, 0.75, 1e-9);
    config->zero_stage = 0;
    config->grad_accumulation = 9; /* only the last micro-batch's backward: 1/3 s */
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.hidden, 1.0 / 3, 1e-9);
}

/* Four stages, eight micro-batches: spec's step is the sum of the passes, seven times the longest, the messages that
 * fill and empty the pipeline, and what of the others is not hidden. */
TEST(stages_fill_and_empty)
{
    vt_hardware machine = simple_machine();
    vt_cost cost;
    vt_plan plan = {.group_count = 1, .groups = {{.name = "pp of stages 0", .size = 2, .in_node = 2}}};
    SCOPED(vt_config) *config = OPENED_ON(4, "--pipeline_parallel=4", "--grad_accumulation=8");
    plan.step.moved[VT_WORK_GELU] = 8e11; /* a second for each micro-batch */
    plan.step.moved[VT_WORK_OPTIMIZER] = 5e10;
    plan.groups[0].volume = (vt_volume){.operations = 8, .bytes = 8e8};
    machine.within_us = 0;
    machine.overlap = 0.75;
    EXPECT(vt_traffic_of(plan.groups[0].name) == VT_TRAFFIC_PIPELINE);
    vt_cost_of(config, &machine, &plan, &cost);
    EXPECT_NEAR(cost.pass, 1, 1e-9);
    EXPECT_NEAR(cost.hop, 0.1, 1e-9);
    EXPECT_NEAR(cost.step, 8.5, 1e-9);
    vt_cost_add_stages(config, &machine, 3.75, &cost); /* the others are a little shorter */
    EXPECT_NEAR(cost.seconds[VT_COST_BUBBLE], 2.75 + 2 * 3 * 0.1, 1e-9);
    EXPECT_NEAR(cost.step, 3.75 + 7 * 1 + 2 * 3 * 0.1 + 2 * 7 * 0.25 * 0.1 + 0.5, 1e-9);
}

/* ---- counts ---- */

static const vt_plan_options first_rank = {0};

static vt_plan plan_of(const vt_config *config)
{
    vt_plan plan = {0};
    EXPECT_OK(vt_plan_make(config, &first_rank, &plan));
    return plan;
}

/* What a run says that it needs, and is refused without, holds MPI's own copies, as a plan's memory does. */
TEST(a_run_needs_what_is_planned)
{
    vt_plan plan;
    char parts[256];
    double own = 0;
    SCOPED(vt_config) *config = OPENED_ON(2, "--img_size=[16,32]", "--embed_dim=32", "--depth=2", "--zero_stage=1");
    plan = plan_of(config);
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) own += (double)plan.bytes[i];
    EXPECT(plan.message_bytes > 0);
    EXPECT_NEAR(vt_plan_total(&plan), own + (double)plan.message_bytes, 0);
    EXPECT_ERROR(vt_budget_check(config, &first_rank, &plan, own, true), "of memory (parameters");
    plan = (vt_plan){.message_bytes = 3 << 20};
    vt_plan_describe(&plan, parts, sizeof parts);
    EXPECT_TEXT(parts, "workspace 3.00 MB");
}

/* keep_outputs: auto keeps them on a GPU that has room for them, beside the data and a tenth. */
TEST(outputs_are_kept_where_they_fit)
{
    static const char *const set[] = {"auto", "true", "false"};
    const vt_plan_options on_gpu = {.device_memory = true};
    for (int i = 0; i < 3; i++) {
        SCOPED(vt_config) *config =
            config_with(1, "img_size=[16,32] embed_dim=32 depth=2", SETTINGS("keep_outputs=%s", set[i]));
        const int given = config->keep_outputs, kept = VT_KEEP_TRUE;
        vt_config with = *config;
        vt_plan least, most, plan;
        with.keep_outputs = kept;
        EXPECT_OK(vt_plan_make(config, &on_gpu, &least));
        EXPECT_OK(vt_plan_make(&with, &on_gpu, &most));
        const double data = 5e6, enough = (vt_plan_total(&most) + data) / 0.9 + 1;
        EXPECT((vt_plan_total(&most) > vt_plan_total(&least)) == (i != 1));
        for (int fits = 0; fits < 2; fits++) {
            plan = least;
            config->keep_outputs = given;
            EXPECT_OK(vt_budget_keep_outputs(config, &on_gpu, data, fits ? enough : enough - 2, &plan));
            EXPECT(config->keep_outputs == (fits && i == 0 ? kept : given));
            EXPECT_NEAR(vt_plan_total(&plan), vt_plan_total(fits && i == 0 ? &most : &least), 0);
        }
        config->keep_outputs = given;
        EXPECT_OK(vt_budget_keep_outputs(config, &first_rank, data, enough, &plan)); /* a CPU: as it was */
        EXPECT(config->keep_outputs == given);
    }
}

/* What would save memory is named only if the run would be accepted with it: 8 tokens are too few for 16 ranks. */
TEST(a_larger_patch_leaves_each_rank_a_token)
{
    vt_plan plan;
    for (int i = 0; i < 2; i++) {
        SCOPED(vt_config) *config =
            config_with(16,
                        "img_size=[16,32] patch_size=4 embed_dim=8 depth=1 n_in_channels=1 n_out_channels=1 "
                        "recompute=block prefetch=1 global_batch_size=64",
                        i == 0 ? "context_parallel=8" : "context_parallel=16");
        plan = plan_of(config);
        EXPECT(vt_budget_check(config, &first_rank, &plan, 1, true) == VT_ERROR);
        EXPECT((strstr(vt_error_text(), "--patch_size=8") != NULL) == (i == 0), "%s", vt_error_text());
        vt_error_clear();
    }
}

/* The published arithmetic of the model: 0.536 + 0.907 = 1.443 TFLOP a sample. */
TEST(flops_of_a_sample)
{
    vt_plan plan;
    SCOPED(vt_config) *config = OPENED_ON(1, "--global_batch_size=2");
    plan = plan_of(config);
    EXPECT_NEAR(plan.step.flops / 2, 1.443e12, 0.0005e12);
    EXPECT_NEAR(plan.step.attention_flops / 2, 0.907e12, 0.0005e12);
    double products = 0;
    for (int i = 0; i < plan.step.product_count; i++)
        products += (double)plan.step.products[i].calls * plan.step.products[i].flops;
    EXPECT_NEAR(products / 2, 0.536e12, 0.0005e12);
}

/* Bytes that one LayerNorm's forward, GELU's and Adam's update move. */
TEST(bytes_of_operations)
{
    SCOPED(vt_backend) *dry = NULL;
    const vt_update update = {.kind = VT_OPTIMIZER_Adam};
    vt_matrix x = vt_matrix_make((float *)256, 10, 16), half = x;
    half.type = VT_BFLOAT16;
    EXPECT_OK(vt_backend_open_dry(&dry));
    const vt_dry_count *count = vt_backend_dry_count(dry);
    dry->layer_norm_forward(dry, x, NULL, NULL, 1e-6f, half, NULL, NULL);
    dry->gelu_forward(dry, VT_GELU_ERF, half, half);
    dry->update(dry, &update, NULL, NULL, NULL, NULL, NULL, NULL, 100);
    dry->update(dry, &update, NULL, NULL, NULL, half.half, NULL, NULL, 100);
    EXPECT_NEAR(count->moved[VT_WORK_NORM], 160 * (4 + 2), 0);
    EXPECT_NEAR(count->moved[VT_WORK_GELU], 160 * (2 + 2), 0);
    EXPECT_NEAR(count->moved[VT_WORK_OPTIMIZER], 7 * 400 + 7 * 400 + 200, 0); /* reads 4, writes 3 */
    EXPECT(count->operations == 4 && count->product_count == 0 && count->flops == 0);
}

static double messages_of(const vt_plan *plan, int64_t *operations)
{
    double bytes = 0;
    *operations = 0;
    for (int i = 0; i < plan->group_count; i++) {
        bytes += plan->groups[i].volume.bytes;
        *operations += plan->groups[i].volume.operations;
    }
    return bytes;
}

/* Each further micro-batch adds the same: a step of many lies on the line through steps of four and five. */
TEST(steps_of_many_micro_batches)
{
    enum { PARTS = 3 };
    static const int parts[PARTS] = {4, 5, 12};
    vt_plan plan[PARTS];
    double bytes[PARTS], moved[PARTS];
    int64_t operations[PARTS];
    for (int i = 0; i < PARTS; i++) {
        SCOPED(vt_config) *config =
            config_with(4, "img_size=[16,32] embed_dim=32 depth=3 zero_stage=2 tensor_parallel=2 num_heads=4",
                        SETTINGS("grad_accumulation=%d global_batch_size=%d", parts[i], 4 * parts[i]));
        plan[i] = plan_of(config);
        bytes[i] = messages_of(&plan[i], &operations[i]);
        moved[i] = 0;
        for (int w = 0; w < VT_WORK_COUNT; w++) moved[i] += plan[i].step.moved[w];
    }
    EXPECT_NEAR(plan[2].step.flops, 8 * plan[1].step.flops - 7 * plan[0].step.flops, 1e-6 * plan[2].step.flops);
    EXPECT_NEAR(moved[2], 8 * moved[1] - 7 * moved[0], 1e-6 * moved[2]);
    EXPECT_NEAR(bytes[2], 8 * bytes[1] - 7 * bytes[0], 1e-6 * bytes[2]);
    EXPECT(operations[2] == 8 * operations[1] - 7 * operations[0]);
    EXPECT(plan[2].step.operations == 8 * plan[1].step.operations - 7 * plan[0].step.operations);
    EXPECT(plan[2].arena_bytes == plan[1].arena_bytes);
}

/* ---- layouts ---- */

TEST(search_over_layouts)
{
    vt_layouts layouts;
    vt_hardware machine = simple_machine();
    bool seen[3] = {false};
    int staged = 0;
    SCOPED(vt_config) *config =
        OPENED_ON(4, "--img_size=[16,32]", "--embed_dim=32", "--depth=2", "--num_heads=2", "--zero_stage=1");
    EXPECT_OK(vt_layouts_plan(config, &machine, &layouts));
    for (int64_t i = 0; i < layouts.count; i++) {
        const vt_option_cost *o = &layouts.options[i];
        EXPECT(o->tensor * o->context * o->pipeline * o->data == 4 && o->tensor <= 2);
        EXPECT(o->zero == 1); /* as the command line says */
        EXPECT(o->data * o->accumulation * o->micro_batch == 16);
        EXPECT(i == 0 || o->cost.step >= layouts.options[i - 1].cost.step);
        EXPECT(o->fits == (o->total <= 3.0 * 1024 * 1024 * 1024));
        seen[o->tensor == 2 ? 0 : o->context == 2 ? 1 : 2] = true;
        staged += o->pipeline > 1;
    }
    EXPECT(layouts.count > 10 && seen[0] && seen[1] && seen[2] && staged > 0);
    vt_layouts_close(&layouts);
    config->num_heads = 1;
    config->pipeline_parallel = 1;
    config->origin[VT_OPTION_pipeline_parallel] = VT_FROM_COMMAND_LINE;
    config->context_parallel = 3;
    config->origin[VT_OPTION_context_parallel] = VT_FROM_COMMAND_LINE;
    EXPECT_ERROR(vt_layouts_plan(config, &machine, &layouts), "no layout of 4 ranks divides");
}

/* The memory of a pipeline's layout is that of the stage that needs most, which is named. */
TEST(the_stage_that_needs_most)
{
    vt_option_cost option;
    vt_hardware machine = simple_machine();
    double most = 0;
    SCOPED(vt_config) *config = OPENED_ON(4, "--img_size=[16,32]", "--embed_dim=32", "--depth=6", "--num_heads=2",
                                          "--pipeline_parallel=4", "--grad_accumulation=8");
    EXPECT_OK(vt_layouts_cost(config, &machine, &option));
    for (int rank = 0; rank < 4; rank++) {
        vt_plan plan = {0};
        EXPECT_OK(vt_plan_make(config, &(vt_plan_options){.rank = rank, .device_memory = true}, &plan));
        if (vt_plan_total(&plan) > most) EXPECT(option.stage >= rank);
        most = fmax(most, vt_plan_total(&plan));
    }
    EXPECT_NEAR(option.total, most, 0);
    EXPECT(option.pipeline == 4 && option.cost.seconds[VT_COST_BUBBLE] > 0.15 * option.cost.step);
}

/* What doesn't fit is there once, with the micro-batch from which on it doesn't. */
TEST(layouts_that_do_not_fit)
{
    SCOPED(vt_layouts) layouts;
    vt_hardware machine = simple_machine();
    int64_t fitting = 0;
    SCOPED(vt_config) *config = OPENED_ON(1, "--recompute=none");
    EXPECT_OK(vt_layouts_plan(config, &machine, &layouts)); /* 3 GiB; a sample takes 0.8 GB */
    for (int64_t i = 0; i < layouts.count; i++) fitting += layouts.options[i].fits;
    EXPECT(fitting > 0 && layouts.count == fitting + 1, "%ld of %ld", fitting, layouts.count);
}

/* ---- the table ---- */

TEST(hardware_file)
{
    vt_hardware machine = simple_machine(), again;
    const char *path = test_path("machine.yaml");
    EXPECT_OK(vt_hardware_write(&machine, "# a comment\n", path));
    EXPECT_OK(vt_hardware_read(path, &again));
    EXPECT(strcmp(again.name, "simple") == 0 && again.kind == VT_MACHINE_GPU);
    EXPECT_NEAR(again.between_gb_s, 0.1, 1e-6);
    EXPECT_NEAR(again.matrix_fraction[VT_BFLOAT16], 0.5, 0);
    EXPECT_NEAR(again.matrix_tflops[VT_FLOAT16], 2, 0); /* not given: as bf16 */
    EXPECT_NEAR(again.attention_fraction[VT_FLOAT16], 0.25, 0);
    machine.matrix_tflops[VT_FLOAT16] = 0.5;
    machine.work_fraction[VT_WORK_OPTIMIZER] = 15.6; /* in caches, while others use the memory */
    EXPECT_OK(vt_hardware_write(&machine, "", path));
    EXPECT_OK(vt_hardware_read(path, &again));
    EXPECT_NEAR(again.matrix_tflops[VT_FLOAT16], 0.5, 0);
    EXPECT_NEAR(again.matrix_fraction[VT_FLOAT16], 0.5, 0);
    EXPECT_NEAR(again.work_fraction[VT_WORK_OPTIMIZER], 15.6, 1e-5);
    static const char *const known[] = {"h100-sxm", "h200-sxm", "a100-40", "a100-80", "h100-nvl", "cpu"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        EXPECT_OK(vt_hardware_read(known[i], &again));
        EXPECT(strcmp(again.name, known[i]) == 0 && (again.kind == VT_MACHINE_CPU) == (strcmp(known[i], "cpu") == 0));
    }
    EXPECT_NEAR(again.work_fraction[VT_WORK_GELU], again.memory_fraction, 0); /* where a class has none of its own */
}

TEST(hardware_files_that_are_refused)
{
    vt_hardware machine;
    EXPECT_ERROR(vt_hardware_read("h100", &machine),
                 "'h100' is not in config/hardware.yaml, which holds gpu, h100-sxm");
    EXPECT_ERROR(vt_hardware_read("./nothing.yaml", &machine), "nothing.yaml");
    EXPECT_ERROR(vt_hardware_read(write_yaml("m:\n  memory_gb: 80\n"), &machine),
                 "c.yaml:2:3: unknown key 'memory_gb'; did you mean 'memory_gib'?");
    EXPECT_ERROR(vt_hardware_read(write_yaml("m:\n  memory_gib: -1\n"), &machine),
                 "c.yaml:2:15: memory_gib: -1 is out of range (expected 0.001 to");
    EXPECT_ERROR(vt_hardware_read(write_yaml("m:\n  kind: tpu\n"), &machine),
                 "c.yaml:2:9: kind: 'tpu' is not one of the choices (expected gpu|cpu)");
    EXPECT_ERROR(vt_hardware_read(write_yaml("m: {memory_gib: 1}\n"), &machine), "'m' lacks ranks_per_node");
    EXPECT_ERROR(vt_hardware_read(write_yaml("m: {}\nn: {}\n"), &machine), "the file holds m, n; add which");
}
