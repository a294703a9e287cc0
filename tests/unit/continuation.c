/* A continued text has the scores that the model gives the whole window, however the words are fed: one or some at a
 * time, and again after a restart. */
#include "model/continuation.h"
#include "bare_model.h"
#include "settings.h"

enum { WORDS = 57, WINDOW = 12 };

typedef struct {
    bare_model m;
    int32_t words[WINDOW];
    float scores[WINDOW][WORDS]; /* of the whole window */
} fixture;

/* All scores of the window at once. */
static void forward_whole(fixture *f)
{
    SCOPED(vt_arena) arena = {0};
    SCOPED(vt_saved) *saved = NULL;
    const vt_model_tensor tensor = {.values = f->words};
    EXPECT_OK(vt_arena_open(f->m.backend, 1 << 24, &arena));
    vt_saved_open(f->m.model, f->m.parameters->units, &saved);
    const vt_pass pass = {.backend = f->m.backend, .arena = &arena, .parallel = f->m.rank.parallel, .batch = 1};
    vt_matrix prediction = vt_model_forward(f->m.model, &pass, &tensor, (vt_matrix){0}, saved);
    vt_linear_forward(f->m.model->head, &pass, prediction, vt_matrix_make(f->scores[0], WINDOW, WORDS));
}

static void open_fixture(fixture *f, const char *settings)
{
    *f = (fixture){0};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &f->m.backend));
    f->m.rank = open_alone(f->m.backend, WINDOW);
    set_options(f->m.rank.config, "vocab_size=57 seq_len=12 embed_dim=24 num_heads=3 depth=2 ffn_dim=40");
    set_options(f->m.rank.config, settings);
    open_bare_model(&f->m, f->m.rank.config, VT_FLOAT32);
    vt_parameters_start(f->m.parameters, 333, "");
    for (int i = 0; i < WINDOW; i++) f->words[i] = i * i % WORDS;
    forward_whole(f);
}

static void fixture_close(fixture *f)
{
    bare_model_close(&f->m);
}

/* Feeds the window in such pieces. */
static void check(fixture *f, vt_continuation *c, const int64_t *pieces)
{
    float scores[WORDS];
    int64_t fed = 0;
    for (; *pieces > 0; fed += *pieces++) {
        EXPECT_OK(vt_continuation_feed(c, fed, f->words + fed, *pieces, scores));
        for (int w = 0; w < WORDS; w++) EXPECT_NEAR(scores[w], f->scores[fed + *pieces - 1][w], 2e-5);
    }
    EXPECT(fed == WINDOW);
}

TEST(continued_texts_have_the_scores_of_whole_windows)
{
    static const char *const models[] = {"model=transformer causal=true", "model=encoder causal=true"};
    static const int64_t pieces[][WINDOW + 1] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 1, 4, 1}, {12}};
    for (int m = 0; m < 2; m++) {
        SCOPED(fixture) f;
        SCOPED(vt_continuation) *c = NULL;
        open_fixture(&f, models[m]);
        EXPECT_OK(vt_continuation_open(f.m.rank.config, f.m.model, f.m.backend, &c));
        for (int i = 0; i < 3; i++) check(&f, c, pieces[i]);
    }
}

TEST(only_causal_models_continue_texts)
{
    SCOPED(fixture) f;
    vt_continuation *c = NULL;
    open_fixture(&f, "model=encoder");
    EXPECT_ERROR(vt_continuation_open(f.m.rank.config, f.m.model, f.m.backend, &c),
                 "the model was trained without `causal`: each place has seen the words behind it, so it can't write; "
                 "train it with --causal=true");
}

TEST(sizes_that_text_models_refuse)
{
    const vt_backend gpu = {.most_head_columns = 128}, any = {.most_head_columns = 0};
    SCOPED(vt_config) *config = default_config();
    set_options(config, "model=encoder vocab_size=100 embed_dim=516 num_heads=4");
    EXPECT_ERROR(vt_model_check(config, &gpu), "heads of 129 columns");
    set_options(config, "vocab_size=3 tensor_parallel=4");
    EXPECT_ERROR(vt_model_check(config, &any),
                 "tensor_parallel 4 is more than the 3 words of the vocabulary, which it shares out; use 3");
}
