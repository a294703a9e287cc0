#include "forecast/language.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/text/text.h"
#include "training/reader.h"

vt_status vt_language_open(const vt_trained *model, const vt_launch *launch, vt_inference *with)
{
    vt_status status = VT_OK;
    const vt_config *config = model->config;
    vt_vocabulary *words = NULL;
    VT_TRY(vt_world_open(config, launch, &with->world));
    VT_TRY(vt_world_agree(with->world, vt_task_kind_of(config)->open(config, NULL, NULL, &with->task)));
    with->task->by_batch = false; /* a score is not to depend on the batch */
    VT_TRY(vt_world_agree(with->world, vt_vocabulary_read(config->vocabulary, &words)));
    with->task->vocabulary = words->words; /* have to be the checkpoint's */
    with->task->vocabulary_size = words->count;
    VT_TRY(vt_inference_open(model, with));
done:
    if (with->task != NULL) with->task->vocabulary = NULL; /* not needed any more */
    vt_vocabulary_close(&words);
    return status;
}

/* ---- a word ---- */

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

int32_t vt_language_draw(const float *scores, int64_t count, double temperature, int64_t top_k, double random)
{
    const int64_t used = top_k > 0 && top_k < count ? top_k : count;
    scored_word *order = vt_allocate((size_t)count, sizeof *order, "a text");
    int32_t best = 0, drawn = 0;
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        order[i] = (scored_word){scores[i], i};
        if (scores[i] > scores[best]) best = i;
    }
    if (temperature > 0) {
        if (used < count) qsort(order, (size_t)count, sizeof *order, by_score);
        const double highest = (double)scores[best];
        for (int64_t i = 0; i < used; i++) sum += exp(((double)order[i].score - highest) / temperature);
        random *= sum;
        for (; drawn + 1 < used; drawn++) {
            random -= exp(((double)order[drawn].score - highest) / temperature);
            if (random < 0) break;
        }
        best = order[drawn].number;
    }
    free(order);
    return best;
}

/* ---- evaluate ---- */

/* The set's loss in windows that begin every config->stride words: a line on standard output and one of the file. */
static vt_status score(const vt_config *config, const vt_inference *with, vt_set set, vt_text *file)
{
    vt_status status = VT_OK;
    vt_world *world = with->world;
    vt_source *source = NULL;
    vt_loader *loader = NULL;
    vt_evaluation result = {0};
    VT_TRY(vt_world_agree(world, vt_reader_open_source(config, world, set, &source)));
    VT_TRY(vt_source_check_same(world, (const vt_source *const[]){source}, 1, NULL));
    VT_TRY(vt_world_agree(world,
                          vt_reader_open_loader(config, world, with->backend, (vt_reader_use){0}, source, &loader)));
    VT_TRY(vt_validate(with->trainer, loader, false, NULL, NULL, &result));
    if (world->rank != 0) goto done;
    const double loss = result.loss, bits = loss / log(2);
    const int64_t stride = config->stride, windows = source->sample_count;
    vt_text_append(file, "%ld,%ld,%.9g,%.9g,%.9g\n", stride, windows, loss, exp(loss), bits);
    vt_print("%8ld %10ld %10.6f %11.3f %10.5f\n", stride, windows, loss, exp(loss), bits);
done:
    vt_evaluation_close(&result);
    vt_loader_close(&loader);
    vt_source_close(&source);
    return status;
}

static vt_status find_text(const vt_config *config, vt_set set, char **text)
{
    vt_status status = VT_OK;
    VT_TRY(vt_text_path(config, set, text));
    VT_CHECK(*text != NULL, "data_dir %s has no test file; name one by inf_data_path", config->data_dir);
done:
    return status;
}

vt_status vt_language_evaluate(const vt_trained *model, bool test, vt_place *place, const vt_launch *launch)
{
    vt_status status = VT_OK;
    vt_config *config = model->config;
    vt_inference with = {0};
    vt_text file = {0};
    char *text = NULL, *path = NULL;
    const vt_set set = test ? VT_SET_TEST : VT_SET_VALIDATION;
    const int64_t strides[2] = {config->seq_len, config->stride};
    VT_TRY(vt_language_open(model, launch, &with));
    VT_TRY(vt_world_agree(with.world, find_text(config, set, &text)));
    vt_source_add_file(text, &place->made_from);
    VT_TRY(vt_place_take(place, with.world));
    path = vt_text_format("%s/perplexity.csv", place->directory);
    const bool is_first = with.world->rank == 0;
    vt_text_append(&file, "stride,windows,loss,perplexity,bits\n");
    if (is_first) {
        vt_print_wrapped("%s (%s), windows of %ld words of %s\n", model->checkpoint, model->how_far, config->seq_len,
                         text);
        vt_print("%8s %10s %10s %11s %10s\n", "stride", "windows", "loss", "perplexity", "bits/token");
    }
    for (int i = 0; i < 2 && (i == 0 || strides[1] != strides[0]); i++) {
        config->stride = strides[i];
        VT_TRY(score(config, &with, set, &file));
    }
    VT_TRY(vt_world_agree(with.world, is_first ? vt_file_write(path, file.characters, file.length) : VT_OK));
    if (is_first) vt_print("written: %s\n", path);
done:
    vt_inference_close(&with, status);
    vt_text_close(&file);
    free(text);
    free(path);
    return status;
}
