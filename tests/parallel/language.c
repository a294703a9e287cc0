/* The two transformers on text over ranks: after one step every layout's loss and gradients are those of one rank, as
 * docs/parallelism.md promises; the vocabulary does not divide, and some windows have no targets. */
#include "gradients.h"
#include "parallel/launch.h"
#include "settings.h"
#include "word_windows.h"

enum { WORDS = 101, WINDOW = 14, STEPS = 4, MOST = 8 };

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_world *world;
    vt_trainer *trainer;
    vt_batch batch;
} side;

static int32_t words[MOST][WINDOW], targets[MOST][WINDOW];

static void make_words(int64_t count)
{
    draw_windows(7, WORDS, count, WINDOW, words[0], targets[0]);
    for (int i = 0; i < WINDOW; i++) targets[count - 1][i] = -1;
}

static void open_side(side *s, int64_t batch, const char *settings, const vt_launch *launch)
{
    static const char common[] = "vocab_size=101 seq_len=14 embed_dim=32 num_heads=4 depth=2 ffn_dim=50 lr=1e-3 "
                                 "num_iters=10 num_epochs=None bucket_cap_mb=0.01";
    *s = (side){.config = config_with(launch->world_size, common,
                                      SETTINGS("global_batch_size=%lld %s", (long long)batch, settings))};
    EXPECT_OK(vt_world_open(s->config, launch, &s->world));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &s->backend));
    const vt_trainer_options options = {.steps = 10, .world = s->world};
    EXPECT_OK(vt_trainer_open(s->config, &options, s->backend, &s->trainer));
    const int64_t local = batch / s->config->data_parallel;
    const int64_t first = local * vt_world_coordinate(s->world, VT_AXIS_DATA);
    s->batch = (vt_batch){.sample_count = local,
                          .global_count = batch - 1, /* the last window is none */
                          .first_sample = first,
                          .first_in_batch = first,
                          .tensors = {words[first], targets[first]}};
}

static void close_side(side *s)
{
    vt_trainer_close(&s->trainer);
    vt_backend_close(&s->backend);
    vt_world_close(&s->world, false);
    vt_config_close(&s->config);
}

/* What rounding does to one rank's gradients: the same for all layouts of a model. */
static const double *allowed_of(const char *model, int64_t batch)
{
    static char *last;
    static double *allowed;
    const char *key = SETTINGS("%s %lld", model, (long long)batch);
    if (last != NULL && strcmp(last, key) == 0) return allowed;
    side one;
    free(last);
    free(allowed);
    last = strdup(key);
    open_side(&one, batch, model, &(vt_launch){.world_size = 1, .local_size = 1});
    allowed = measure_allowed(one.trainer, &one.batch);
    close_side(&one);
    return allowed;
}

static void compare_with_one(const char *model, const char *layout, int64_t batch)
{
    vt_launch launch, alone = {.world_size = 1, .local_size = 1};
    EXPECT_OK(vt_launch_detect(&launch));
    const double *allowed = launch.rank == 0 ? allowed_of(model, batch) : NULL;
    const char *what = SETTINGS("%s %s", model, layout);
    side one, many;
    open_side(&one, batch, model, &alone);
    open_side(&many, batch, what, &launch);
    for (int step = 0; step < STEPS; step++) {
        vt_step_figures expected, actual;
        EXPECT_OK(vt_step_train(one.trainer, &one.batch, &expected));
        EXPECT_OK(vt_step_train(many.trainer, &many.batch, &actual));
        EXPECT(fabs(actual.loss - expected.loss) <= promised_loss(step) * expected.loss,
               "%s: step %d: loss %.9g, expected %.9g", what, step, actual.loss, expected.loss);
        if (step == 0) compare_gradients(one.trainer, many.trainer, allowed, what);
    }
    vt_evaluation sums[2];
    side *const sides[2] = {&one, &many};
    for (int i = 0; i < 2; i++) {
        vt_step_evaluation_open(sides[i]->trainer, false, &sums[i]);
        EXPECT_OK(vt_step_evaluate(sides[i]->trainer, &sides[i]->batch, &sums[i]));
        vt_step_evaluation_finish(sides[i]->trainer, &sums[i]);
    }
    EXPECT_NEAR(sums[1].loss, sums[0].loss, 1e-5 * sums[0].loss);
    for (int i = 0; i < 2; i++) vt_evaluation_close(&sums[i]);
    close_side(&one);
    close_side(&many);
}

/* Every split of these ranks over the axes; `stages`: over pipeline stages, too. */
static void over_layouts(const char *model, const char *more, bool stages)
{
    static const char *const orders[] = {"tp-cp-dp", "dp-cp-tp", "cp-tp-dp"};
    const int ranks = vt_test_engine->size;
    const int64_t batch = ranks == 3 ? 6 : 8;
    int layouts = 0;
    make_words(batch);
    for (int p = 1; p <= (stages ? ranks : 1); p++)
        for (int t = 1; t <= 4; t *= 2)
            for (int c = 1; c <= ranks; c++) {
                if (ranks % (p * t * c) != 0 || (stages && p == 1) || p > 4) continue;
                const char *layout = SETTINGS("tensor_parallel=%d context_parallel=%d pipeline_parallel=%d "
                                              "parallel_order=%s %s",
                                              t, c, p, orders[layouts++ % 3], more);
                compare_with_one(model, layout, batch);
            }
}

static const char decoder[] = "model=transformer causal=true dropout=0.2";
static const char encoder[] = "model=encoder causal=true attention_scale=sqrt dropout=0.2";

TEST(layouts_of_language_models)
{
    over_layouts(decoder, "", false);
    over_layouts(encoder, "zero_stage=1", false);
    over_layouts("model=transformer", "zero_stage=2", false);
}

TEST(layouts_of_language_models_with_rings_and_split_tokens)
{
    over_layouts(decoder, "sequence_parallel=true cp_comm=ring", false);
    over_layouts(encoder, "sequence_parallel=true cp_comm=ring zero_stage=3", false);
    over_layouts("model=encoder dropout=0.1", "cp_comm=ring recompute=block zero_stage=3", false);
}

TEST(stages_of_language_models)
{
    over_layouts(decoder, "", true);
    over_layouts(encoder, "sequence_parallel=true cp_comm=ring zero_stage=1", true);
    over_layouts("model=transformer recompute=block", "zero_stage=1 pipeline_schedule=gpipe", true);
}

/* Which keep parts of their moments, and sum over parts of tensors. */
TEST(layouts_of_language_models_with_every_optimizer)
{
    static const char *const optimizers[] = {"SGD", "AdamW8bit embed_dim=64", "Adafactor lr=1e-2", "Muon"};
    for (int i = 0; i < 4; i++) {
        const char *more = SETTINGS("zero_stage=%d", i);
        over_layouts(SETTINGS("model=transformer causal=true optimizer=%s", optimizers[i]), more, false);
    }
}
