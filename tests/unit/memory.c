/* What a rank's memory must hold, as the plan (the dry back end's count) says it, against the formulas of
 * docs/parallelism.md, at sizes that are trained in earnest. */
#include "config/stages.h"
#include "settings.h"
#include "training/plan.h"

enum { DEPTH = 12, CHANNELS = 20, PATCH = 8, TOKENS = 45 * 90, ALIGNMENT = 16 };

/* Of rank 0. */
static vt_plan plan_of(vt_config **config, int64_t ranks, const char *settings)
{
    vt_plan plan = {0};
    *config = config_with(ranks, "img_size=[360,720] patch_size=8 num_heads=8 depth=12 global_batch_size=64", settings);
    EXPECT_OK(vt_plan_make(*config, &(vt_plan_options){0}, &plan));
    return plan;
}

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* The elements of each unit's parameters (the embedding, each block, the head), in up to three classes that are reduced
 * over different ranks: a bucket each, from ZeRO stage 2 on. */
static int64_t unit_elements(const vt_config *config, int64_t unit, int64_t multiple)
{
    const int64_t dim = config->embed_dim, fields = CHANNELS * PATCH * PATCH;
    const int64_t tokens = vt_layout_span(TOKENS, (int)config->context_parallel, 0).count;
    if (unit == 0) return round_up(dim * fields + dim, multiple) + round_up(tokens * dim, multiple);
    if (unit == DEPTH + 1) return round_up(2 * dim + dim * fields, multiple);
    /* two LayerNorms and the biases of proj and fc2; all else, which tensor parallelism splits */
    return round_up(6 * dim, multiple) + round_up((12 * dim * dim + 7 * dim) / config->tensor_parallel, multiple);
}

static void compare_with_formula(int64_t ranks, const char *settings)
{
    SCOPED(vt_config) *config;
    const vt_plan plan = plan_of(&config, ranks, settings);
    const int64_t stage = config->zero_stage, half = config->amp_mode == VT_AMP_BF16 ? 2 : 0;
    /* stages 0 to 3 slice moments from 1, gradients from 2, values from 3 on */
    const int64_t shards = stage > 0 ? config->data_parallel : 1;
    const int64_t gradients_n = stage >= 2 ? shards : 1, values_n = stage >= 3 ? shards : 1;
    const int64_t multiple = stage >= 2 ? ALIGNMENT * shards : 1;
    const int64_t state = isnan(config->ema_decay) ? 8 : 12; /* bytes: two moments, and an average */
    int64_t elements = 0, largest = 0;
    for (int64_t unit = 0; unit < DEPTH + 2; unit++) {
        const int64_t own = unit_elements(config, unit, multiple);
        elements += own;
        if (own > largest) largest = own;
    }
    if (stage < 2) { /* buckets of 25 MB, or a parameter if that is larger, each a multiple of 16 shards */
        const int64_t padded = (int64_t)plan.bytes[VT_MEMORY_OPTIMIZER] / state * shards;
        const int64_t most = (4 * elements / (25 << 20) + 3 + 1) * ALIGNMENT * shards;
        EXPECT(padded >= elements && padded - elements <= most, "%ld ranks, %s: %ld elements for %ld", ranks, settings,
               padded, elements);
        elements = padded;
    }
    /* two units lie whole; a bfloat16 copy is kept of what does: all, or the two units */
    const int64_t room = stage >= 2 && shards > 1 ? 2 * largest : 0;
    const struct {
        const char *name;
        vt_memory_category category;
        int64_t bytes;
    } expected[] = {
        {"parameters", VT_MEMORY_PARAMETERS,
         values_n > 1 ? 4 * elements / values_n + (4 + half) * room : (4 + half) * elements},
        {"gradients", VT_MEMORY_GRADIENTS, 4 * elements / gradients_n + 4 * room},
        {"moments", VT_MEMORY_OPTIMIZER, state * elements / shards},
    };
    for (int i = 0; i < 3; i++)
        EXPECT((int64_t)plan.bytes[expected[i].category] == expected[i].bytes, "%ld ranks, %s: %s: %zu, expected %ld",
               ranks, settings, expected[i].name, plan.bytes[expected[i].category], expected[i].bytes);
}

TEST(parameters_gradients_and_moments)
{
    static const char *const precisions[] = {"none", "bf16"};
    for (int stage = 0; stage <= 3; stage++) {
        for (int half = 0; half < 2; half++) {
            const char *zero = SETTINGS("zero_stage=%d amp_mode=%s", stage, precisions[half]);
            for (int64_t ranks = 1; ranks <= 64; ranks *= 8) {
                compare_with_formula(ranks, zero);
                compare_with_formula(ranks, SETTINGS("%s ema_decay=0.99", zero));
                compare_with_formula(ranks, SETTINGS("%s embed_dim=1024", zero));
            }
            compare_with_formula(64, SETTINGS("%s tensor_parallel=4 context_parallel=4", zero));
            compare_with_formula(64, SETTINGS("%s tensor_parallel=2 context_parallel=8 embed_dim=1024", zero));
        }
    }
}

/* The bytes that a second block adds: what it keeps for backward. Both blocks share the memory that is needed only
 * while a block is computed. */
static void check_block(const char *settings)
{
    SCOPED(vt_config) *config;
    double arena[2];
    for (int i = 0; i < 2; i++) {
        const char *deep = SETTINGS("embed_dim=1024 global_batch_size=128 depth=%d %s", 3 + i, settings);
        arena[i] = (double)plan_of(&config, 64, deep).arena_bytes;
        if (i == 0) vt_config_close(&config);
    }
    double d = 1024, tensor = (double)config->tensor_parallel, element = config->amp_mode == VT_AMP_BF16 ? 2 : 4;
    const int64_t batch = vt_trainer_micro_batch(config);
    const int64_t inner = vt_layout_span(TOKENS, (int)config->context_parallel, 0).count;
    const int64_t own = config->sequence_parallel ? vt_layout_span(inner, (int)tensor, 0).count : inner;
    double all_rows = (double)(batch * inner), own_rows = (double)(batch * own);
    const double sums = 4 * (double)config->num_heads;
    double expected = own_rows * (8 * d + 16) + all_rows * (8 * d * element + sums) / tensor;
    if (config->recompute != VT_RECOMPUTE_NONE) expected = 4 * own_rows * d;
    if (config->recompute == VT_RECOMPUTE_LINEAR) expected += all_rows * (d * element + sums) / tensor;
    if (config->keep_outputs == VT_KEEP_TRUE) expected += (2 * own_rows + 4 * all_rows / tensor) * d * element;
    EXPECT(fabs(arena[1] - arena[0] - expected) <= 2e-3 * expected, "%s: a block keeps %.0f bytes, expected %.0f",
           settings, arena[1] - arena[0], expected);
}

TEST(blocks_keep_what_the_formula_says)
{
    check_block("zero_stage=0");
    check_block("amp_mode=bf16");
    check_block("amp_mode=bf16 keep_outputs=true");
    check_block("tensor_parallel=4 sequence_parallel=true keep_outputs=true");
    check_block("tensor_parallel=4");
    check_block("tensor_parallel=4 sequence_parallel=true");
    check_block("context_parallel=8");
    check_block("context_parallel=8 cp_comm=ring amp_mode=bf16");
    check_block("tensor_parallel=2 context_parallel=4 sequence_parallel=true recompute=block");
    check_block("tensor_parallel=2 context_parallel=4 sequence_parallel=true recompute=linear");
    check_block("amp_mode=bf16 recompute=linear");
}

/* Of each sample, the forecast and its gradient; rollout_gradient: last keeps no gradients. */
TEST(rollouts_keep_two_fields_a_step)
{
    static const char *const gradients[] = {"last", "all"};
    const double field = 64.0 * CHANNELS * 360 * 720 * sizeof(float);
    for (int kept = 1; kept <= 2; kept++) {
        double arena[2];
        for (int i = 0; i < 2; i++) {
            SCOPED(vt_config) *config;
            const char *settings = SETTINGS("rollout=%d rollout_gradient=%s", i == 0 ? 2 : 12, gradients[kept - 1]);
            arena[i] = (double)plan_of(&config, 1, settings).shared_bytes;
        }
        EXPECT(fabs(arena[1] - arena[0] - 10 * kept * field) <= 2e-3 * field, "%s: ten steps keep %.0f bytes, not %.0f",
               gradients[kept - 1], arena[1] - arena[0], 10 * kept * field);
    }
}

/* Of every stage: room for each micro-batch that it keeps, and for messages to and from its neighbours. */
static void check_stages(int64_t stages, int64_t parts, const char *settings)
{
    SCOPED(vt_config) *config =
        config_with(4 * stages, "img_size=[360,720] patch_size=8 num_heads=8 depth=12 embed_dim=1024",
                    SETTINGS("pipeline_parallel=%d grad_accumulation=%d global_batch_size=%d %s", (int)stages,
                             (int)parts, (int)(4 * parts), settings));
    const bool keeps_all = config->pipeline_schedule == VT_PIPELINE_GPIPE;
    const double fields_a_step = config->rollout_gradient == VT_ROLLOUT_GRADIENT_LAST ? 1 : 2;
    const double d = 1024, n = TOKENS, element = config->amp_mode == VT_AMP_BF16 ? 2 : 4;
    const double block = config->recompute == VT_RECOMPUTE_BLOCK ? 4 * n * d : n * (8 * d + 16 + 8 * d * element + 32);
    for (int64_t stage = 0; stage < stages; stage++) {
        vt_plan plan = {0};
        EXPECT_OK(vt_plan_make(config, &(vt_plan_options){.rank = (int)(4 * stage)}, &plan));
        const int64_t few = parts < stages - stage ? parts : stages - stage, slots = keeps_all ? parts : few;
        const double message = (config->pipeline_comm == VT_PIPELINE_BF16 ? 2 : 4) * n * d;
        const double links = (stage == 0 || stage == stages - 1 ? 2 : 4) * message;
        /* of a rollout at both ends: two messages, and of each micro-batch the fields of all steps but the last */
        const int64_t more = stage == 0 || stage == stages - 1 ? vt_config_longest_rollout(config) - 1 : 0;
        const double field = (double)CHANNELS * 360 * 720 * sizeof(float);
        const double fields = more > 0 ? 2 * field + (double)parts * (double)plan.shared_bytes : 0;
        const double arenas = (double)plan.bytes[VT_MEMORY_ACTIVATIONS] - links - fields,
                     blocks = 12.0 / (double)stages;
        EXPECT(plan.shared_bytes == (size_t)(fields_a_step * (double)more * field), "stage %ld: %zu bytes of fields",
               stage, plan.shared_bytes);
        EXPECT(arenas == (double)slots * (double)plan.arena_bytes, "stage %ld of %ld: %.0f bytes for %ld of %zu", stage,
               stages, arenas, slots, plan.arena_bytes);
        EXPECT((double)plan.arena_bytes >= blocks * block, "stage %ld keeps %zu bytes of %.0f", stage, plan.arena_bytes,
               blocks * block);
        /* its blocks, and at most the embedding with a position for each token */
        const double most = blocks * (12 * d * d + 13 * d) + (n + CHANNELS * PATCH * PATCH + 16) * d;
        EXPECT((double)plan.bytes[VT_MEMORY_PARAMETERS] <= (element == 2 ? 6 : 4) * most, "stage %ld: %zu bytes", stage,
               plan.bytes[VT_MEMORY_PARAMETERS]);
    }
}

TEST(stages_keep_what_the_formula_says)
{
    check_stages(4, 8, "");
    check_stages(4, 2, "amp_mode=bf16 pipeline_comm=bf16");
    check_stages(4, 8, "pipeline_schedule=gpipe amp_mode=bf16");
    check_stages(2, 4, "recompute=block");
    check_stages(6, 4, "");
    check_stages(4, 8, "rollout=3 predict=tendency");
    check_stages(2, 4, "rollout=2 predict=tendency rollout_gradient=last");
}

/* ---- messages for runs that do not fit ---- */

/* Plans a small run with these flags (separated by spaces, then `more`), and checks it where no memory is free. */
static vt_status refused(int64_t ranks, const char *flags, const char *more, bool trains, vt_plan *plan)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    const vt_plan_options planned = {0};
    char *words[16], *rest = NULL, *text = vt_text_format("%s %s", flags, more);
    int count = 0;
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < 16; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    VT_TRY(vt_config_open_text("small: {img_size: [16, 32], n_in_channels: 2, n_out_channels: 2, embed_dim: 16, "
                               "num_heads: 4, depth: 2, patch_size: 4}",
                               "a small run", count, words, ranks, &config));
    VT_TRY(vt_plan_make(config, &planned, plan));
    status = vt_budget_check(config, &planned, plan, 0, trains);
done:
    vt_config_close(&config);
    free(text);
    return status;
}

/* Each flag that the message names is accepted besides the others, and saves what the message says. Returns how many
 * there were.
 */
static int feed_back(int64_t ranks, const char *flags, bool trains, char *message, size_t size)
{
    vt_plan plan = {0}, smaller = {0};
    char saved[VT_NUMBER_SIZE];
    int count = 0;
    EXPECT_ERROR(refused(ranks, flags, "", trains, &plan), "of memory (parameters");
    (void)refused(ranks, flags, "", trains, &plan);
    snprintf(message, size, "%s", vt_error_text());
    vt_error_clear();
    for (const char *at = message; (at = strstr(at, " --")) != NULL; count++) {
        char *flag = vt_test_owned(vt_text_format("%.*s", (int)strcspn(at + 1, " "), at + 1));
        EXPECT_ERROR(refused(ranks, flags, flag, trains, &smaller), "of memory (parameters");
        char *said =
            vt_text_format("%s saves %s", flag, vt_text_bytes(vt_plan_total(&plan) - vt_plan_total(&smaller), saved));
        EXPECT(strncmp(at + 1, said, strlen(said)) == 0, "%s; it is %s", message, said);
        at += strlen(flag);
        free(said);
    }
    return count;
}

TEST(settings_that_are_advised_are_taken)
{
    static const struct {
        int64_t ranks;
        const char *flags, *advice; /* that is among what is said */
    } cases[] = {
        {2, "--global_batch_size=12 --grad_accumulation=3 --prefetch=1 --num_heads=16", "--grad_accumulation=6 saves"},
        {2, "--global_batch_size=12 --grad_accumulation=3 --depth=1 --num_heads=16", "--global_batch_size=6 saves"},
        {2, "--global_batch_size=6", "--global_batch_size=2 saves"},
        {2, "--local_batch_size=6", "--local_batch_size=3 saves"},
        {1, "--global_batch_size=16 --recompute=block --depth=8 --grad_accumulation=16", "--depth=4 saves"},
        {1, "--global_batch_size=1 --embed_dim=512", "--embed_dim=256 saves"},
        {1, "--global_batch_size=8 --grad_accumulation=8 --prefetch=8", "saves"},
        {4, "--global_batch_size=2 --context_parallel=4 --img_size=[4,16] --patch_size=4", "saves"},
        {4, "--global_batch_size=7 --context_parallel=2 --tensor_parallel=2 --sequence_parallel --img_size=[8,16]",
         "saves"},
    };
    char message[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int count = feed_back(cases[i].ranks, cases[i].flags, true, message, sizeof message);
        EXPECT(count > 0 && strstr(message, cases[i].advice) != NULL, "%s: '%s', not '%s'", cases[i].flags, message,
               cases[i].advice);
    }
}

/* A trained model stays as it is, and nothing is accumulated. */
TEST(a_forecast_is_advised_fewer_samples)
{
    char message[1024];
    EXPECT(feed_back(1, "--local_batch_size=8", false, message, sizeof message) == 1);
    EXPECT_PART(message, "are free. --local_batch_size=4 saves ");
    EXPECT(feed_back(2, "--global_batch_size=12", false, message, sizeof message) == 1);
    EXPECT_PART(message, "are free. --global_batch_size=6 saves ");
    EXPECT(feed_back(1, "--local_batch_size=1", false, message, sizeof message) == 0);
}

/* optimizers.md, section 5: bytes a parameter of the ViT with 23,832,960 of them, but for the buckets' padding. */
TEST(state_of_each_optimizer)
{
    static const struct {
        const char *settings;
        double bytes;
    } cases[] = {{"", 190663680},
                 {"optimizer=AdamW betas=[0.9,0.999]", 190663680},
                 {"optimizer=Adam8bit", 48775128},
                 {"optimizer=AdamW8bit", 48775128},
                 {"optimizer=Muon", 105729024},
                 {"optimizer=Adafactor", 1091912},
                 {"optimizer=Adafactor adafactor_beta1=0.9", 96423752},
                 {"optimizer=SGD nesterov=true", 95331840},
                 {"optimizer=SGD momentum=0", 0},
                 {"optimizer=SGD momentum=0 ema_decay=0.99", 95331840}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED(vt_config) *config;
        const double planned = (double)plan_of(&config, 1, cases[i].settings).bytes[VT_MEMORY_OPTIMIZER];
        EXPECT(planned >= cases[i].bytes && planned <= cases[i].bytes * 1.0001, "%s: %.0f", cases[i].settings, planned);
    }
}

/* A large vocabulary adds at most 64 MB to what a batch needs, and on a GPU, whose pieces are larger, at most 512 MB;
 * its scores would take 1 GB or more. */
TEST(scores_of_words_are_never_whole)
{
    static const char *const precisions[] = {"none", "bf16"};
    for (int variant = 0; variant < 4; variant++) {
        const int half = variant % 2, on_gpu = variant / 2;
        const double most = on_gpu ? 512 << 20 : 64 << 20;
        double arena[2];
        for (int large = 0; large < 2; large++) {
            vt_plan plan = {0};
            SCOPED(vt_config) *config =
                config_with(1, "model=transformer num_iters=10 num_epochs=None",
                            SETTINGS("vocab_size=%d amp_mode=%s", large ? 66000 : 100, precisions[half]));
            EXPECT(config->global_batch_size * config->seq_len == 4096);
            EXPECT_OK(vt_plan_make(config, &(vt_plan_options){.device_memory = on_gpu}, &plan));
            arena[large] = (double)plan.arena_bytes;
        }
        const double more = arena[1] - arena[0];
        EXPECT(more <= most + (1 << 20), "%s, on a GPU %d: %.0f bytes more", precisions[half], on_gpu, more);
        EXPECT(!on_gpu || more > 64 << 20, "%s: %.0f bytes more on a GPU", precisions[half], more);
    }
}
