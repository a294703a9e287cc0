/* The two transformers on text over ranks: after one step every layout's loss and gradients are those of one rank, as
 * docs/parallelism.md promises; the vocabulary does not divide, and some windows have no targets. */
#include "beside_one.h"
#include "word_windows.h"

enum { WORDS = 101, WINDOW = 14 };

static int32_t words[MOST][WINDOW], targets[MOST][WINDOW];

static const vt_test_samples samples = {"vocab_size=101 seq_len=14 embed_dim=32 num_heads=4 depth=2 ffn_dim=50 lr=1e-3 "
                                        "num_iters=10 num_epochs=None bucket_cap_mb=0.01",
                                        {(const char *)words, (const char *)targets},
                                        {sizeof words[0], sizeof targets[0]},
                                        1};

static void open_side(side *s, const char *settings, const vt_launch *launch)
{
    open_samples(s, &samples, settings, launch);
}

static void make_words(int count)
{
    draw_windows(7, WORDS, count, WINDOW, words[0], targets[0]);
    for (int i = 0; i < WINDOW; i++) targets[count - 1][i] = -1;
}

/* Every split of these ranks over the axes; `stages`: over pipeline stages, too. */
static void over_layouts(const char *model, const char *more, bool stages)
{
    static const char *const orders[] = {"tp-cp-dp", "dp-cp-tp", "cp-tp-dp"};
    const int ranks = vt_test_engine->size;
    const int batch = ranks == 3 ? 6 : 8;
    int layouts = 0;
    make_words(batch);
    for (int p = 1; p <= (stages ? ranks : 1); p++)
        for (int t = 1; t <= 4; t *= 2)
            for (int c = 1; c <= ranks; c++) {
                if (ranks % (p * t * c) != 0 || (stages && p == 1) || p > 4) continue;
                const char *layout = SETTINGS("tensor_parallel=%d context_parallel=%d pipeline_parallel=%d "
                                              "parallel_order=%s %s",
                                              t, c, p, orders[layouts++ % 3], more);
                compare_with_one(SETTINGS("global_batch_size=%d %s", batch, model), layout, open_side);
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
