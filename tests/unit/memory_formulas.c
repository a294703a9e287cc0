/* What a rank keeps, as planned with the dry back end and engine, against the formulas of docs/parallelism.md: 64 ranks
 * of a model of real size. */
#include "training/plan.h"
#include "unit/config_open.h"

enum { DIM = 1024, CHANNELS = 20, PATCH = 8, TOKENS = 4050 };

static bool plan_rank(const char *depth, const char *const *flags, int rank, vt_config **config, vt_plan *plan)
{
    EXPECT_OK(open_on_ranks(64, NULL, config, flags));
    if (*config == NULL) return false;
    EXPECT_OK(vt_config_set(*config, "depth", depth));
    EXPECT_OK(vt_config_resolve(*config));
    EXPECT_OK(vt_plan_make(*config, &(vt_plan_options){.rank = rank}, plan));
    return true;
}

static void near(double found, double expected, const char *category, const char *what)
{
    EXPECT(fabs(found - expected) <= 2e-3 * expected, "%s: %s: %.0f bytes, expected %.0f", what, category, found,
           expected);
}

static double largest(double a, double b)
{
    return a > b ? a : b;
}

/* Parameters, gradients and moments of rank 0 (or of another that has as many tokens). */
static void check_stage(const char *what, const char *const *flags)
{
    vt_config *config = NULL;
    vt_plan plan;
    if (!plan_rank("3", flags, 0, &config, &plan)) return;
    double d = DIM, area = CHANNELS * PATCH * PATCH, tensor = (double)config->tensor_parallel;
    double tokens = (double)vt_layout_run(TOKENS, (int)config->context_parallel, 0).count;
    double embedding = area * d + d + tokens * d, head = 2 * d + area * d;
    double block = (12 * d * d + 7 * d) / tensor + 6 * d;
    double all = embedding + 3 * block + head, unit = largest(largest(embedding, head), block);
    double half = config->amp_mode == VT_AMP_BF16 ? 2 : 0, shards = (double)config->data_parallel;
    int64_t stage = config->zero_stage;
    near((double)plan.bytes[VT_MEMORY_PARAMETERS],
         stage < 3 ? (4 + half) * all : 4 * all / shards + 2 * (4 + half) * unit, "parameters", what);
    near((double)plan.bytes[VT_MEMORY_GRADIENTS], stage < 2 ? 4 * all : 4 * all / shards + 8 * unit, "gradients", what);
    near((double)plan.bytes[VT_MEMORY_OPTIMIZER], stage < 1 ? 8 * all : 8 * all / shards, "moments", what);
    vt_config_close(&config);
}
#define FLAGS(...) ((const char *const[]){"--embed_dim=1024", "--global_batch_size=128", __VA_ARGS__, NULL})
#define CHECK_STAGE(...) check_stage(#__VA_ARGS__, FLAGS(__VA_ARGS__))

TEST(zero_keeps_what_the_formulas_say)
{
    CHECK_STAGE("--zero_stage=0");
    CHECK_STAGE("--zero_stage=1");
    CHECK_STAGE("--zero_stage=2");
    CHECK_STAGE("--zero_stage=3");
    CHECK_STAGE("--zero_stage=0", "--amp_mode=bf16");
    CHECK_STAGE("--zero_stage=3", "--amp_mode=bf16");
    CHECK_STAGE("--zero_stage=0", "--tensor_parallel=4", "--context_parallel=4");
    CHECK_STAGE("--zero_stage=2", "--tensor_parallel=4", "--context_parallel=4", "--amp_mode=bf16");
    CHECK_STAGE("--zero_stage=3", "--tensor_parallel=2", "--context_parallel=8");
}

/* What one more block keeps for backward; memory that a block needs only while it is computed does not count twice. */
static void check_block(const char *what, const char *const *flags)
{
    vt_config *config = NULL;
    vt_plan plans[2];
    if (!plan_rank("3", flags, 0, &config, &plans[0])) return;
    vt_config_close(&config);
    if (!plan_rank("4", flags, 0, &config, &plans[1])) return;
    double d = DIM, tensor = (double)config->tensor_parallel, element = config->amp_mode == VT_AMP_BF16 ? 2 : 4;
    int64_t batch = config->global_batch_size / config->data_parallel;
    int64_t inner = vt_layout_run(TOKENS, (int)config->context_parallel, 0).count;
    double all = (double)(batch * inner);
    double own =
        (double)batch *
        (double)(config->sequence_parallel ? vt_layout_run(inner, (int)config->tensor_parallel, 0).count : inner);
    double expected = config->recompute == VT_RECOMPUTE_BLOCK
                          ? 4 * own * d
                          : own * (8 * d + 16) + all * (8 * d * element + 4 * (double)config->num_heads) / tensor;
    near((double)plans[1].arena_bytes - (double)plans[0].arena_bytes, expected, "activations of a block", what);
    vt_config_close(&config);
}
#define CHECK_BLOCK(...) check_block(#__VA_ARGS__, FLAGS(__VA_ARGS__))

TEST(blocks_keep_what_the_formula_says)
{
    CHECK_BLOCK("--zero_stage=0");
    CHECK_BLOCK("--amp_mode=bf16");
    CHECK_BLOCK("--tensor_parallel=4");
    CHECK_BLOCK("--tensor_parallel=4", "--sequence_parallel");
    CHECK_BLOCK("--context_parallel=8");
    CHECK_BLOCK("--context_parallel=8", "--cp_comm=ring", "--amp_mode=bf16");
    CHECK_BLOCK("--tensor_parallel=2", "--context_parallel=4", "--sequence_parallel", "--recompute=block");
}
