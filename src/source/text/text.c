#include "source/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"

static const vt_source_kind vt_source_text_noise;

enum { SETS = 3, NAMINGS = 3 };

/* How the files of a data_dir may be called. */
static const char *const file_names[NAMINGS][SETS] = {{"wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"},
                                                      {"wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"},
                                                      {"train.txt", "valid.txt", "test.txt"}};
static const char *const option_names[SETS] = {"train_data_path", "valid_data_path", "inf_data_path"};
static const char *const set_names[SETS] = {"training", "validation", "test"};

static bool is_noise(const vt_config *config)
{
    return config->data_loader_config == VT_LOADER_SYNTHETIC;
}

/* ---- files ---- */

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

vt_status vt_text_find(const char *directory, vt_set set, char **path)
{
    vt_status status = VT_OK;
    int naming = -1;
    *path = NULL;
    for (int n = 0; n < NAMINGS; n++) {
        bool any = false;
        for (int i = 0; i < SETS; i++) {
            char *name = vt_text_format("%s/%s", directory, file_names[n][i]);
            any = any || is_file(name);
            if (i == (int)set && naming < 0 && is_file(name)) *path = vt_text_copy(name);
            free(name);
        }
        VT_CHECK(!any || naming < 0,
                 "data_dir %s holds files of two sets, %s and %s; say which by train_data_path, "
                 "valid_data_path and inf_data_path, or keep one there",
                 directory, file_names[naming][0], file_names[n][0]);
        if (any) naming = n;
    }
done:
    if (status != VT_OK) free(*path);
    if (status != VT_OK) *path = NULL;
    return status;
}

vt_status vt_text_path(const vt_config *config, vt_set set, char **path)
{
    vt_status status = VT_OK;
    const char *const options[SETS] = {config->train_data_path, config->valid_data_path, config->inf_data_path};
    static const char *const below[SETS] = {"train", "valid", "test"};
    size_t length = strlen(config->data_dir);
    while (length > 0 && config->data_dir[length - 1] == '/') length--;
    char *derived = vt_text_format("%.*s/%s", (int)length, config->data_dir, below[set]);
    char *advice = vt_text_format(
        "`vitrain synth --text %s` makes synthetic text; `vitrain plan` needs only --vocab_size=N", config->data_dir);
    *path = NULL;
    if (strcmp(options[set], derived) != 0 || is_file(derived)) { /* the option says it */
        *path = vt_text_copy(options[set]);
        goto done;
    }
    VT_TRY(vt_source_check_directory(config, (vt_option_id)(VT_OPTION_train_data_path + set), advice));
    VT_TRY(vt_text_find(config->data_dir, set, path));
    VT_CHECK(
        *path != NULL || set == VT_SET_TEST,
        "data_dir %s has no %s text; expected %s, %s or %s there (docs/data.md says how to make them; `vitrain synth "
        "--text DIR` makes some), or a file that %s names; `vitrain plan` needs only --vocab_size=N",
        config->data_dir, set_names[set], file_names[0][set], file_names[1][set], file_names[2][set],
        option_names[set]);
done:
    free(advice);
    free(derived);
    return status;
}

static bool has_test_set(const vt_config *config)
{
    char *path = NULL;
    const bool has = !is_noise(config) && vt_text_path(config, VT_SET_TEST, &path) == VT_OK && path != NULL;
    vt_error_clear(); /* of the other sets it is an error, too */
    free(path);
    return has;
}

static vt_corpus_options options_of(const vt_config *config)
{
    return (vt_corpus_options){
        .lower = config->text_lower, .unknown_word = config->text_oov == VT_OOV_UNK, .other_directory = config->expdir};
}

vt_status vt_text_vocabulary(const vt_config *config, vt_vocabulary **vocabulary)
{
    vt_status status = VT_OK;
    vt_corpus *corpus = NULL;
    char *path = NULL;
    vt_corpus_options options = options_of(config);
    options.only_words = true;
    *vocabulary = NULL;
    if (config->vocabulary != NULL) return vt_vocabulary_read(config->vocabulary, vocabulary);
    VT_TRY(vt_text_path(config, VT_SET_TRAINING, &path));
    VT_TRY(vt_corpus_open(path, NULL, &options, &corpus));
    *vocabulary = corpus->vocabulary;
    corpus->vocabulary = NULL;
done:
    vt_corpus_close(&corpus);
    free(path);
    return status;
}

/* ---- of a configuration ---- */

/* The number of words, unless it is set. */
static vt_status complete(vt_config *config)
{
    vt_status status = VT_OK;
    vt_vocabulary *vocabulary = NULL;
    if (config->vocab_size > 0) return VT_OK; /* opening the text checks it */
    VT_CHECK(!is_noise(config), "data_loader_config synthetic reads no text; give --vocab_size=N, the number of words");
    VT_TRY(vt_text_vocabulary(config, &vocabulary));
    config->vocab_size = vocabulary->count;
done:
    vt_vocabulary_close(&vocabulary);
    return status;
}

static int specs(const vt_config *config, vt_span part, vt_tensor_spec *list)
{
    (void)config;
    list[VT_TENSOR_INPUT] = (vt_tensor_spec){VT_TENSOR_INT32, 1, {part.count}};
    list[VT_TENSOR_TARGET] = (vt_tensor_spec){VT_TENSOR_INT32, 1, {part.count}};
    return 2;
}

/* ---- a set ---- */

int64_t vt_text_windows(int64_t tokens, int64_t seq_len, int64_t stride)
{
    return tokens > seq_len ? (tokens - seq_len - 1) / stride + 1 : 0;
}

static void close_set(vt_source *source)
{
    vt_text_source *own = (vt_text_source *)source;
    vt_corpus_close(&own->corpus);
    vt_vocabulary_close(&own->vocabulary);
    free((char *)(uintptr_t)source->path);
    free(own);
}

static vt_status open_text(const vt_config *config, vt_text_source *own)
{
    vt_status status = VT_OK;
    const vt_set set = own->source.set;
    const vt_corpus_options options = options_of(config);
    char *path = NULL;
    VT_TRY(vt_text_path(config, set, &path));
    VT_CHECK(path != NULL, "data_dir %s has no test file; name one by inf_data_path", config->data_dir);
    own->source.path = path;
    VT_TRY(vt_text_vocabulary(config, &own->vocabulary));
    const int64_t words = own->vocabulary->count;
    VT_CHECK(words <= config->vocab_size,
             "vocab_size %ld is less than the %ld words of the training text; leave it out", config->vocab_size, words);
    const bool own_words = set == VT_SET_TRAINING && config->vocabulary == NULL;
    VT_TRY(vt_corpus_open(path, own_words ? NULL : own->vocabulary, &options, &own->corpus));
    const vt_corpus *corpus = own->corpus;
    own->source.whole_count = vt_text_windows(corpus->head.token_count, config->seq_len, config->stride);
    VT_CHECK(own->source.whole_count > 0,
             "%s has %ld known tokens (and %ld of words that are not in the vocabulary), but a window of seq_len "
             "%ld needs "
             "%ld; use a longer text, or a smaller --seq_len",
             path, corpus->head.words - corpus->head.unknown, corpus->head.unknown, config->seq_len,
             config->seq_len + 1);
done:
    return status;
}

static vt_status open_set(const vt_config *config, vt_set set, vt_span part, vt_source **result)
{
    vt_status status = VT_OK;
    enum { NOISE_WINDOWS = 1 << 16 };
    const int64_t limit = set == VT_SET_TRAINING ? config->limit_nsamples : config->limit_nsamples_val;
    vt_text_source *own = vt_allocate(1, sizeof *own, "a source");
    vt_source *source = &own->source;
    *source = (vt_source){.kind = is_noise(config) ? &vt_source_text_noise : &vt_source_text,
                          .set = set,
                          .option_name = option_names[set],
                          .whole_count = NOISE_WINDOWS,
                          .is_constant = is_noise(config)};
    source->tensor_count = specs(config, part, source->specs);
    own->config = config;
    own->part = part;
    if (is_noise(config))
        source->path = vt_text_copy("random words");
    else
        VT_TRY(open_text(config, own));
    source->sample_count = source->whole_count;
    if (limit != VT_UNSET_INTEGER && limit < source->sample_count) source->sample_count = limit;
done:
    if (status != VT_OK) vt_source_close(&source);
    *result = source;
    return status;
}

/* "text: 213886 training tokens, 12050 words; 10194 of 241211 test tokens are not among them: dropped" */
static void log_sets(const vt_source *training, const vt_source *validation, const vt_source *test, const char *threads)
{
    const vt_text_source *sets[SETS] = {(const vt_text_source *)training, (const vt_text_source *)validation,
                                        (const vt_text_source *)test};
    vt_text line = {0};
    bool kept_upper = false;
    int lacking = 0; /* sets that hold unknown words */
    if (training->is_constant) {
        vt_log_info("reading: random words, the same in every batch");
        return;
    }
    vt_log_info("reading: %s", threads);
    vt_text_append(&line, "text: %ld training tokens, %ld words", sets[0]->corpus->head.token_count,
                   sets[0]->vocabulary->count);
    for (int i = 0; i < SETS; i++) {
        if (sets[i] == NULL || sets[i]->corpus->head.unknown == 0) continue;
        vt_text_append(&line, "%s %ld of %ld %s tokens", lacking++ == 0 ? ";" : " and", sets[i]->corpus->head.unknown,
                       sets[i]->corpus->head.words, set_names[i]);
    }
    if (lacking > 0)
        vt_text_append(&line, " are not among them: %s",
                       sets[0]->config->text_oov == VT_OOV_UNK ? "they become <unk>" : "dropped");
    vt_log_info("%s", line.characters);
    for (int i = 0; i < SETS; i++) {
        if (sets[i] == NULL) continue;
        if (sets[i]->corpus->head.has_mark)
            vt_log_warning("%s begins with a byte order mark, which is left out", sets[i]->source.path);
        kept_upper = kept_upper || sets[i]->corpus->head.kept_upper;
    }
    if (kept_upper)
        vt_log_warning("this build has no libunistring: letters beyond A to Z are not made lower case; `make deps` "
                       "installs it");
    vt_text_close(&line);
}

static void describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    const vt_text_source *own = (const vt_text_source *)source;
    snprintf(buffer, (size_t)size, "%s, tokens %ld to %ld", source->path, sample * own->config->stride,
             sample * own->config->stride + own->config->seq_len);
}

/* ---- reading ---- */

static vt_status read_window(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    vt_status status = VT_OK;
    const vt_text_source *own = (const vt_text_source *)source;
    const int64_t count = own->part.count, first = sample * own->config->stride + own->part.first;
    int32_t *window = vt_allocate((size_t)count + 1, sizeof *window, "a window");
    (void)decoder;
    VT_TRY(vt_corpus_read(own->corpus, first, count + 1, window));
    for (int t = 0; t < 2; t++)
        if (tensors[t] != NULL) memcpy(tensors[t], window + t, (size_t)count * sizeof *window);
done:
    free(window);
    return status;
}

static vt_file_extent extent_of(vt_source *source, int64_t sample, int64_t index)
{
    const vt_text_source *own = (const vt_text_source *)source;
    const int64_t first = sample * own->config->stride + own->part.first, bytes = sizeof(int32_t);
    if (index > 0) return (vt_file_extent){.bytes = -1};
    return (vt_file_extent){.descriptor = own->corpus->file,
                            .offset = VT_CORPUS_HEADER_BYTES + first * bytes,
                            .bytes = (own->part.count + 1) * bytes};
}

/* A window that counts in no loss. */
static void blank(const vt_source *source, void *const *tensors)
{
    const vt_text_source *own = (const vt_text_source *)source;
    for (int64_t i = 0; i < own->part.count; i++) {
        if (tensors[VT_TENSOR_INPUT] != NULL) ((int32_t *)tensors[VT_TENSOR_INPUT])[i] = 0;
        if (tensors[VT_TENSOR_TARGET] != NULL) ((int32_t *)tensors[VT_TENSOR_TARGET])[i] = -1;
    }
}

const vt_source_kind vt_source_text = {.name = "text",
                                       .complete = complete,
                                       .has_test_set = has_test_set,
                                       .needs_test_set = true,
                                       .specs = specs,
                                       .open = open_set,
                                       .close = close_set,
                                       .log = log_sets,
                                       .describe = describe,
                                       .blank = blank,
                                       .read = read_window,
                                       .extent = extent_of};

/* ---- data_loader_config: synthetic ---- */

/* A constant source: the sample is a place in the batch. */
static vt_status read_noise(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    const vt_text_source *own = (const vt_text_source *)source;
    const vt_config *config = own->config;
    const uint64_t key = vt_random_name_key("random words"), seed = (uint64_t)config->seed;
    (void)decoder;
    for (int t = 0; t < 2; t++)
        for (int64_t i = 0; i < own->part.count && tensors[t] != NULL; i++) {
            const uint64_t place = (uint64_t)(sample * (config->seq_len + 1) + own->part.first + i + t);
            ((int32_t *)tensors[t])[i] = (int32_t)(vt_random_element(seed, key, place) * (double)config->vocab_size);
        }
    return VT_OK;
}

static const vt_source_kind vt_source_text_noise = {.name = "random words",
                                                    .specs = specs,
                                                    .open = open_set,
                                                    .close = close_set,
                                                    .log = log_sets,
                                                    .describe = describe,
                                                    .read = read_noise};
