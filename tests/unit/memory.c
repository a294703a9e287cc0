/* What a rank's memory must hold, as the plan (the dry back end's count) says it, against the formulas of
 * docs/parallelism.md, at sizes that are trained in earnest. */
#include "base/text.h"
#include "settings.h"
#include "test.h"
#include "training/budget.h"

enum { DEPTH = 12, CHANNELS = 20, PATCH = 8, TOKENS = 45 * 90, ALIGNMENT = 16 };

static vt_plan plan_of(int64_t dim, int64_t ranks, const char *settings)
{
    vt_config *config = NULL;
    vt_plan plan = {0};
    EXPECT_OK(vt_config_open_default(&config));
    config->ranks = ranks;
    config->embed_dim = dim;
    config->depth = DEPTH;
    config->num_heads = 8;
    config->global_batch_size = 64;
    config->n_in_channels = config->n_out_channels = CHANNELS;
    config->patch_size = PATCH;
    EXPECT_OK(vt_config_set(config, "img_size", "[360, 720]"));
    set_options(config, settings);
    EXPECT_OK(vt_config_resolve(config));
    EXPECT_OK(vt_plan_make(config, &(vt_plan_options){0}, &plan));
    vt_config_close(&config);
    return plan;
}

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* The elements of each unit's parameters (the embedding, each block, the head), in up to three classes that are reduced
 * over different ranks: a bucket each, from ZeRO stage 2 on. */
static int64_t unit_elements(int64_t dim, int64_t unit, int64_t multiple)
{
    int64_t fields = CHANNELS * PATCH * PATCH;
    if (unit == 0) return round_up(dim * fields + dim, multiple) + round_up(TOKENS * dim, multiple);
    if (unit == DEPTH + 1) return round_up(2 * dim + dim * fields, multiple);
    /* two LayerNorms and the biases of proj and fc2; all else, which tensor parallelism would split */
    return round_up(6 * dim, multiple) + round_up(12 * dim * dim + 7 * dim, multiple);
}

static int64_t all_elements(int64_t dim, int64_t multiple)
{
    int64_t sum = 0;
    for (int64_t unit = 0; unit < DEPTH + 2; unit++) sum += unit_elements(dim, unit, multiple);
    return sum;
}

static int64_t largest_unit(int64_t dim, int64_t multiple)
{
    int64_t largest = 0;
    for (int64_t unit = 0; unit < DEPTH + 2; unit++)
        if (unit_elements(dim, unit, multiple) > largest) largest = unit_elements(dim, unit, multiple);
    return largest;
}

static void compare_with_formula(int64_t dim, int64_t ranks, int stage, bool half)
{
    vt_plan plan = plan_of(dim, ranks, SETTINGS("zero_stage=%d amp_mode=%s", stage, half ? "bf16" : "none"));
    int64_t parameters = (int64_t)plan.bytes[VT_MEMORY_PARAMETERS],
            gradients = (int64_t)plan.bytes[VT_MEMORY_GRADIENTS];
    int64_t optimizer = (int64_t)plan.bytes[VT_MEMORY_OPTIMIZER];
    /* stages 0 to 3 slice moments from 1, gradients from 2, values from 3 on */
    int64_t shards = stage > 0 ? ranks : 1, moments_n = shards;
    int64_t gradients_n = stage >= 2 ? shards : 1, values_n = stage >= 3 ? shards : 1;
    int64_t elements = all_elements(dim, 1), value = half ? 6 : 4;
    char what[64];
    snprintf(what, sizeof what, "embed_dim %lld, %lld ranks, stage %d%s", (long long)dim, (long long)ranks, stage,
             half ? ", bf16" : "");
    if (stage < 2) { /* buckets of 25 MB, or a parameter if that is larger, each a multiple of 16 shards */
        int64_t padded = optimizer / 8 * moments_n;
        int64_t most = (4 * elements / (25 << 20) + 3 + 1) * ALIGNMENT * shards;
        EXPECT(padded >= elements && padded - elements <= most, "%s: %lld elements for %lld", what, (long long)padded,
               (long long)elements);
        elements = padded;
    }
    int64_t room = 0;
    if (stage >= 2) elements = all_elements(dim, ALIGNMENT * shards);
    if (stage >= 2 && shards > 1) room = 2 * largest_unit(dim, ALIGNMENT * shards);
    bool values_sliced = values_n > 1;
    /* a bfloat16 copy is kept of what lies whole: all, or the two units */
    int64_t expected = values_sliced ? 4 * elements / values_n + value * room : value * elements;
    EXPECT(parameters == expected, "%s: %lld, expected %lld", what, (long long)parameters, (long long)expected);
    expected = 4 * elements / gradients_n + 4 * room;
    EXPECT(gradients == expected, "%s: %lld, expected %lld", what, (long long)gradients, (long long)expected);
    expected = 8 * elements / moments_n;
    EXPECT(optimizer == expected, "%s: %lld, expected %lld", what, (long long)optimizer, (long long)expected);
}

TEST(parameters_gradients_and_moments_with_zero)
{
    for (int64_t dim = 384; dim <= 1024; dim += 640)
        for (int64_t ranks = 1; ranks <= 64; ranks *= 8)
            for (int stage = 0; stage <= 3; stage++)
                for (int half = 0; half < 2; half++) compare_with_formula(dim, ranks, stage, half != 0);
}

/* Of a sample, on a rank of 8: tp · cp of them share it. Beside one that has it all. */
static double activations(int tensor, int context, const char *sequence, const char *ring)
{
    vt_plan plan = plan_of(384, 8,
                           SETTINGS("tensor_parallel=%d context_parallel=%d sequence_parallel=%s cp_comm=%s "
                                    "global_batch_size=8",
                                    tensor, context, sequence, ring));
    return (double)plan.bytes[VT_MEMORY_ACTIVATIONS] / (tensor * context);
}

/* In units of tokens × embed_dim a block keeps 10: 2 of the residual stream, and 8 (q, k, v, attention's output, fc1's
 * four) that tp splits by columns. sequence_parallel and cp split all 10 by tokens; with allgather one block's whole k
 * and v come on top, and what is not kept (a twentieth of all) may split otherwise. */
TEST(activations_fall_with_each_axis)
{
    static const int numbers[] = {2, 4, 8};
    double one = activations(1, 1, "false", "allgather"), few = 0.06;
    for (int i = 0; i < 3; i++) {
        const int n = numbers[i];
        double part = 1.0 / n, keys = 2.0 / (10 * DEPTH) * (1 - part);
        EXPECT_NEAR(activations(n, 1, "false", "allgather") / one, (2 + 8 * part) / 10, few);
        EXPECT_NEAR(activations(n, 1, "true", "allgather") / one, part, few);
        double ring = activations(1, n, "false", "ring") / one;
        EXPECT_NEAR(ring, part, few);
        EXPECT_NEAR(activations(1, n, "false", "allgather") / one - ring, keys, few);
    }
    EXPECT_NEAR(activations(2, 2, "true", "ring") / one, 0.25, few);
}

/* ---- what a run that does not fit is told ---- */

/* A small run with these flags (separated by spaces, then `more`), its plan, and what is said where nothing is free. */
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

/* Whatever flag is named, given besides the others it is taken, and saves what was said. Returns how many there were.
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
        char *flag = vt_text_format("%.*s", (int)strcspn(at + 1, " "), at + 1);
        EXPECT_ERROR(refused(ranks, flags, flag, trains, &smaller), "of memory (parameters");
        char *said =
            vt_text_format("%s saves %s", flag, vt_text_bytes(vt_plan_total(&plan) - vt_plan_total(&smaller), saved));
        EXPECT(strncmp(at + 1, said, strlen(said)) == 0, "%s; it is %s", message, said);
        at += strlen(flag);
        free(flag);
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
    EXPECT(strstr(message, "are free. --local_batch_size=4 saves ") != NULL, "%s", message);
    EXPECT(feed_back(2, "--global_batch_size=12", false, message, sizeof message) == 1);
    EXPECT(strstr(message, "are free. --global_batch_size=6 saves ") != NULL, "%s", message);
    EXPECT(feed_back(1, "--local_batch_size=1", false, message, sizeof message) == 0);
}
