/* The next word of a text. Its score is perplexity, the exponential of the loss. The baseline knows how often each word
 * is used in the training text, and nothing else. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/text/text.h"
#include "task/task.h"

typedef struct {
    vt_task task;
    double baseline_loss; /* NAN: not known */
    double floor;         /* perplexity of the source of a synthetic text; NAN: not known */
} language;

/* How many of `windows` windows have token `place` of the text among their targets. */
static int64_t windows_with(int64_t place, const vt_text_source *set)
{
    const int64_t length = set->config->seq_len, stride = set->config->stride, last = set->source.sample_count - 1;
    const int64_t low = place > length ? (place - length + stride - 1) / stride : 0, high = (place - 1) / stride;
    const int64_t end = high < last ? high : last;
    return place > 0 && end >= low ? end - low + 1 : 0;
}

/* The loss of the frequencies of the training text on the windows of the validation set; what it doesn't have counts
 * once. */
static vt_status loss_of_frequencies(const vt_text_source *training, const vt_text_source *validation, double *loss)
{
    enum { BLOCK = 4096 };
    vt_status status = VT_OK;
    const int64_t *counts = training->vocabulary->counts, size = training->vocabulary->count;
    const vt_config *config = validation->config;
    const int64_t tokens = (validation->source.sample_count - 1) * config->stride + config->seq_len + 1;
    int32_t block[BLOCK];
    double all = 0, sum = 0, weights = 0;
    for (int64_t i = 0; i < size; i++) all += counts[i] > 0 ? (double)counts[i] : 1;
    for (int64_t first = 0; first < tokens; first += BLOCK) {
        const int64_t count = tokens - first < BLOCK ? tokens - first : BLOCK;
        VT_TRY(vt_corpus_read(validation->corpus, first, count, block));
        for (int64_t i = 0; i < count; i++) {
            const double weight = (double)windows_with(first + i, validation);
            const int64_t found = block[i] < size ? counts[block[i]] : 0;
            sum -= weight * log((found > 0 ? (double)found : 1) / all);
            weights += weight;
        }
    }
    *loss = sum / weights;
done:
    return status;
}

/* "perplexity 110.5" in entropy.txt beside the training text, which `vitrain synth --text` writes. */
static double read_floor(const char *text)
{
    double floor = NAN;
    char *path = vt_text_format("%.*sentropy.txt", (int)(vt_file_name(text) - text), text);
    FILE *file = NULL;
    if (vt_file_open(path, &file, NULL) != VT_OK) vt_error_clear();
    if (file != NULL && fscanf(file, "perplexity %lf", &floor) != 1) floor = NAN;
    if (file != NULL) fclose(file);
    free(path);
    return floor;
}

static void tell_epoch(int64_t epoch, int64_t epochs, double training_loss, const vt_evaluation *validation)
{
    vt_log_script("[%ld/%ld] Train loss: %.5f, validation loss: %.5f", epoch, epochs, vt_text_plain_nan(training_loss),
                  validation->loss);
    vt_log_info("  Perplexity: train %.2f, valid %.2f", exp(vt_text_plain_nan(training_loss)), exp(validation->loss));
}

static void tell_test(double last, double best)
{
    if (isnan(best))
        vt_log_info("Final test perplexity: %.2f", exp(last));
    else
        vt_log_info("Final test perplexity: %.2f, of the best checkpoint %.2f", exp(last), exp(best));
}

static vt_status language_open(const vt_config *config, const vt_source *training, const vt_source *validation,
                               vt_task **task)
{
    vt_status status = VT_OK;
    language *own = vt_allocate(1, sizeof *own, "the task");
    const vt_text_source *text = (const vt_text_source *)training;
    own->task.kind = vt_task_kind_of(config);
    own->task.config = config;
    own->task.by_batch = true;
    own->baseline_loss = own->floor = NAN;
    own->task.scores = (vt_score_names){.column = "perplexity",
                                        .baseline = "unigram",
                                        .baseline_is = "word frequencies",
                                        .curve = vt_text_copy("Perplexity/valid"),
                                        .count = 1,
                                        .tokens = config->seq_len,
                                        .exponential = "perplexity",
                                        .tell_epoch = tell_epoch,
                                        .tell_test = tell_test};
    own->task.scores.names = vt_allocate(1, sizeof *own->task.scores.names, "the scores' names");
    own->task.scores.names[0] = vt_text_copy("valid");
    *task = &own->task;
    if (text == NULL || text->vocabulary == NULL) goto done;
    own->task.vocabulary = text->vocabulary->words;
    own->task.vocabulary_size = text->vocabulary->count;
    own->floor = read_floor(text->source.path);
    if (config->vocabulary == NULL && validation != NULL)
        VT_TRY(loss_of_frequencies(text, (const vt_text_source *)validation, &own->baseline_loss));
done:
    return status;
}

static void language_log_data(const vt_task *task, const vt_source *training, const vt_source *validation)
{
    (void)training, (void)validation;
    vt_log_info("losses of an epoch and of a set are means of the batches' means, as in the course's log; "
                "vitrain evaluate gives the mean over all words");
    if (!task->config->causal)
        vt_log_warning(
            "causal is false: the model sees the words that it has to predict, but for the last, so its loss is "
            "no measure of how well it knows the language, and it can't write; --causal masks them");
}

static void language_score(vt_task *task, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                           const float *losses, vt_scores_of *sums)
{
    (void)task, (void)prediction, (void)target;
    for (int64_t i = 0; i < pass->batch; i++) sums->values[0] += (double)losses[i];
    sums->counts[0] += (double)pass->batch;
}

static bool language_has_baseline(const vt_config *config)
{
    return config->data_loader_config != VT_LOADER_SYNTHETIC && config->vocabulary == NULL;
}

static void language_finish(const vt_task *task, vt_evaluation *evaluation)
{
    const language *own = (const language *)task;
    evaluation->model.values[1] = exp(evaluation->loss);
    if (!evaluation->has_baseline) return;
    evaluation->baseline_loss = evaluation->baseline.values[0] = own->baseline_loss;
    evaluation->baseline.values[1] = exp(own->baseline_loss);
}

static char *language_remark(const vt_task *task, double loss)
{
    const language *own = (const language *)task;
    if (isnan(own->floor)) return vt_text_format(", perplexity %.2f", exp(loss));
    return vt_text_format(", perplexity %.2f, %.3f of the text's own %.2f (entropy.txt)", exp(loss),
                          exp(loss) / own->floor, own->floor);
}

static const char *const identity[] = {"task", "seq_len", "text_lower", "text_oov", NULL};

const vt_task_kind vt_task_language = {.name = "language",
                                       .identity = identity,
                                       .open = language_open,
                                       .log_data = language_log_data,
                                       .score = language_score,
                                       .finish = language_finish,
                                       .remark = language_remark,
                                       .has_baseline = language_has_baseline};
