/* Training steps of language models on one rank: micro-batches and recomputation change nothing, and 16 bits little. */
#include "parallel/launch.h"
#include "settings.h"
#include "test.h"
#include "training/step.h"

enum { WORDS = 211, WINDOW = 24, BATCH = 12, STEPS = 6 };

static int32_t words[BATCH][WINDOW], targets[BATCH][WINDOW];

static void make_words(void)
{
    uint32_t x = 3;
    for (int s = 0; s < BATCH; s++)
        for (int i = 0; i <= WINDOW; i++) {
            x = x * 1664525u + 1013904223u;
            const int32_t word = (int32_t)((x >> 16) % WORDS * ((x >> 8) % WORDS) / WORDS);
            if (i < WINDOW) words[s][i] = word;
            if (i > 0) targets[s][i - 1] = word;
        }
}

/* figures [STEPS]: of steps with these settings. */
static void train(const char *model, const char *settings, vt_step_figures figures[STEPS])
{
    static const char common[] = "vocab_size=211 seq_len=24 embed_dim=32 num_heads=2 depth=2 ffn_dim=80 lr=1e-3 "
                                 "num_iters=10 num_epochs=None global_batch_size=12";
    const vt_launch alone = {.world_size = 1, .local_size = 1};
    vt_config *config = config_with(1, common, SETTINGS("%s %s", model, settings));
    vt_world *world = NULL;
    vt_backend *backend = NULL;
    vt_trainer *trainer = NULL;
    EXPECT_OK(vt_world_open(config, &alone, &world));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &backend));
    const vt_trainer_options options = {.steps = 10, .world = world};
    EXPECT_OK(vt_trainer_open(config, &options, backend, &trainer));
    const vt_batch batch = {.sample_count = BATCH, .global_count = BATCH, .tensors = {words[0], targets[0]}};
    for (int step = 0; step < STEPS; step++) EXPECT_OK(vt_step_train(trainer, &batch, &figures[step]));
    vt_trainer_close(&trainer);
    vt_backend_close(&backend);
    vt_world_close(&world, false);
    vt_config_close(&config);
}

/* Losses and norms of gradients, relative; 0: the same bits. */
static void compare(const char *model, const char *settings, double of_loss, double of_norm)
{
    vt_step_figures plain[STEPS], other[STEPS];
    train(model, "", plain);
    train(model, settings, other);
    for (int i = 0; i < STEPS; i++) {
        EXPECT(fabs(other[i].loss - plain[i].loss) <= of_loss * plain[i].loss,
               "%s %s: step %d: loss %.9g, expected %.9g", model, settings, i, other[i].loss, plain[i].loss);
        EXPECT(fabs(other[i].gradient_norm - plain[i].gradient_norm) <= of_norm * plain[i].gradient_norm,
               "%s %s: step %d: norm %.9g, expected %.9g", model, settings, i, other[i].gradient_norm,
               plain[i].gradient_norm);
    }
    EXPECT(plain[STEPS - 1].loss < plain[0].loss);
}

static const char *const models[] = {"model=transformer causal=true dropout=0.1", "model=transformer dropout=0.1",
                                     "model=encoder causal=true attention_scale=sqrt dropout=0.1",
                                     "model=encoder dropout=0"};
enum { MODELS = sizeof models / sizeof models[0] };

TEST(micro_batches_of_windows)
{
    make_words();
    for (int i = 0; i < MODELS; i++) {
        compare(models[i], "grad_accumulation=3", 1e-6, 1e-5);
        compare(models[i], "grad_accumulation=12 recompute=block", 1e-6, 1e-5);
    }
}

TEST(layers_that_are_recomputed)
{
    make_words();
    for (int i = 0; i < MODELS; i++) {
        compare(models[i], "recompute=block", 0, 0);
        compare(models[i], "recompute=linear", 0, 0);
    }
}

/* bfloat16 rounds by 2^-9, fp16 by 2^-12; the losses are near log 211 = 5.4. */
TEST(language_models_in_16_bits)
{
    make_words();
    for (int i = 0; i < MODELS; i++) {
        compare(models[i], "amp_mode=bf16", 4e-3, 4e-2);
        compare(models[i], "amp_mode=fp16 loss_scale=256", 5e-4, 5e-3);
        compare(models[i], "amp_mode=bf16 recompute=block grad_accumulation=2", 4e-3, 4e-2);
    }
}
