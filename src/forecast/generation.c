/* Text that a language model writes. */
#include <math.h>
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
    const vt_generation *how;
    vt_vocabulary *vocabulary;
    vt_continuation *continuation;
    int32_t *words;         /* of the text so far, [count] */
    int64_t count, fed;     /* of which so many have been fed */
    float *scores;          /* [vocab_size] */
    vt_vocabulary *unknown; /* words of the prompt that the model doesn't know */
} writing;

/* ---- a word ---- */

static double uniform(const vt_generation *how, int64_t text, int64_t place)
{
    return vt_random_element(how->seed, vt_random_name_key("words of a text") + (uint64_t)text, (uint64_t)place);
}

typedef struct {
    float score;
    int32_t number;
} scored_word;

/* By falling scores; of equal ones the lower number is first. */
static int by_score(const void *a, const void *b)
{
    const scored_word *one = a, *other = b;
    return one->score > other->score ? -1 : one->score < other->score ? 1 : one->number - other->number;
}

int32_t vt_generation_draw(const vt_generation *how, const float *scores, int64_t count, double random)
{
    const int64_t used = how->top_k > 0 && how->top_k < count ? how->top_k : count;
    scored_word *order = vt_allocate((size_t)count, sizeof *order, "a text");
    int32_t best = 0, drawn = 0;
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        order[i] = (scored_word){scores[i], i};
        if (scores[i] > scores[best]) best = i;
    }
    if (how->temperature > 0) {
        if (used < count) qsort(order, (size_t)count, sizeof *order, by_score);
        const double highest = (double)scores[best];
        for (int64_t i = 0; i < used; i++) sum += exp(((double)order[i].score - highest) / how->temperature);
        random *= sum;
        for (; drawn + 1 < used; drawn++) {
            random -= exp(((double)order[drawn].score - highest) / how->temperature);
            if (random < 0) break;
        }
        best = order[drawn].number;
    }
    free(order);
    return best;
}

/* The scores of the word behind the text. Keys and values are kept as long as the text fits into a window; behind that
 * each word moves the window, and with it the places of all words. */
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
    random = uniform(w->how, text, 0) * all;
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
    const char *prompt = w->how->prompt;
    w->count = 0;
    VT_TRY(vt_split(prompt, strlen(prompt), "--prompt", w->config->text_lower, add_word, w, &facts));
    if (facts.words == 0) VT_TRY(draw_first_word(w, text));
    VT_TRY(check_known(w));
done:
    return status;
}

/* ---- all ---- */

static vt_status write_text(writing *w, int64_t text, bool prints)
{
    vt_status status = VT_OK;
    const int64_t size = w->vocabulary->count;
    const char *const *words = w->vocabulary->words;
    w->fed = 0;
    for (int64_t i = 0; i < w->count && prints; i++) vt_print(i == 0 ? "%s" : " %s", words[w->words[i]]);
    for (int64_t i = 0; i < w->how->tokens; i++) {
        VT_TRY(score_next(w));
        const double random = uniform(w->how, text, i + 1);
        const int32_t next = vt_generation_draw(w->how, w->scores, size, random);
        w->words = vt_grow(w->words, (size_t)w->count, sizeof *w->words, "a text");
        w->words[w->count++] = next;
        if (prints) vt_print(" %s", words[next]);
        if (prints) fflush(stdout);
    }
    if (prints) vt_print("\n");
done:
    return status;
}

vt_status vt_language_generate(const vt_trained *model, const vt_generation *how, const vt_launch *launch)
{
    vt_status status = VT_OK;
    const vt_config *config = model->config;
    vt_inference with = {0};
    writing w = {.config = config, .how = how, .unknown = vt_vocabulary_open()};
    double seconds = 0;
    VT_CHECK(
        config->context_parallel == 1 && config->pipeline_parallel == 1 && config->zero_stage == 0,
        "generate: each rank needs all layers; leave context_parallel and pipeline_parallel at 1 and zero_stage at 0 "
        "(--tensor_parallel divides the model)");
    VT_TRY(vt_vocabulary_read(config->vocabulary, &w.vocabulary));
    VT_CHECK(w.vocabulary->count <= config->vocab_size, "%s: %ld words, but the model knows %ld", config->vocabulary,
             w.vocabulary->count, config->vocab_size);
    VT_TRY(begin_text(&w, 0)); /* before the model is read */
    VT_TRY(vt_language_open(model, launch, &with));
    vt_world *world = with.world;
    const bool prints = world->rank == 0;
    VT_TRY(vt_world_agree(world,
                          vt_continuation_open(config, vt_trainer_model(with.trainer), with.backend, &w.continuation)));
    w.scores = vt_allocate((size_t)config->vocab_size, sizeof *w.scores, "a text");
    for (int64_t text = 0; text < how->count; text++) {
        VT_TRY(vt_world_agree(world, begin_text(&w, text)));
        const double begin = vt_clock_seconds();
        VT_TRY(vt_world_agree(world, write_text(&w, text, prints)));
        seconds += vt_clock_seconds() - begin;
    }
    if (prints)
        fprintf(stderr, "%ld words in %.2f s: %.0f words a second\n", how->count * how->tokens, seconds,
                (double)(how->count * how->tokens) / seconds);
done:
    vt_continuation_close(&w.continuation);
    vt_inference_close(&with, status);
    vt_vocabulary_close(&w.vocabulary);
    vt_vocabulary_close(&w.unknown);
    free(w.words);
    free(w.scores);
    return status;
}
