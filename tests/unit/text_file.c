/* The file of tokens beside a text, when it is damaged, cut off or left behind; and texts that are read in parts. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "settings.h"
#include "source/text/text.h"
#include "test.h"

/* Where the file has what (vt_corpus_header). */
enum {
    VERSION = 8,
    AFTER_VERSION = 12,
    TOKEN_COUNT = 48,
    UNKNOWN = 56,
    WORDS = 64,
    VOCABULARY_SIZE = 72,
    VOCABULARY_BYTES = 80,
    WORDS_CHECKSUM = 96,
    TOKENS_CHECKSUM = 100,
    HEADER_CHECKSUM = 104,
    HEADER_END = 108,
    TOKENS = 4096
};

static const vt_corpus_options options = {.lower = true};

/* A text of the words 0 to `words` - 1, all with as many digits, so that they are their own numbers. Its path. */
static const char *write_numbers(int words)
{
    SCOPED(vt_text) text = {0};
    for (int i = 0; i < words; i++) vt_text_append(&text, "%06d%c", i, i % 10 == 9 ? '\n' : ' ');
    const char *path = test_write("train.txt", text.characters, text.length);
    return path;
}

static void expect_numbers(const char *path, int words)
{
    SCOPED(vt_corpus) *corpus = NULL;
    int32_t *tokens = vt_test_owned(vt_allocate((size_t)words, sizeof *tokens, "a test"));
    EXPECT_OK(vt_corpus_open(path, NULL, &options, &corpus));
    if (corpus == NULL) return;
    EXPECT(corpus->head.token_count == words && corpus->vocabulary->count == words);
    EXPECT_OK(vt_corpus_read(corpus, 0, words, tokens));
    for (int i = 0; i < words; i++) EXPECT(tokens[i] == i, "%d: %d", i, tokens[i]);
    const char *last = SETTINGS("%06d", words - 1);
    EXPECT_TEXT(corpus->vocabulary->words[words - 1], last);
}

/* How often the log says that a file is damaged. */
static int damages(const char *log)
{
    static const char said[] = "train.txt.vitrain is damaged; its text is split into words again";
    char *text = NULL;
    int count = 0;
    EXPECT_OK(vt_file_read(log, 1 << 20, &text, NULL));
    for (const char *at = text; at != NULL && (at = strstr(at, said)) != NULL; at++) count++;
    free(text);
    return count;
}

/* A file of tokens in memory, to be changed. */
typedef struct {
    char *bytes;
    size_t size;
} image;

static image read_image(const char *path)
{
    image of = {0};
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    of.size = (size_t)info.st_size;
    EXPECT_OK(vt_file_read(path, info.st_size, &of.bytes, NULL));
    vt_test_owned(of.bytes);
    return of;
}

static uint32_t checksum_at(image of, size_t place)
{
    uint32_t value = 0;
    memcpy(&value, of.bytes + place, sizeof value);
    return value;
}

static int64_t number_at(image of, size_t place)
{
    int64_t value = 0;
    memcpy(&value, of.bytes + place, sizeof value);
    return value;
}

static void put_checksum(image of, size_t place, size_t first, size_t end)
{
    const uint32_t checksum = vt_crc32c(of.bytes + first, end - first);
    memcpy(of.bytes + place, &checksum, sizeof checksum);
}

/* With right checksums, as somebody would write it on purpose. */
static void sign(image of, size_t tokens_end)
{
    put_checksum(of, TOKENS_CHECKSUM, TOKENS, tokens_end);
    put_checksum(of, WORDS_CHECKSUM, tokens_end, of.size);
    put_checksum(of, HEADER_CHECKSUM, 0, HEADER_CHECKSUM);
}

/* Opens the text with `damaged` as its file of tokens, which must become `whole` again. */
static void expect_mended(const char *path, image damaged, image whole, int words)
{
    const char *kept = test_write("train.txt.vitrain", damaged.bytes, damaged.size);
    expect_numbers(path, words);
    const image made = read_image(kept);
    EXPECT(made.size == whole.size && memcmp(made.bytes, whole.bytes, whole.size) == 0);
}

static image copy_of(image of)
{
    const image copy = {vt_test_owned(vt_allocate(of.size, 1, "a test")), of.size};
    memcpy(copy.bytes, of.bytes, of.size);
    return copy;
}

static image make_tokens(int words, const char **path, const char **log)
{
    *path = write_numbers(words);
    *log = test_path("log");
    vt_log_filter.muted = true;
    EXPECT_OK(vt_log_open(*log, false));
    expect_numbers(*path, words);
    EXPECT(damages(*log) == 0);
    return read_image(SETTINGS("%s.vitrain", *path));
}

/* ---- damage ---- */

/* Any byte of the header. A file of an earlier version is made anew without a word. */
TEST(damaged_header)
{
    enum { COUNT = 40 };
    const char *path = NULL, *log = NULL;
    const image whole = make_tokens(COUNT, &path, &log);
    EXPECT(number_at(whole, TOKEN_COUNT) == COUNT && number_at(whole, VOCABULARY_SIZE) == COUNT);
    int said = 0;
    for (size_t place = 0; place < HEADER_END; place++) {
        const image damaged = copy_of(whole);
        damaged.bytes[place] ^= 0x10;
        expect_mended(path, damaged, whole, COUNT);
        said += place < VERSION || place >= AFTER_VERSION;
        EXPECT(damages(log) == said, "byte %zu: %d", place, damages(log));
    }
    static const size_t sizes[] = {0, 1, HEADER_END - 1, HEADER_END, TOKENS - 1, TOKENS, TOKENS + 4 * COUNT};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        expect_mended(path, (image){whole.bytes, sizes[i]}, whole, COUNT);
    expect_mended(path, (image){whole.bytes, whole.size - 1}, whole, COUNT);
    EXPECT_OK(vt_log_close());
}

/* Numbers that no file of this size can have, with the checksums of a right one. */
TEST(header_beyond_its_file)
{
    enum { COUNT = 40 };
    static const size_t places[] = {TOKEN_COUNT, UNKNOWN, WORDS, VOCABULARY_SIZE, VOCABULARY_BYTES};
    static const int64_t values[] = {
        -1, 0, COUNT - 1, COUNT + 1, 1 << 20, INT64_C(1) << 40, INT64_MAX / 8 + 1, INT64_MAX, INT64_MIN};
    const char *path = NULL, *log = NULL;
    const image whole = make_tokens(COUNT, &path, &log);
    int said = 0;
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            const image damaged = copy_of(whole);
            if (number_at(whole, places[p]) == values[v]) continue;
            memcpy(damaged.bytes + places[p], &values[v], sizeof values[v]);
            put_checksum(damaged, HEADER_CHECKSUM, 0, HEADER_CHECKSUM);
            expect_mended(path, damaged, whole, COUNT);
            EXPECT(damages(log) == ++said, "%zu: %ld", places[p], values[v]);
        }
    /* more words than the rest of the file holds, in a file of the right size */
    const image damaged = copy_of(whole);
    const int64_t size = COUNT + 30, left = number_at(whole, VOCABULARY_BYTES) - 30 * 8;
    memcpy(damaged.bytes + VOCABULARY_SIZE, &size, sizeof size);
    memcpy(damaged.bytes + VOCABULARY_BYTES, &left, sizeof left);
    sign(damaged, TOKENS + 4 * COUNT);
    expect_mended(path, damaged, whole, COUNT);
    EXPECT(damages(log) == ++said);
    EXPECT_OK(vt_log_close());
}

/* A page of zeros, as a crash of the machine leaves it; any other byte; and numbers that are none of a word, with right
 * checksums. */
TEST(damaged_tokens_and_words)
{
    static const int counts[] = {5000, 70000};
    const char *path = NULL, *log = NULL;
    for (int c = 0; c < 2; c++) {
        const int count = counts[c];
        const image whole = make_tokens(count, &path, &log);
        const size_t end = TOKENS + 4 * (size_t)count, words = end + 8 * (size_t)count;
        const size_t places[] = {TOKENS, end - 1, end, words - 1, words, whole.size - 1};
        const int32_t numbers[] = {count, -1, INT32_MIN};
        int said = 0;
        image damaged = copy_of(whole);
        memset(damaged.bytes + TOKENS + 4096, 0, 4096);
        expect_mended(path, damaged, whole, count);
        EXPECT(damages(log) == ++said);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            damaged = copy_of(whole);
            damaged.bytes[places[p]] ^= 1;
            expect_mended(path, damaged, whole, count);
            EXPECT(damages(log) == ++said, "byte %zu", places[p]);
        }
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
            damaged = copy_of(whole);
            memcpy(damaged.bytes + end - 4, &numbers[n], 4);
            sign(damaged, end);
            expect_mended(path, damaged, whole, count);
            EXPECT(damages(log) == ++said, "%d", numbers[n]);
        }
        damaged = copy_of(whole);
        damaged.bytes[whole.size - 1] = 'x'; /* a word without an end */
        sign(damaged, end);
        expect_mended(path, damaged, whole, count);
        damaged = copy_of(whole);
        damaged.bytes[words + 6] = 'x'; /* one word fewer */
        sign(damaged, end);
        expect_mended(path, damaged, whole, count);
        memcpy(damaged.bytes + words, damaged.bytes + words + 7, 7); /* the same word twice */
        damaged.bytes[words + 6] = '\0';
        sign(damaged, end);
        expect_mended(path, damaged, whole, count);
        damaged = copy_of(whole);
        memset(damaged.bytes + end, 0xff, 8); /* a word that is used -1 times */
        sign(damaged, end);
        expect_mended(path, damaged, whole, count);
        EXPECT(damages(log) == said + 4);
        EXPECT(checksum_at(whole, HEADER_CHECKSUM) == vt_crc32c(whole.bytes, HEADER_CHECKSUM));
        EXPECT_OK(vt_log_close());
    }
}

/* What happens to it while it is open is an error that names it. */
TEST(tokens_that_change_while_they_are_read)
{
    enum { COUNT = 3000 };
    vt_corpus *corpus = NULL;
    int32_t tokens[COUNT];
    const int32_t wrong = COUNT;
    const char *path = write_numbers(COUNT), *kept = SETTINGS("%s.vitrain", path);
    EXPECT_OK(vt_corpus_open(path, NULL, &options, &corpus));
    const int file = open(kept, O_WRONLY);
    VT_ASSERT(file >= 0 && pwrite(file, &wrong, 4, TOKENS + 4 * 7) == 4 && close(file) == 0);
    EXPECT_OK(vt_corpus_read(corpus, 8, COUNT - 8, tokens));
    EXPECT_ERROR(vt_corpus_read(corpus, 5, 3, tokens),
                 "train.txt.vitrain: words 5 to 7 have changed since it was opened: one is number 3000 of 3000");
    VT_ASSERT(truncate(kept, TOKENS + 4 * 2000) == 0);
    EXPECT_OK(vt_corpus_read(corpus, 8, 1992, tokens));
    EXPECT_ERROR(vt_corpus_read(corpus, 1990, 11, tokens), "train.txt.vitrain: can't read words 1990 to 2000: it has "
                                                           "become shorter than it was when it was opened");
    EXPECT_ERROR(vt_corpus_read(corpus, 2500, 1, tokens), "it has become shorter");
    vt_corpus_close(&corpus);
    expect_numbers(path, COUNT);
}

/* ---- what a killed process leaves ---- */

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Files whose names begin as those of files being written do. */
static int64_t unfinished(void)
{
    const char *command = SETTINGS("ls -A %s | grep -c '^[.]train.txt.vitrain.partial'", vt_test_directory());
    FILE *pipe = popen(command, "r");
    int count = -1;
    VT_ASSERT(pipe != NULL && fscanf(pipe, "%d", &count) == 1);
    pclose(pipe);
    return count;
}

/* The system kills it at its first write behind a few bytes. */
static void split_and_be_killed(const char *path, const vt_corpus_options *how)
{
    const pid_t child = fork();
    if (child == 0) {
        vt_corpus *corpus = NULL;
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){TOKENS + 100, TOKENS + 100});
        vt_corpus_open(path, NULL, how, &corpus);
        _exit(0);
    }
    int ended = 0;
    VT_ASSERT(child > 0 && waitpid(child, &ended, 0) == child);
    EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGXFSZ, "%x", ended);
}

/* The next split removes it, but not the file of a process that is still at work, and no others. */
TEST(leftovers_of_a_killed_split)
{
    enum { COUNT = 3000 };
    const char *path = write_numbers(COUNT);
    split_and_be_killed(path, &options);
    split_and_be_killed(path, &options);
    EXPECT(unfinished() == 2 && !is_there(test_path("train.txt.vitrain")));
    static const char *const others[] = {".train.txt.vitrain.partial.mine", ".train.txt.vitrain.partial",
                                         ".train.txt.vitrain.partial.of_a_user", ".valid.txt.vitrain.partial.abcdef",
                                         "train.txt.vitrain.backup"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) test_write(others[i], "x", 1);
    const char *busy = test_write(".train.txt.vitrain.partial.worker", "x", 1);
    const int file = open(busy, O_RDWR);
    VT_ASSERT(file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
    expect_numbers(path, COUNT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) EXPECT(is_there(test_path(others[i])), "%s", others[i]);
    EXPECT(is_there(busy) && unfinished() == 4, "%ld", unfinished());
    close(file);
    VT_ASSERT(unlink(test_path("train.txt.vitrain")) == 0);
    expect_numbers(path, COUNT);
    EXPECT(!is_there(busy) && unfinished() == 3, "%ld", unfinished());
}

/* A process that only looks leaves nothing, even if it is killed. */
TEST(leftovers_of_one_that_keeps_nothing)
{
    const char *path = write_numbers(3000), *elsewhere = test_path("elsewhere");
    VT_ASSERT(mkdir(elsewhere, 0777) == 0);
    const vt_corpus_options looking = {.lower = true, .keep_nothing = true, .other_directory = elsewhere};
    split_and_be_killed(path, &looking);
    EXPECT(unfinished() == 0 && rmdir(elsewhere) == 0); /* it is empty */
}

static const char *ready, *ready_path;

static void publish_ready(int number)
{
    (void)number;
    rename(ready, ready_path);
}

/* A process that can't make the file takes the one that another made meanwhile. */
TEST(another_process_is_faster)
{
    enum { COUNT = 3000 };
    struct rlimit before;
    const char *path = write_numbers(COUNT);
    ready = test_path("ready");
    ready_path = test_path("train.txt.vitrain");
    expect_numbers(path, COUNT);
    VT_ASSERT(rename(ready_path, ready) == 0 && getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, publish_ready);
    const struct rlimit less = {TOKENS + 100, before.rlim_max};
    VT_ASSERT(setrlimit(RLIMIT_FSIZE, &less) == 0);
    expect_numbers(path, COUNT);
    EXPECT(is_there(ready_path) && !is_there(ready) && unfinished() == 0);
    vt_corpus *corpus = NULL;
    VT_ASSERT(unlink(ready_path) == 0);
    EXPECT_ERROR(vt_corpus_open(path, NULL, &options, &corpus), "can't write");
    EXPECT(unfinished() == 0 && !is_there(ready_path));
    VT_ASSERT(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
}

/* ---- texts in parts ---- */

enum { LONG_TEXT = 9 << 20 }; /* more than two parts */

typedef struct {
    uint64_t key;
    int64_t words, bytes;
    const char *truncated; /* the file becomes shorter at the first word */
} seen;

static vt_status note_word(const char *word, size_t length, void *context)
{
    seen *s = context;
    for (size_t i = 0; i <= length; i++) /* and an end of the word */
        s->key = (s->key ^ (i < length ? (unsigned char)word[i] : 0x100u)) * 0x100000001b3u;
    if (s->truncated != NULL && s->words == 0) VT_ASSERT(truncate(s->truncated, LONG_TEXT / 2) == 0);
    s->words++;
    s->bytes += (int64_t)length;
    return VT_OK;
}

static vt_status split_file(const char *path, int64_t size, seen *of, vt_split_facts *facts)
{
    FILE *file = fopen(path, "rb");
    VT_ASSERT(file != NULL);
    const vt_status status = vt_split_file(file, size, path, true, note_word, of, facts);
    fclose(file);
    return status;
}

/* Words of 1 to 4 bytes a character, of all lengths, white space of 1 to 3 bytes, wherever the parts are cut. */
static char *long_text(void)
{
    static const char *const pieces[] = {"a", "B", "\u00c9", "\u03a3", "\u20ac", "\U0001F600", "xyz", "\u0104\u0106"};
    static const char *const blanks[] = {" ", "\n", "\u3000", "\u00a0", "\t \u2003"};
    char *text = vt_test_owned(vt_allocate(LONG_TEXT + 64, 1, "a test"));
    uint64_t state = 1;
    for (char *at = text; at < text + LONG_TEXT;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t drawn = state >> 40;
        at = stpcpy(at, drawn % 7 == 0 ? blanks[drawn / 7 % 5] : pieces[drawn / 7 % 8]);
    }
    return text;
}

TEST(texts_in_parts)
{
    char *text = long_text();
    for (int shift = 0; shift < 3; shift++) { /* other bytes are at the parts' ends */
        const char *from = text + shift;
        while ((*from & 0xC0) == 0x80) from++;
        const size_t size = strlen(from);
        vt_split_facts facts[2];
        seen of[2] = {{0}};
        const char *path = test_write("long.txt", from, size);
        EXPECT_OK(vt_split(from, size, path, true, note_word, &of[0], &facts[0]));
        EXPECT_OK(split_file(path, (int64_t)size, &of[1], &facts[1]));
        EXPECT(of[0].words == of[1].words && of[0].bytes == of[1].bytes && of[0].key == of[1].key, "%d", shift);
        EXPECT(facts[0].words == facts[1].words && facts[0].kept_upper == facts[1].kept_upper);
    }
}

/* Where bytes that are no text stand, is said alike. */
TEST(bad_bytes_in_parts)
{
    static const size_t places[] = {5, (4 << 20) - 2, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (8 << 20) + 12345};
    char *text = vt_test_owned(vt_allocate(LONG_TEXT + 1, 1, "a test"));
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int kind = 0; kind < 2; kind++) {
            vt_split_facts facts;
            seen of = {0};
            for (int i = 0; i < LONG_TEXT; i++) text[i] = i % 50 == 49 ? '\n' : 'a';
            text[places[p]] = kind == 0 ? '\xff' : '\0';
            const char *path = test_write("long.txt", text, LONG_TEXT);
            EXPECT(vt_split(text, LONG_TEXT, path, true, note_word, &of, &facts) != VT_OK);
            char *said = vt_test_owned(vt_text_copy(vt_error_text()));
            vt_error_clear();
            const char *place = SETTINGS(": line %zu, byte %zu of the file", places[p] / 50 + 1, places[p]);
            EXPECT_PART(said, place);
            EXPECT_ERROR(split_file(path, LONG_TEXT, &of, &facts), said);
        }
}

TEST(text_that_becomes_shorter)
{
    const char *path = test_write("long.txt", long_text(), LONG_TEXT);
    vt_split_facts facts;
    EXPECT_ERROR(split_file(path, LONG_TEXT, &(seen){.truncated = path}, &facts),
                 SETTINGS("long.txt: can't read it at byte %d: it has become shorter than it was when it was opened",
                          LONG_TEXT / 2));
}
