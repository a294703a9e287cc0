/* Text: words as Python makes them, vocabulary, the file of tokens, windows, batches, and what is refused. */
#include "source/text/text.h"

#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/loader.h"
#include "settings.h"
#include "source/synthetic/sets.h"
#include "task/task.h"
#include "test.h"
#include "unit/data_files.h"

/* A configuration whose data_dir is the test's directory. No model of this task is needed, so it is not resolved. */
static vt_config *text_config(const char *settings)
{
    static const char *const below[] = {"train", "valid", "test"};
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    set_options(config, settings);
    EXPECT_OK(vt_config_set(config, "data_dir", vt_test_directory()));
    EXPECT_OK(vt_config_set(config, "expdir", test_path("runs")));
    char **paths[] = {&config->train_data_path, &config->valid_data_path, &config->inf_data_path};
    for (int i = 0; i < 3; i++) {
        free(*paths[i]);
        *paths[i] = vt_text_format("%s/%s", vt_test_directory(), below[i]);
    }
    if (config->vocab_size == 0 && vt_source_text.complete(config) != VT_OK) vt_error_clear();
    return config;
}

static vt_source *open_windows(const vt_config *config, vt_set set)
{
    vt_source *source = NULL;
    EXPECT_OK(vt_source_text.open(config, set, (vt_span){0, config->seq_len}, &source));
    return source;
}

/* ---- words ---- */

/* The words that are to come, apart by a blank. */
typedef struct {
    const char *expected;
    int64_t count;
} word_list;

static vt_status compare_word(const char *word, size_t length, void *context)
{
    word_list *list = context;
    const size_t expected = strcspn(list->expected, " ");
    EXPECT(expected == length && memcmp(word, list->expected, length) == 0, "word %ld: '%.*s'", list->count,
           (int)length, word);
    list->expected += expected + (list->expected[expected] == ' ');
    list->count++;
    return VT_OK;
}

/* Python 3.11: text.lower().split(). What is before and after a sigma decides, beyond what is case-ignorable (points,
 * accents), also where that is cased itself (U+02B0, U+0345). */
TEST(final_sigmas_of_python)
{
    static const char text[] =
        "\u039f\u0394\u039f\u03a3 \u039f\u03a3. \u039f\u03a3\u02b0 A\u03a3\u0345- 1\u1e9e\u039f'\u0301\u03a3 "
        "\u02b0\u03a3 A.\u03a3.B \u03a3\u0391\u03a3\u03a3 '\u03a3' 5\u03a3 A\u00ad\u03a3";
    static const char lower[] = "\u03bf\u03b4\u03bf\u03c2 \u03bf\u03c2. \u03bf\u03c2\u02b0 a\u03c2\u0345- "
                                "1\u00df\u03bf'\u0301\u03c2 \u02b0\u03c3 a.\u03c3.b \u03c3\u03b1\u03c3\u03c2 "
                                "'\u03c3' 5\u03c3 a\u00ad\u03c2";
    vt_split_facts facts;
    if (!vt_split_lowers_all()) return vt_test_lacks("built without libunistring");
    word_list list = {.expected = lower};
    EXPECT_OK(vt_split(text, sizeof text - 1, "text", true, compare_word, &list, &facts));
    EXPECT(list.count == 11);
}

/* Python 3.11: text.lower().split(), of a text with a mark, a final sigma, white space of many kinds, U+200B, which is
 * none, and a letter whose lower case has two characters. */
TEST(words_of_python)
{
    static const char text[] =
        "\357\273\277  The \303\211COLE of \316\237\316\224\316\245\316\243\316\243\316\225\316\245\316\243\342\200\203"
        "\304\260stanbul\034 \305\214\302\240\304\220\302\205\316\240 x\342\200\213Y\011\012 \316\221\316\243 "
        "\316\243 "
        "end";
    static const char lower[] = "the \303\251cole of "
                                "\316\277\316\264\317\205\317\203\317\203\316\265\317\205\317\202 "
                                "i\314\207stanbul \305\215 \304\221 \317\200 x\342\200\213y \316\261\317\202 "
                                "\317\203 end";
    static const char same[] = "The \303\211COLE of "
                               "\316\237\316\224\316\245\316\243\316\243\316\225\316\245\316\243 "
                               "\304\260stanbul \305\214 \304\220 \316\240 x\342\200\213Y \316\221\316\243 "
                               "\316\243 end";
    word_list list = {.expected = same};
    vt_split_facts facts;
    EXPECT_OK(vt_split(text, sizeof text - 1, "text", false, compare_word, &list, &facts));
    EXPECT(facts.words == 12 && list.count == 12 && facts.has_mark && !facts.kept_upper);
    if (!vt_split_lowers_all()) return vt_test_lacks("built without libunistring");
    list = (word_list){.expected = lower};
    EXPECT_OK(vt_split(text, sizeof text - 1, "text", true, compare_word, &list, &facts));
    EXPECT(facts.words == 12 && list.count == 12 && !facts.kept_upper);
}

static vt_status count_word(const char *word, size_t length, void *context)
{
    (void)word, (void)length, (void)context;
    return VT_OK;
}

TEST(bytes_that_are_no_text)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {{"a\nb\xff", 4, "line 2, byte 3 of the file, 0xff, is not UTF-8"},
                 {"\xc0\x80", 2, "is not UTF-8"}, /* too long a form */
                 {"\xe0\x80\x80", 3, "is not UTF-8"},
                 {"\xed\xa0\x80", 3, "is not UTF-8"},      /* a surrogate */
                 {"\xf4\x90\x80\x80", 4, "is not UTF-8"},  /* beyond 10FFFF */
                 {"ab \xe2\x80", 5, "byte 3 of the file"}, /* cut off */
                 {"a\n\nb \0 c", 8, "line 3, byte 5 of the file is NUL"}};
    vt_split_facts facts;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_ERROR(vt_split(cases[i].bytes, cases[i].size, "text", true, count_word, NULL, &facts), cases[i].message);
    char *length = vt_test_owned(vt_allocate(VT_LONGEST_WORD + 8, 1, "a test"));
    memset(length, 'x', VT_LONGEST_WORD + 8);
    length[1] = '\n';
    EXPECT_ERROR(vt_split(length, VT_LONGEST_WORD + 3, "text", true, count_word, NULL, &facts),
                 "line 2, byte 2 of the file: a word of more than 1000000 bytes");
    EXPECT_OK(vt_split(length, VT_LONGEST_WORD + 2, "text", true, count_word, NULL, &facts));
}

/* ---- vocabulary ---- */

TEST(vocabulary_in_order_of_code_points)
{
    static const char *const words[] = {"b", "\xef\xbf\xbd", "a", "\xf0\x9f\x98\x80", "ab", "\xc3\xa9", "Z", "b"};
    static const char *const sorted[] = {"Z", "a", "ab", "b", "\xc3\xa9", "\xef\xbf\xbd", "\xf0\x9f\x98\x80"};
    SCOPED(vt_vocabulary) *vocabulary = vt_vocabulary_open();
    for (int i = 0; i < 8; i++) vt_vocabulary_add(vocabulary, words[i], strlen(words[i]), 0);
    const uint64_t before = vt_vocabulary_key(vocabulary);
    vt_vocabulary_sort(vocabulary);
    EXPECT(vocabulary->count == 7 && vt_vocabulary_key(vocabulary) != before);
    for (int i = 0; i < 7; i++) {
        EXPECT(strcmp(vocabulary->words[i], sorted[i]) == 0, "%d", i);
        EXPECT(vt_vocabulary_find(vocabulary, sorted[i], strlen(sorted[i])) == i, "%d", i);
    }
    for (int i = 0; i < 8; i++) vt_vocabulary_add(vocabulary, words[i], strlen(words[i]), 1);
    EXPECT(vocabulary->count == 7 && vocabulary->counts[3] == 2 && vocabulary->counts[0] == 1);
    EXPECT(vt_vocabulary_find(vocabulary, "abc", 3) == -1 && vt_vocabulary_find(vocabulary, "ab", 1) == 1);
}

/* Many words, among them long ones: the table grows. */
TEST(vocabulary_of_many_words)
{
    enum { WORDS = 70000, LONG = 3 << 20 };
    SCOPED(vt_text) text = {0};
    SCOPED(vt_corpus) *corpus = NULL;
    const vt_corpus_options options = {.lower = true};
    for (int i = 0; i < WORDS; i++) vt_text_append(&text, "W%06d%s", i, i % 100 == 0 ? "\n" : " ");
    for (int i = 0; i < 3; i++) vt_text_append(&text, "%0999999d ", i);
    const char *path = test_write("train.txt", text.characters, text.length);
    EXPECT_OK(vt_corpus_open(path, NULL, &options, &corpus));
    EXPECT(corpus->head.token_count == WORDS + 3 && corpus->vocabulary->count == WORDS + 3);
    int32_t tokens[WORDS + 3];
    EXPECT_OK(vt_corpus_read(corpus, 0, WORDS + 3, tokens));
    for (int i = 0; i < WORDS + 3; i++) EXPECT(tokens[i] == (i < WORDS ? i + 3 : i - WORDS), "%d: %d", i, tokens[i]);
    EXPECT(vt_vocabulary_find(corpus->vocabulary, "w069999", 7) == WORDS + 2);
}

/* ---- the file of tokens ---- */

static ino_t inode_of(const char *path)
{
    struct stat info = {0};
    VT_ASSERT(stat(path, &info) == 0);
    return info.st_ino;
}

/* It is made once, and anew when the text, its date, an option or the vocabulary is another, or the file is damaged. */
TEST(tokens_are_kept)
{
    const char *path = test_write("train.txt", "b a b c", 7), *kept = vt_test_owned(vt_text_format("%s.vitrain", path));
    vt_corpus *corpus = NULL;
    vt_corpus_options options = {.lower = true};
    static const int32_t expected[] = {1, 0, 1, 2};
    int32_t tokens[4];
    ino_t before = 0;
    for (int round = 0; round < 7; round++) {
        if (round == 2) test_write("train.txt", "b a b d", 7);
        if (round == 3) VT_ASSERT(utime(path, &(struct utimbuf){1000, 1000}) == 0);
        if (round == 4) options.lower = false;
        if (round == 5) VT_ASSERT(truncate(kept, 4099) == 0);
        if (round == 6) options.unknown_word = true;
        EXPECT_OK(vt_corpus_open(path, NULL, &options, &corpus));
        EXPECT_OK(vt_corpus_read(corpus, 0, 4, tokens));
        const int32_t shift = round == 6; /* <unk> is the first word */
        for (int i = 0; i < 4; i++) EXPECT(tokens[i] == expected[i] + shift, "round %d, %d: %d", round, i, tokens[i]);
        EXPECT(corpus->vocabulary->count == 3 + shift);
        EXPECT_TEXT(corpus->vocabulary->words[2 + shift], round < 2 ? "c" : "d");
        vt_corpus_close(&corpus);
        if (round > 0) EXPECT((inode_of(kept) == before) == (round == 1), "round %d", round);
        before = inode_of(kept);
    }
}

/* With another vocabulary: unknown words are left out, or become <unk>. */
TEST(words_that_are_not_in_the_vocabulary)
{
    const char *train = test_write("train.txt", "a b c a", 7), *other = test_write("valid.txt", "a x c y y b", 11);
    int32_t tokens[6];
    for (int unknown = 0; unknown < 2; unknown++) {
        const vt_corpus_options options = {.lower = true, .unknown_word = unknown};
        SCOPED(vt_corpus) *known = NULL, *corpus = NULL;
        EXPECT_OK(vt_corpus_open(train, NULL, &options, &known));
        EXPECT_OK(vt_corpus_open(other, known->vocabulary, &options, &corpus));
        EXPECT(corpus->head.words == 6 && corpus->head.unknown == 3 && corpus->head.token_count == (unknown ? 6 : 3));
        static const int32_t dropped[] = {0, 2, 1}, replaced[] = {1, 0, 3, 0, 0, 2};
        EXPECT_OK(vt_corpus_read(corpus, 0, corpus->head.token_count, tokens));
        for (int64_t i = 0; i < corpus->head.token_count; i++)
            EXPECT(tokens[i] == (unknown ? replaced : dropped)[i], "%ld: %d", i, tokens[i]);
    }
}

/* ---- windows ---- */

TEST(windows_of_a_text)
{
    char text[512];
    int used = 0;
    for (int i = 0; i < 50; i++) used += snprintf(text + used, sizeof text - (size_t)used, "w%02d ", i);
    test_write("train.txt", text, (size_t)used);
    test_write("valid.txt", text, (size_t)used);
    static const int strides[] = {1, 3, 4, 60};
    for (int s = 0; s < 4; s++) {
        const int64_t stride = strides[s], windows = (50 - 8 - 1) / stride + 1;
        SCOPED(vt_config) *config = text_config(SETTINGS("seq_len=8 stride=%ld", stride));
        EXPECT(config->vocab_size == 50);
        SCOPED(vt_source) *source = open_windows(config, VT_SET_TRAINING);
        EXPECT(source->sample_count == windows, "stride %ld: %ld", stride, source->sample_count);
        SCOPED(vt_loader) *loader = TEST_LOADER_OF(source, .global_batch_size = 5, .workers = 2, .prefetch = 2);
        vt_loader_begin(loader, 0, 0);
        int64_t sample = 0;
        for (const vt_batch *batch; (batch = test_next(loader)) != NULL;)
            for (int64_t i = 0; i < batch->sample_count; i++, sample++)
                for (int64_t k = 0; k < 8; k++) {
                    EXPECT(((const int32_t *)batch->tensors[VT_TENSOR_INPUT])[8 * i + k] == sample * stride + k);
                    EXPECT(((const int32_t *)batch->tensors[VT_TENSOR_TARGET])[8 * i + k] == sample * stride + k + 1);
                }
        EXPECT(sample == windows);
    }
}

/* A rank of a context axis reads its run of each window. */
TEST(part_of_a_window)
{
    test_write("train.txt", "a b c d e f g", 13);
    SCOPED(vt_config) *config = text_config("seq_len=5 stride=1");
    SCOPED(vt_source) *source = NULL;
    int32_t tokens[2][2];
    void *tensors[VT_BATCH_TENSORS] = {tokens[0], tokens[1]};
    const int64_t samples[1] = {1};
    EXPECT_OK(vt_source_text.open(config, VT_SET_TRAINING, (vt_span){3, 2}, &source));
    const vt_reading *reading = vt_source_reading(source);
    vt_read_plan *plan = reading->open(source);
    EXPECT_OK(reading->make(plan, samples, 1, tensors));
    for (int64_t i = 0; i < plan->item_count; i++) EXPECT_OK(reading->run(plan, i, NULL));
    EXPECT(tokens[0][0] == 4 && tokens[0][1] == 5 && tokens[1][0] == 5 && tokens[1][1] == 6);
    const vt_file_extent extent = reading->extent(plan, 0, 0);
    EXPECT(extent.offset == 4096 + 4 * 4 && extent.bytes == 12 && reading->extent(plan, 0, 1).bytes == -1);
    reading->close(plan);
}

/* The partial last batch of training is kept: every rank has as many samples as in any other batch, and those that are
 * not there count in no loss. */
TEST(partial_batch_is_filled_up)
{
    enum { PARTS = 3, BATCH = 6, WINDOWS = 20, LENGTH = 4 };
    char text[256];
    int used = 0, seen[WINDOWS] = {0};
    for (int i = 0; i < WINDOWS + LENGTH; i++) used += snprintf(text + used, sizeof text - (size_t)used, "w%02d ", i);
    test_write("train.txt", text, (size_t)used);
    SCOPED(vt_config) *config = text_config("seq_len=4 stride=1");
    SCOPED(vt_source) *source = open_windows(config, VT_SET_TRAINING);
    EXPECT(source->sample_count == WINDOWS && vt_source_batches(source, WINDOWS, BATCH) == 4);
    for (int part = 0; part < PARTS; part++) {
        SCOPED(vt_loader) *loader =
            TEST_LOADER_OF(source, .global_batch_size = BATCH, .part = part, .parts = PARTS, .fill = true,
                           .shuffle = true, .seed = 7, .workers = 1, .prefetch = 2);
        EXPECT(vt_loader_batch_count(loader) == 4);
        vt_loader_begin(loader, 0, 0);
        for (int b = 0; b < 4; b++) {
            const vt_batch *batch = test_next(loader);
            EXPECT(batch != NULL && batch->sample_count == BATCH / PARTS && batch->global_count == (b < 3 ? BATCH : 2));
            const int32_t *x = batch->tensors[VT_TENSOR_INPUT], *y = batch->tensors[VT_TENSOR_TARGET];
            for (int64_t i = 0; i < batch->sample_count; i++) {
                const int64_t sample = batch->samples[i];
                EXPECT((sample < 0) == (b == 3 && (i > 0 || part > 1)), "part %d, batch %d", part, b);
                if (sample >= 0) seen[sample]++;
                for (int64_t k = 0; k < LENGTH; k++) {
                    EXPECT(x[LENGTH * i + k] == (sample < 0 ? 0 : sample + k));
                    EXPECT(y[LENGTH * i + k] == (sample < 0 ? -1 : sample + k + 1));
                }
            }
        }
    }
    for (int i = 0; i < WINDOWS; i++) EXPECT(seen[i] == 1, "window %d: %d times", i, seen[i]);
}

TEST(random_words)
{
    SCOPED(vt_config) *config = text_config("seq_len=6 data_loader_config=synthetic vocab_size=11");
    SCOPED(vt_source) *source = open_windows(config, VT_SET_TRAINING);
    int32_t tokens[2][6], again[2][6];
    EXPECT_OK(source->kind->read(source, 3, NULL, (void *[]){tokens[0], tokens[1]}));
    EXPECT_OK(source->kind->read(source, 3, NULL, (void *[]){again[0], again[1]}));
    EXPECT(memcmp(tokens, again, sizeof tokens) == 0 && source->is_constant);
    for (int i = 0; i < 6; i++)
        EXPECT(tokens[0][i] >= 0 && tokens[0][i] < 11 && (i == 0 || tokens[0][i] == tokens[1][i - 1]));
}

/* ---- files ---- */

TEST(files_of_a_directory)
{
    char *path = NULL;
    SCOPED(vt_config) *config = text_config("vocab_size=9");
    EXPECT_ERROR(vt_text_path(config, VT_SET_TRAINING, &path),
                 "has no training text; expected wiki.train.raw, wiki.train.tokens or train.txt there");
    EXPECT_OK(vt_text_path(config, VT_SET_TEST, &path));
    EXPECT(path == NULL && !vt_source_text.has_test_set(config));
    test_write("wiki.valid.raw", "a", 1);
    EXPECT_ERROR(vt_text_path(config, VT_SET_TRAINING, &path), "has no training text; expected");
    test_write("wiki.train.raw", "a b", 3);
    EXPECT_OK(vt_text_path(config, VT_SET_TRAINING, &path));
    EXPECT(path != NULL && strstr(path, "/wiki.train.raw") != NULL);
    free(path);
    test_write("wiki.test.raw", "a b", 3);
    EXPECT(vt_source_text.has_test_set(config));
    test_write("test.txt", "a", 1);
    EXPECT_ERROR(vt_text_path(config, VT_SET_TRAINING, &path), "holds files of two sets");
    EXPECT_OK(vt_config_set(config, "train_data_path", "elsewhere/t"));
    EXPECT_OK(vt_text_path(config, VT_SET_TRAINING, &path));
    EXPECT_TEXT(path, "elsewhere/t");
    free(path);
}

TEST(texts_that_are_refused)
{
    vt_source *source = NULL;
    SCOPED(vt_config) *config = text_config("seq_len=4 vocab_size=100");
    const vt_span part = {0, 4};
    test_write("valid.txt", "x y", 3);
    test_write("train.txt", "", 0);
    EXPECT_ERROR(vt_source_text.open(config, VT_SET_TRAINING, part, &source), "train.txt is empty");
    test_write("train.txt", " \n\t", 3);
    EXPECT_ERROR(vt_source_text.open(config, VT_SET_TRAINING, part, &source), "there is no word in it");
    test_write("train.txt", "the THE The the the", 19);
    EXPECT_ERROR(vt_source_text.open(config, VT_SET_TRAINING, part, &source), "its only word is 'the'");
    test_write("train.txt", "a b c d", 7);
    EXPECT_ERROR(
        vt_source_text.open(config, VT_SET_TRAINING, part, &source),
        "has 4 known tokens (and 0 of words that are not in the vocabulary), but a window of seq_len 4 needs 5");
    EXPECT_ERROR(vt_source_text.open(config, VT_SET_VALIDATION, part, &source),
                 "has 0 known tokens (and 2 of words that are not in the vocabulary)");
    EXPECT_OK(vt_config_set(config, "vocab_size", "3"));
    EXPECT_ERROR(vt_source_text.open(config, VT_SET_TRAINING, part, &source),
                 "vocab_size 3 is less than the 4 words of the training text");
}

TEST(vocabulary_of_a_file)
{
    vt_vocabulary *vocabulary = NULL;
    EXPECT_OK(vt_vocabulary_read(test_write("words", "b\na\n<unk>\n", 10), &vocabulary));
    EXPECT(vocabulary->count == 3 && vt_vocabulary_find(vocabulary, "a", 1) == 1);
    vt_vocabulary_close(&vocabulary);
    EXPECT_ERROR(vt_vocabulary_read(test_write("words", "b\n\nc\n", 5), &vocabulary), "line 2 is empty");
    EXPECT_ERROR(vt_vocabulary_read(test_write("words", "b\nb\n", 4), &vocabulary),
                 "line 2 is empty, holds NUL or stands");
    EXPECT_ERROR(vt_vocabulary_read(test_write("words", "b\n", 2), &vocabulary), "at least two words");
}

/* ---- the baseline ---- */

/* -mean log(frequency) over all targets of all windows. */
TEST(loss_of_word_frequencies)
{
    static const char text[] = "a b a c a b d a c c b a d a", other[] = "a d c b a a d b c a d";
    static const double counts[] = {6, 3, 3, 2};
    test_write("train.txt", text, sizeof text - 1);
    test_write("valid.txt", other, sizeof other - 1);
    for (int stride = 1; stride < 8; stride++) {
        SCOPED(vt_config) *config = text_config(SETTINGS("seq_len=3 stride=%d task=language", stride));
        SCOPED(vt_source) *training = open_windows(config, VT_SET_TRAINING),
                          *validation = open_windows(config, VT_SET_VALIDATION);
        SCOPED(vt_task) *task = NULL;
        SCOPED(vt_evaluation) evaluation;
        double sum = 0;
        EXPECT_OK(vt_task_kind_of(config)->open(config, training, validation, &task));
        for (int64_t w = 0; w < validation->sample_count; w++)
            for (int64_t k = 1; k <= 3; k++) sum -= log(counts[other[2 * (w * stride + k)] - 'a'] / 14);
        const double expected = sum / (double)(3 * validation->sample_count);
        vt_evaluation_open(1, true, &evaluation);
        evaluation.loss = 2;
        task->kind->finish(task, &evaluation);
        EXPECT(fabs(evaluation.baseline_loss - expected) < 1e-12, "stride %d: %g, expected %g", stride,
               evaluation.baseline_loss, expected);
        EXPECT(evaluation.model.values[1] == exp(2) && evaluation.baseline.values[1] == exp(evaluation.baseline_loss));
        EXPECT(task->vocabulary_size == 4 && strcmp(task->vocabulary[3], "d") == 0);
    }
}

/* ---- a text of a known entropy ---- */

/* What the words are drawn by is what the perplexities are computed from. */
TEST(perplexities_of_a_synthetic_language)
{
    enum { TOKENS = 300000 };
    SCOPED(vt_text_language) *language = vt_text_language_open(5);
    const vt_text_perplexities of = vt_text_language_perplexities(language);
    double all = 0, exact = 0, single = 0,
           *counts = vt_test_owned(vt_allocate(VT_TEXT_WORDS, sizeof *counts, "a test"));
    for (int w = 0; w < VT_TEXT_WORDS; w++) all += vt_text_language_probability(language, 12, 345, w);
    EXPECT(fabs(all - 1) < 1e-12, "%g", all);
    for (int i = 0, last_but_one = 0, last = 1; i < TOKENS; i++) {
        const int word = vt_text_language_next(language, last_but_one, last, vt_random_element(3, 4, (uint64_t)i));
        exact -= log(vt_text_language_probability(language, last_but_one, last, word)) / TOKENS;
        counts[word]++;
        last_but_one = last;
        last = word;
    }
    for (int w = 0; w < VT_TEXT_WORDS; w++)
        if (counts[w] > 0) single -= counts[w] / TOKENS * log(counts[w] / TOKENS);
    EXPECT(fabs(exp(exact) / of.exact - 1) < 0.01, "%g, expected %g", exp(exact), of.exact);
    EXPECT(fabs(exp(single) / of.one_word - 1) < 0.01, "%g, expected %g", exp(single), of.one_word);
    EXPECT(of.exact < of.two_words && of.two_words < of.one_word);
    EXPECT(strlen(vt_text_language_word(language, 999)) == 6);
}

/* ---- texts with more windows than an order has memory for ---- */

TEST(order_without_memory)
{
    static const int64_t counts[] = {1, 2, 3, 5, 64, 65, 300, 4097};
    char *seen = vt_test_owned(vt_allocate(4097, 1, "a test"));
    int64_t same = 0;
    for (int c = 0; c < 8; c++) {
        memset(seen, 0, 4097);
        for (int64_t i = 0; i < counts[c]; i++) {
            const int64_t place = vt_random_permuted(9, 2, counts[c], i);
            EXPECT(place >= 0 && place < counts[c] && !seen[place], "%ld of %ld", i, counts[c]);
            seen[place] = 1;
        }
    }
    for (int64_t i = 0; i < 4097; i++)
        same += vt_random_permuted(9, 2, 4097, i) == vt_random_permuted(9, 3, 4097, i) ||
                vt_random_permuted(9, 2, 4097, i) == i;
    EXPECT(same < 20, "%ld of 4097 places are the same", same);
    vt_source source = {.sample_count = INT64_C(1) << 40};
    const vt_loader_options options = {
        .source = &source, .global_batch_size = 6, .part = 1, .parts = 2, .shuffle = true, .seed = 1};
    SCOPED(vt_sampler) *sampler = vt_sampler_open(&options);
    const vt_batch slice = vt_sampler_batch(sampler, 3, 1000);
    EXPECT(slice.sample_count == 3 && slice.first_in_batch == 3 &&
           vt_sampler_batch_count(sampler) == ((INT64_C(1) << 40) + 5) / 6);
    for (int64_t i = 0; i < 3; i++)
        EXPECT(slice.samples[i] == vt_random_permuted(1, 3, source.sample_count, 6000 + 3 + i));
}
