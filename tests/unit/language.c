/* Training steps of language models on one rank: micro-batches and recomputation change nothing, and 16 bits little. */
#include "bounds.h"
#include "operations/halves.h"
#include "parallel/launch.h"
#include "settings.h"
#include "test.h"
#include "training/step.h"
#include "word_windows.h"

enum { WORDS = 211, WINDOW = 24, BATCH = 12, STEPS = 6 };

static int32_t words[BATCH][WINDOW], targets[BATCH][WINDOW];

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_trainer *trainer;
} side;

static side open_side(const char *model, const char *settings)
{
    static const char common[] = "vocab_size=211 seq_len=24 embed_dim=32 num_heads=2 depth=2 ffn_dim=80 lr=1e-3 "
                                 "num_iters=10 num_epochs=None global_batch_size=12";
    const vt_launch alone = {.world_size = 1, .local_size = 1};
    side s = {.config = config_with(1, common, SETTINGS("%s %s", model, settings))};
    EXPECT_OK(vt_world_open(s.config, &alone, &s.world));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &s.backend));
    const vt_trainer_options options = {.steps = 10, .world = s.world};
    EXPECT_OK(vt_trainer_open(s.config, &options, s.backend, &s.trainer));
    return s;
}

static void side_close(side *s)
{
    vt_trainer_close(&s->trainer);
    vt_backend_close(&s->backend);
    vt_world_close(&s->world, false);
    vt_config_close(&s->config);
}

/* From the words to the loss an encoder's layer rounds at 9 places (the inputs, outputs and weights of products), a
 * decoder's at 17, the head at 2: at most 54 with two layers each. As many are on the way back. */
enum { ROUNDINGS = 2 * 9 + 2 * 17 + 2 };

/* Losses and norms of gradients, relative; 0: the same bits. Otherwise each step begins at equal values. */
static void compare(const char *model, const char *settings, double of_loss, double of_norm)
{
    const vt_batch batch = {.sample_count = BATCH, .global_count = BATCH, .tensors = {words[0], targets[0]}};
    SCOPED(side) plain = open_side(model, ""), other = open_side(model, settings);
    const bool in_half = other.config->amp_mode != VT_AMP_NONE;
    vt_step_figures expected = {0}, actual = {0};
    double first = 0;
    for (int i = 0; i < STEPS; i++) {
        if (of_loss > 0) start_from(other.trainer, plain.trainer);
        EXPECT_OK(vt_step_train(plain.trainer, &batch, &expected));
        EXPECT_OK(vt_step_train(other.trainer, &batch, &actual));
        if (i == 0) first = expected.loss;
        EXPECT(fabs(actual.loss - expected.loss) <= of_loss * expected.loss, "%s %s: step %d: loss %.9g, expected %.9g",
               model, settings, i, actual.loss, expected.loss);
        EXPECT(fabs(actual.gradient_norm - expected.gradient_norm) <= of_norm * expected.gradient_norm,
               "%s %s: step %d: norm %.9g, expected %.9g", model, settings, i, actual.gradient_norm,
               expected.gradient_norm);
        EXPECT(!in_half || actual.loss != expected.loss, "%s %s: that is float32", model, settings);
    }
    EXPECT(expected.loss < first);
}

static const char *const models[] = {"model=transformer causal=true dropout=0.1", "model=transformer dropout=0.1",
                                     "model=encoder causal=true attention_scale=sqrt dropout=0.1",
                                     "model=encoder dropout=0"};
enum { MODELS = sizeof models / sizeof models[0] };

/* Only the order of sums differs. */
TEST(micro_batches_of_windows)
{
    const double of_loss = allowed_of_roundings(ROUNDINGS, 0x1p-24),
                 of_norm = allowed_of_roundings(2 * ROUNDINGS, 0x1p-24);
    draw_windows(3, WORDS, BATCH, WINDOW, words[0], targets[0]);
    for (int i = 0; i < MODELS; i++) {
        compare(models[i], "grad_accumulation=3", of_loss, of_norm);
        compare(models[i], "grad_accumulation=12 recompute=block", of_loss, of_norm);
    }
}

TEST(layers_that_are_recomputed)
{
    draw_windows(3, WORDS, BATCH, WINDOW, words[0], targets[0]);
    for (int i = 0; i < MODELS; i++) {
        compare(models[i], "recompute=block", 0, 0);
        compare(models[i], "recompute=linear", 0, 0);
    }
}

/* A rounding also turns units of ReLU near 0, a share of 0.8 times their relative error, 0.42 √54 units of the type:
 * 2.5 of those, which is well below what is allowed. */
TEST(language_models_in_16_bits)
{
    draw_windows(3, WORDS, BATCH, WINDOW, words[0], targets[0]);
    for (int i = 0; i < MODELS; i++) {
        FOR_EACH_HALF(type)
        {
            const double of_loss = allowed_of_roundings(ROUNDINGS, half_unit(type)),
                         of_norm = allowed_of_roundings(2 * ROUNDINGS, half_unit(type));
            const char *amp = type == VT_BFLOAT16 ? "amp_mode=bf16" : "amp_mode=fp16 loss_scale=256";
            compare(models[i], amp, of_loss, of_norm);
            compare(models[i], SETTINGS("%s recompute=block grad_accumulation=2", amp), of_loss, of_norm);
        }
    }
}
