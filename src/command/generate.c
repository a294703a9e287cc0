/* vitrain generate: text that a language model writes. */
#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "forecast/language.h"
#include "model/continuation.h"
#include "source/text/text.h"

/* One text, and what it is made with. */
typedef struct {
    const vt_config *config;
    const vt_generate_flags *flags;
    vt_vocabulary *vocabulary;
    vt_continuation *continuation;
    int32_t *words;         /* [count], of the text so far */
    int64_t count, fed;     /* the first `fed` words have been through the model */
    float *scores;          /* [vocab_size] */
    vt_vocabulary *unknown; /* words of the prompt that the model doesn't know */
} writing;

/* ---- a word ---- */

static double uniform(const writing *w, int64_t text, int64_t place)
{
    return vt_random_element((uint64_t)w->flags->seed, vt_random_name_key("words of a text") + (uint64_t)text,
                             (uint64_t)place);
}

/* The scores of the next word. Keys and values are kept as long as the text fits into a window; then each new word
 * moves the window, and with it the positions of all words, so that all keys and values change. */
static vt_status score_next(writing *w)
{
    const int64_t beyond = w->count - w->config->seq_len, first = beyond > 0 ? beyond : 0;
    const int64_t fed = beyond > 0 ? 0 : w->fed;
    w->fed = w->count;
    return vt_continuation_feed(w->continuation, fed, w->words + first + fed, w->count - first - fed, w->scores);
}

/* ---- the prompt ---- */

static vt_status add_word(const char *word, size_t length, void *context)
{
    writing *w = context;
    const int32_t number = vt_vocabulary_find(w->vocabulary, word, length);
    if (number < 0) vt_vocabulary_add(w->unknown, word, length, 1);
    w->words = vt_grow(w->words, (size_t)w->count, sizeof *w->words, "a text");
    w->words[w->count++] = number;
    return VT_OK;
}

/* A word by its frequency in the training text, which the checkpoint doesn't have. */
static vt_status draw_first_word(writing *w, int64_t text)
{
    vt_status status = VT_OK;
    vt_config training = *w->config; /* its strings stay the configuration's */
    vt_vocabulary *counted = NULL;
    double all = 0, random = 0;
    training.vocabulary = NULL;
    if (vt_text_vocabulary(&training, &counted) != VT_OK) {
        status =
            vt_error_context("a text without a prompt begins with a word drawn by its frequency in the training text; "
                             "give --prompt, or the text by --data_dir");
        goto done;
    }
    const char *const *words = counted->words;
    const int64_t *counts = counted->counts, size = counted->count;
    for (int64_t i = 0; i < size; i++) all += (double)counts[i];
    random = uniform(w, text, 0) * all;
    int64_t i = 0;
    for (; i + 1 < size && random >= (double)counts[i]; i++) random -= (double)counts[i];
    VT_TRY(add_word(words[i], strlen(words[i]), w));
done:
    vt_vocabulary_close(&counted);
    return status;
}

static vt_status check_known(const writing *w)
{
    enum { NAMED = 8 };
    vt_status status = VT_OK;
    const int64_t count = w->unknown->count;
    vt_text names = {0};
    for (int64_t i = 0; i < count && i < NAMED; i++)
        vt_text_append(&names, "%s'%.60s'", i > 0 ? ", " : "", w->unknown->words[i]);
    if (count > NAMED) vt_text_append(&names, " and %ld others", count - NAMED);
    VT_CHECK(count == 0, "--prompt: the model doesn't know %s; it knows the %ld words of %s", names.characters,
             w->vocabulary->count, w->config->vocabulary);
done:
    vt_text_close(&names);
    return status;
}

static vt_status begin_text(writing *w, int64_t text)
{
    vt_status status = VT_OK;
    vt_split_facts facts;
    const char *prompt = w->flags->prompt;
    w->count = 0;
    VT_TRY(vt_split(prompt, strlen(prompt), "--prompt", w->config->text_lower, add_word, w, &facts));
    if (facts.words == 0) VT_TRY(draw_first_word(w, text));
    VT_TRY(check_known(w));
done:
    return status;
}

/* ---- all ---- */

/* Can the model write? */
static vt_status check_model(const vt_config *config, const char *named)
{
    vt_status status = VT_OK;
    VT_CHECK(vt_trained_on_text(config), "generate: %s was not trained on text; `vitrain predict` makes forecasts",
             named);
    VT_CHECK(config->causal,
             "generate: %s was trained without causal: true, so that it saw each word that it had to predict, and "
             "can't write; train one with --config=lm or --causal",
             named);
    VT_CHECK(
        config->context_parallel == 1 && config->pipeline_parallel == 1 && config->zero_stage == 0,
        "generate: each rank needs all layers; leave context_parallel and pipeline_parallel at 1 and zero_stage at 0 "
        "(--tensor_parallel divides the model)");
done:
    return status;
}

static vt_status write_text(writing *w, int64_t text, bool prints)
{
    vt_status status = VT_OK;
    const vt_generate_flags *flags = w->flags;
    const char *const *words = w->vocabulary->words;
    w->fed = 0;
    for (int64_t i = 0; i < w->count && prints; i++) vt_print(i == 0 ? "%s" : " %s", words[w->words[i]]);
    for (int64_t i = 0; i < flags->tokens; i++) {
        VT_TRY(score_next(w));
        const double random = uniform(w, text, i + 1);
        const int32_t next =
            vt_language_draw(w->scores, w->vocabulary->count, flags->temperature, flags->top_k, random);
        w->words = vt_grow(w->words, (size_t)w->count, sizeof *w->words, "a text");
        w->words[w->count++] = next;
        if (prints) vt_print(" %s", words[next]);
        if (prints) fflush(stdout);
    }
    if (prints) vt_print("\n");
done:
    return status;
}

vt_status vt_command_generate(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_generate_flags *flags = call->flags;
    const char *named = call->operands[0];
    const int64_t words = flags->count * flags->tokens;
    vt_trained model;
    vt_inference with = {0};
    writing w = {.flags = flags, .unknown = vt_vocabulary_open()};
    double seconds = 0;
    VT_TRY(vt_trained_open(named, call->option_count, call->options, call->launch.world_size, &model));
    const vt_config *config = w.config = model.config;
    VT_TRY(check_model(config, named));
    VT_TRY(vt_vocabulary_read(config->vocabulary, &w.vocabulary));
    VT_CHECK(w.vocabulary->count <= config->vocab_size, "%s: %ld words, but the model knows %ld", config->vocabulary,
             w.vocabulary->count, config->vocab_size);
    VT_TRY(begin_text(&w, 0)); /* before the model is read */
    VT_TRY(vt_language_open(&model, &call->launch, &with));
    vt_world *world = with.world;
    const bool prints = world->rank == 0;
    VT_TRY(vt_world_agree(world,
                          vt_continuation_open(config, vt_trainer_model(with.trainer), with.backend, &w.continuation)));
    w.scores = vt_allocate((size_t)config->vocab_size, sizeof *w.scores, "a text");
    for (int64_t text = 0; text < flags->count; text++) {
        VT_TRY(vt_world_agree(world, begin_text(&w, text)));
        const double begin = vt_clock_seconds();
        VT_TRY(vt_world_agree(world, write_text(&w, text, prints)));
        seconds += vt_clock_seconds() - begin;
    }
    if (prints) fprintf(stderr, "%ld words in %.2f s: %.0f words a second\n", words, seconds, (double)words / seconds);
done:
    vt_continuation_close(&w.continuation);
    vt_inference_close(&with, status);
    vt_vocabulary_close(&w.vocabulary);
    vt_vocabulary_close(&w.unknown);
    free(w.words);
    free(w.scores);
    vt_trained_close(&model);
    return status;
}
