/* Training over ranks is the training of one: every layout that these ranks can have, against the same model on one
 * rank, in float32, as docs/parallelism.md promises. */
#include "beside_one.h"
#include "config/stages.h"

enum { MOST_IN = 4, OUT = 2 };
static int64_t batch_size = 8; /* 6 on three ranks */

static float number(uint32_t seed, int64_t index)
{
    uint32_t x = (uint32_t)index * 2654435761u + seed * 40503u + 977u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((double)x / 2147483648.0 - 1);
}

static bool is_missing(uint32_t seed, int64_t channels, int64_t plane, int64_t point)
{
    const bool target = seed == 2;
    return number(seed + 7, plane * HEIGHT * WIDTH + point) > 0.6f || plane == channels + 1 ||
           (target && plane / channels == 5);
}

/* Samples first … of fields [channels, HEIGHT, WIDTH], of which `rows` are taken. gaps: points are missing, all of them
 * in the target of sample 5. */
static float *make_fields(uint32_t seed, int64_t channels, int64_t first, int64_t count, vt_span rows, bool gaps)
{
    float *fields = vt_test_owned(malloc((size_t)(count * channels * rows.count * WIDTH + 1) * sizeof *fields));
    float *to = fields;
    for (int64_t plane = first * channels; plane < (first + count) * channels; plane++)
        for (int64_t row = rows.first; row < rows.first + rows.count; row++)
            for (int64_t x = 0; x < WIDTH; x++) {
                const bool missing = gaps && is_missing(seed, channels, plane, row * WIDTH + x);
                *to++ = missing ? NAN : number(seed, (plane * HEIGHT + row) * WIDTH + x);
            }
    return fields;
}

static bool chains; /* the engine takes operations that come behind others, as NCCL does */

static bool chain_by_waiting(vt_request *request, const vt_group *next)
{
    EXPECT(next->engine == request->group->engine);
    vt_request_wait(request);
    return true;
}

static void open_world(side *s, const char *settings, const vt_launch *launch)
{
    static const char common[] = "img_size=[20,12] patch_size=4 n_in_channels=3 n_out_channels=2 embed_dim=32 depth=2 "
                                 "num_heads=4 num_iters=10 lr=1e-3 bucket_cap_mb=0.01";
    *s = (side){.rig = {.config = config_with(launch->world_size, common,
                                              SETTINGS("global_batch_size=%ld %s", batch_size, settings))}};
    EXPECT_OK(vt_world_open(s->rig.config, launch, &s->rig.world));
    s->rig.world->engine->chain = chains ? chain_by_waiting : NULL;
    EXPECT_OK(open_watched_cpu(&s->rig.backend));
}

static vt_status open_trainer(side *s)
{
    static const float means[MOST_IN] = {0.1f, 0.2f, -0.1f}, stds[MOST_IN] = {1, 1.5f, 0.7f, 1};
    return rig_open(&s->rig, means, stds, false);
}

static void open_side(side *s, const char *settings, const vt_launch *launch)
{
    open_world(s, settings, launch);
    EXPECT_OK(open_trainer(s));
    const vt_config *config = s->rig.config;
    const int64_t local = batch_size / config->data_parallel, first = local * s->rig.world->coordinate[VT_AXIS_DATA];
    const int64_t rollout = vt_config_longest_rollout(config);
    const vt_span rows = vt_model_part(config, &s->rig.world->layout, s->rig.world->rank);
    const bool gaps = config->missing == VT_GAPS_MASK;
    s->batch = (vt_batch){.sample_count = local,
                          .global_count = batch_size,
                          .first_sample = first,
                          .first_in_batch = first,
                          .steps = rollout,
                          .tensors = {make_fields(1, config->n_in_channels, first, local, rows, gaps),
                                      make_fields(2, rollout * OUT, first, local, rows, gaps)}};
}

static void beside_one(const char *model, const char *layout)
{
    compare_with_one(SETTINGS("global_batch_size=%ld %s", batch_size, model), layout, open_side);
}

static const char plain[] = "";
static const char random_model[] = "dropout=0.2";

/* Every split of these ranks over the three axes. */
static void over_layouts(const char *model, const char *more)
{
    static const int numbers[] = {1, 2, 3, 4, 8};
    static const char *const orders[] = {"tp-cp-dp", "dp-cp-tp", "cp-tp-dp"};
    const int ranks = vt_test_engine->size;
    int layouts = 0;
    batch_size = ranks == 3 ? 6 : 8;
    for (int t = 0; t < 5; t++) {
        for (int c = 0; c < 5; c++) {
            if (4 % numbers[t] != 0 || ranks % (numbers[t] * numbers[c]) != 0) continue; /* four heads */
            const char *layout = SETTINGS("tensor_parallel=%d context_parallel=%d parallel_order=%s %s", numbers[t],
                                          numbers[c], orders[layouts++ % 3], more);
            beside_one(model, layout);
        }
    }
}

/* Every split of these ranks with stages. */
static void over_pipelines(const char *model, const char *more)
{
    static const char *const orders[] = {"tp-cp-dp", "tp-pp-cp-dp", "pp-dp-cp-tp", "dp-cp-tp"};
    const int ranks = vt_test_engine->size;
    int layouts = 0;
    batch_size = ranks == 3 ? 6 : 8;
    for (int stages = 2; stages <= ranks; stages++)
        for (int t = 1; t <= 4; t *= 2)
            for (int c = 1; c <= ranks; c++) {
                if (ranks % (stages * t * c) != 0) continue;
                const int64_t local = batch_size * stages * t * c / ranks;
                const char *layout =
                    SETTINGS("tensor_parallel=%d context_parallel=%d pipeline_parallel=%d parallel_order=%s "
                             "grad_accumulation=%d %s",
                             t, c, stages, orders[layouts++ % 4], (int)local, more);
                beside_one(SETTINGS("depth=6 %s", model), layout);
            }
}

TEST(layouts_with_stages)
{
    over_pipelines(random_model, plain);
    over_pipelines(random_model, "sequence_parallel=true cp_comm=ring zero_stage=1");
    over_pipelines("dropout=0.1 ema_decay=0.7 grad_clip=0.5 recompute=block predict=tendency n_in_channels=2",
                   "zero_stage=1 pipeline_schedule=gpipe");
}

/* What a rank has of one that has all: to the bit. */
static void compare_bits(const side *one, const side *many, const char *what)
{
    const vt_parameters *whole = rig_parameters(&one->rig), *parts = rig_parameters(&many->rig);
    const vt_optimizer *optimizers[2] = {vt_trainer_subject(one->rig.trainer).optimizer,
                                         vt_trainer_subject(many->rig.trainer).optimizer};
    int64_t compared = 0;
    for (int64_t i = 0; i < whole->count; i++) {
        const vt_parameter *a = whole->list[i], *b = parts->list[i];
        const size_t bytes = (size_t)b->count * sizeof(float);
        EXPECT(strcmp(a->name, b->name) == 0 && (b->count == 0 || b->count == a->count));
        if (b->count == 0) continue;
        compared++;
        EXPECT(memcmp(a->value, b->value, bytes) == 0, "%s: %s", what, a->name);
        for (int m = 0; m < VT_KEPT_PLACES; m++) {
            const vt_kept_place *places[] = {&optimizers[0]->kept->places[m], &optimizers[1]->kept->places[m]};
            if (places[0]->state == NULL) continue;
            EXPECT(memcmp(places[0]->memory.numbers + a->offset, places[1]->memory.numbers + b->offset, bytes) == 0,
                   "%s: moment %d of %s", what, m, a->name);
        }
    }
    EXPECT(compared > 0);
}

/* Stages alone are one rank to the bit. */
static void compare_pipeline(const char *model, const char *pipeline)
{
    enum { MANY_STEPS = 10 };
    vt_launch launch, alone = {.world_size = 1, .local_size = 1};
    EXPECT_OK(vt_launch_detect(&launch));
    SCOPED(side) one, many;
    batch_size = 8;
    open_side(&one, SETTINGS("depth=6 %s", model), &alone);
    open_side(&many, SETTINGS("depth=6 pipeline_parallel=%d %s %s", launch.world_size, model, pipeline), &launch);
    for (int step = 0; step < MANY_STEPS; step++) {
        vt_step_figures expected, actual;
        EXPECT_OK(vt_step_train(one.rig.trainer, &one.batch, &expected));
        EXPECT_OK(vt_step_train(many.rig.trainer, &many.batch, &actual));
        EXPECT(actual.loss == expected.loss, "%s: step %d: loss %.17g, expected %.17g", model, step, actual.loss,
               expected.loss);
    }
    compare_bits(&one, &many, model);
}

TEST(stages_alone_are_one_rank_to_the_bit)
{
    static const char *const uneven[] = {[2] = "[0,6]", [3] = "[5,1,0]", [4] = "[0,1,5,0]", [8] = "[0,1,1,1,1,1,1,0]"};
    const int ranks = vt_test_engine->size;
    if (ranks == 1) return vt_test_skip("one rank has one stage");
    compare_pipeline("grad_accumulation=8", plain);
    compare_pipeline("grad_accumulation=4 dropout=0.2 recompute=block", "pipeline_schedule=gpipe");
    compare_pipeline("grad_accumulation=2 dropout=0.2 amp_mode=bf16 ema_decay=0.9", plain);
    compare_pipeline("grad_accumulation=8 amp_mode=fp16 recompute=block enable_jit=true",
                     SETTINGS("pipeline_split=%s", uneven[ranks]));
    compare_pipeline("grad_accumulation=1 optimizer=SGD", SETTINGS("pipeline_split=%s", uneven[ranks]));
}

TEST(layouts_train_as_one_rank)
{
    over_layouts(plain, plain);
}

/* Whose spans of tokens end in the middle of a row of patches, the last ones beyond the grid's edge. */
TEST(layouts_with_gaps_and_padding)
{
    const char rows[] = "patch_size=3 pad=edge missing=mask";
    const char columns[] = "patch_size=5 pad=wrap missing=mask mask_channels=true recompute=block";
    over_layouts(rows, plain);
    over_layouts(columns, "sequence_parallel=true");
    over_layouts(columns, "zero_stage=3 cp_comm=ring");
}

/* Each rank lays out its part of the weights. */
TEST(layouts_with_weighted_losses)
{
    static const char weights[] = "latitude_weights=true channel_weights=[2,0.5]";
    over_layouts(SETTINGS("loss=mse patch_size=5 pad=wrap missing=mask %s", weights), "zero_stage=1");
    over_layouts(SETTINGS("loss=mae patch_size=3 pad=edge %s", weights), "sequence_parallel=true");
    over_layouts(SETTINGS("loss=relative_l2 %s", weights), plain);
}

/* Whole, and in slices. */
TEST(layouts_with_averaged_weights)
{
    over_layouts("ema_decay=0.7", plain);
    static const char *const kinds[] = {"", "optimizer=AdamW",
                                        "optimizer=SGD lr=0.01"}; /* the others have tests below */
    for (int stage = 1; stage <= 3; stage++)
        over_layouts(SETTINGS("ema_decay=0.7 %s", kinds[stage - 1]), SETTINGS("zero_stage=%d", stage));
}

/* A rank's part has the blocks of one rank, but under tensor parallelism some weights have others: with a small rate
 * four steps still keep the promise. */
TEST(layouts_with_moments_in_8_bits)
{
    static const char *const kinds[] = {"optimizer=Adam8bit",
                                        "optimizer=AdamW8bit optimizer_block=64 grad_clip=0.5 ema_decay=0.7"};
    for (int stage = 0; stage <= 3; stage++) {
        const char *layout = SETTINGS("zero_stage=%d", stage);
        over_layouts(SETTINGS("embed_dim=64 depth=1 lr=1e-4 %s", kinds[stage % 2]), layout);
        if (vt_test_engine->size <= 4) beside_one(SETTINGS("embed_dim=64 %s", kinds[stage % 2]), layout);
    }
}

/* Each matrix is stepped by one rank. */
TEST(layouts_with_muon)
{
    for (int stage = 0; stage <= 3; stage++)
        over_layouts("optimizer=Muon grad_clip=0.5 ema_decay=0.7", SETTINGS("zero_stage=%d", stage));
    over_pipelines("optimizer=Muon", "zero_stage=1");
    if (vt_test_engine->size < 4) return;
    setenv("VITRAIN_RANKS_PER_NODE", vt_test_engine->size == 4 ? "2" : "4", 1);
    beside_one("optimizer=Muon", "zero_group=node zero_stage=2 tensor_parallel=2");
    unsetenv("VITRAIN_RANKS_PER_NODE");
}

/* Sums over tensors of which ranks have parts. */
TEST(layouts_with_adafactor)
{
    for (int stage = 0; stage <= 3; stage++)
        over_layouts("optimizer=Adafactor lr=1e-2 grad_clip=0.5 ema_decay=0.7", SETTINGS("zero_stage=%d", stage));
    over_layouts("optimizer=Adafactor lr=1e-2 adafactor=original adafactor_beta1=0.9", "zero_stage=2");
    over_pipelines("optimizer=Adafactor lr=1e-2 adafactor_beta1=0.9", "zero_stage=1");
}

/* Forecasts over three steps, with everything that training draws at random. */
TEST(layouts_with_rollouts)
{
    const char model[] = "n_in_channels=4 n_history=1 rollout=3 predict=tendency normalise=climatology "
                         "augment=sign input_noise=0.2 dropout=0.2";
    const char states[] = "n_in_channels=4 n_history=1 rollout=3 patch_size=3 pad=edge missing=mask mask_channels=true";
    over_layouts(model, plain);
    over_layouts(model, "sequence_parallel=true cp_comm=ring zero_stage=3");
    over_layouts(model, "recompute=block zero_stage=2");
    over_layouts(states, "zero_stage=1");
}

/* Members of each sample, which lie on one rank of the data axis, with noise by sample, member, step and token. */
TEST(layouts_with_ensembles)
{
    const char model[] = "n_in_channels=4 n_history=1 rollout=3 predict=tendency normalise=climatology augment=sign "
                         "input_noise=0.2 dropout=0.2 loss=crps ensemble_size=3 ema_decay=0.7";
    over_layouts(model, plain);
    beside_one(model, "zero_stage=3 recompute=block");
    if (vt_test_engine->size % 2 == 0)
        beside_one(model, "pipeline_parallel=2 grad_accumulation=2 recompute=block zero_stage=1");
    beside_one("n_in_channels=4 n_history=1 rollout=3 missing=mask loss=crps crps_scales=1,4", "zero_stage=1");
}

/* Whose forecasts go back to the first stage, and gradients from there to the last. Four input times: some of the last
 * step's are still those that were read. */
TEST(pipelines_with_rollouts)
{
    const char model[] = "n_in_channels=4 n_history=1 rollout=3 predict=tendency normalise=climatology augment=sign "
                         "input_noise=0.2 dropout=0.2 ema_decay=0.7";
    const char states[] = "n_in_channels=4 n_history=1 rollout=3 patch_size=3 pad=edge missing=mask mask_channels=true";
    if (vt_test_engine->size == 1) return vt_test_skip("one rank has one stage");
    over_pipelines(model, "recompute=block zero_stage=1");
    over_pipelines(SETTINGS("%s rollout_gradient=last", model), "sequence_parallel=true cp_comm=ring");
    over_pipelines(states, "pipeline_schedule=gpipe");
}

TEST(layouts_with_sequence_parallel)
{
    over_layouts(random_model, "sequence_parallel=true");
}

TEST(layouts_with_keys_passed_round)
{
    over_layouts(random_model, "cp_comm=ring");
}

TEST(layouts_with_zero)
{
    for (int stage = 1; stage <= 3; stage++) over_layouts(random_model, SETTINGS("zero_stage=%d", stage));
}

/* Slices within a node, sums across. */
static void over_layouts_of_nodes(void)
{
    const int ranks = vt_test_engine->size;
    if (ranks < 4) return vt_test_skip("two nodes of two ranks need four");
    setenv("VITRAIN_RANKS_PER_NODE", ranks == 4 ? "2" : "4", 1);
    over_layouts(random_model, SETTINGS("zero_group=node zero_stage=%d", ranks == 4 ? 2 : 3));
    unsetenv("VITRAIN_RANKS_PER_NODE");
}

TEST(layouts_with_zero_within_nodes)
{
    over_layouts_of_nodes();
}

TEST(layouts_with_chained_reductions)
{
    chains = true;
    over_layouts_of_nodes();
    chains = false;
}

TEST(layouts_with_recompute_accumulation_and_fusion)
{
    const int ranks = vt_test_engine->size;
    if (ranks > 4) return vt_test_skip("a micro-batch needs two samples of a rank");
    const char model[] = "dropout=0.1 recompute=block grad_accumulation=2 enable_jit=true";
    over_layouts(model, plain);
    over_layouts(model, "zero_stage=2 sequence_parallel=true");
    over_layouts(model, "zero_stage=3 cp_comm=ring");
    over_layouts("recompute=linear", "zero_stage=3 cp_comm=ring");
}

static vt_status (*real_allocate)(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory);
static int allocations_left; /* before one is refused */

static vt_status refuse_one(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    vt_status status = VT_OK;
    VT_CHECK(allocations_left-- != 0, "no memory for %s", vt_memory_category_name(category));
    VT_TRY(real_allocate(backend, category, bytes, memory));
done:
    return status;
}

/* What a trainer takes is refused to the last rank, one after another. Returns false when there was no such one. */
static bool refuse(const char *settings, int number, const vt_launch *launch)
{
    const int last = launch->world_size - 1;
    char host[VT_HOST_SIZE], expected[96] = "no memory for ";
    SCOPED(side) s;
    open_world(&s, SETTINGS("%s comm_timeout=120", settings), launch);
    vt_host_name(host);
    if (last > 0) snprintf(expected, sizeof expected, "rank %d on %.60s: no memory for ", last, host);
    real_allocate = s.rig.backend->allocate;
    allocations_left = number;
    if (launch->rank == last) s.rig.backend->allocate = refuse_one;
    const vt_status status = vt_world_agree(s.rig.world, open_trainer(&s));
    const bool told = vt_world_speaks(s.rig.world) == (launch->rank == (status == VT_OK ? 0 : last));
    EXPECT(status == VT_OK || strstr(vt_error_text(), expected) != NULL, "%s: '%s'", settings, vt_error_text());
    EXPECT(told, "%s: the %d. allocation", settings, number + 1);
    vt_error_clear();
    return status != VT_OK;
}

/* No rank is left waiting for the others. */
TEST(memory_that_one_rank_lacks_ends_all)
{
    vt_launch launch;
    EXPECT_OK(vt_launch_detect(&launch));
    const char *const settings[] = {
        "zero_stage=0 optimizer=Muon", "zero_stage=1 optimizer=Adafactor", "zero_stage=2", "zero_stage=3",
        SETTINGS("n_in_channels=2 rollout=2 depth=6 grad_accumulation=2 pipeline_parallel=%d", launch.world_size)};
    batch_size = launch.world_size == 3 ? 6 : 8;
    for (int i = 0; i < 5; i++) {
        int number = 0;
        while (refuse(settings[i], number, &launch)) number++;
        EXPECT(number >= 10, "%s: %d allocations", settings[i], number);
    }
}
