/* src/base: memory, strings and numbers, errors as values, random numbers. */
#define _GNU_SOURCE /* sched_getcpu */
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "base/threads.h"
#include "settings.h"
#include "test.h"

/* ---- memory ---- */

TEST(large_memory_is_aligned_and_refused_when_there_is_none)
{
    static const size_t sizes[] = {0, 1, 63, 4097, (size_t)2 << 20, ((size_t)5 << 20) + 7};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        unsigned char *memory = vt_test_owned(vt_allocate_large(sizes[s]));
        const uintptr_t alignment = sizes[s] < (size_t)2 << 20 ? 64 : (uintptr_t)2 << 20;
        const uintptr_t beyond = (uintptr_t)memory % alignment;
        EXPECT(memory != NULL && beyond == 0, "%zu bytes at %p", sizes[s], (void *)memory);
        if (memory != NULL) memset(memory, 0x5a, sizes[s]);
    }
    EXPECT(vt_allocate_large((size_t)-1) == NULL, "all of the address space");
}

/* ---- random ---- */

/* Known answers of the Random123 distribution (tests/kat_vectors, "philox4x32 10"). */
TEST(philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        vt_random_block block = vt_random_philox(known[i].key, known[i].counter);
        for (int w = 0; w < 4; w++) {
            EXPECT(block.word[w] == known[i].expected[w], "vector %zu word %d: %08x, expected %08x", i, w,
                   block.word[w], known[i].expected[w]);
        }
    }
}

TEST(uniform_is_inside_of_the_unit_interval)
{
    EXPECT(vt_random_uniform(0) == 0x1p-24f);
    EXPECT(vt_random_uniform(UINT32_MAX) == 1 - 0x1p-24f, "%.9g", (double)vt_random_uniform(UINT32_MAX));
    EXPECT(vt_random_uniform(0x80000000u) > 0.5f && vt_random_uniform(0x7fffffffu) < 0.5f);
}

TEST(name_key_is_fnv_1a)
{
    /* from the test vectors of http://www.isthe.com/chongo/tech/comp/fnv/ */
    EXPECT(vt_random_name_key("") == 0xcbf29ce484222325u);
    EXPECT(vt_random_name_key("a") == 0xaf63dc4c8601ec8cu);
    EXPECT(vt_random_name_key("foobar") == 0x85944171f73967e8u);
}

TEST(elements_are_independent_of_each_other_and_repeat)
{
    enum { COUNT = 20000 };
    double sum = 0, squares = 0, products = 0, previous = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = vt_random_element(333, 7, i) - 0.5;
        EXPECT(u > -0.5 && u < 0.5, "%.17g", u);
        sum += u;
        squares += u * u;
        products += u * previous;
        previous = u;
    }
    /* five standard deviations of each mean: variances 1/12, 1/180, 1/144 */
    EXPECT_NEAR(sum / COUNT, 0, 5 * sqrt(1.0 / 12 / COUNT));
    EXPECT_NEAR(squares / COUNT, 1.0 / 12, 5 * sqrt(1.0 / 180 / COUNT));
    EXPECT_NEAR(products / COUNT, 0, 5 * sqrt(1.0 / 144 / COUNT));
    EXPECT(vt_random_element(333, 7, 5) == vt_random_element(333, 7, 5));
    EXPECT(vt_random_element(333, 7, 5) != vt_random_element(334, 7, 5));
    EXPECT(vt_random_element(333, 7, 5) != vt_random_element(333, 8, 5));
    EXPECT(vt_random_element(333, 7, UINT64_C(5)) != vt_random_element(333, 7, UINT64_C(5) + (UINT64_C(1) << 32)));
}

/* Against erfc of the C library: Phi(quantile(p)) = p. A relative error e of the quantile x causes one of p of about
 * e·x·phi(x)/p < e·(x² + 1), and erfc itself is off by a few units in the last place. */
TEST(normal_quantile_inverts_the_distribution)
{
    EXPECT_NEAR(vt_random_normal_quantile(0.5), 0, 0);
    EXPECT_NEAR(vt_random_normal_quantile(0.975), 1.959963984540054, 4e-15);
    EXPECT_NEAR(vt_random_normal_quantile(0.25), -0.6744897501960817, 2e-15);
    EXPECT_NEAR(vt_random_normal_quantile(1e-20), -9.262340089798408, 2e-14);
    static const double points[] = {1e-300, 1e-100, 1e-20, 1e-12, 1e-11, 1e-5, 0.01,
                                    0.0749, 0.0751, 0.2,   0.4,   0.49,  0.5};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        double p = points[i], x = vt_random_normal_quantile(p);
        double back = 0.5 * erfc(-x / sqrt(2.0));
        EXPECT_NEAR(back / p, 1, (x * x + 1) * 1e-15 + 8e-16 * (x * x + 1));
        if (p > 1e-3) EXPECT_NEAR(vt_random_normal_quantile(1 - p), -x, 1e-13 * (fabs(x) + 1));
    }
}

static void check_permutation(const int64_t *order, int64_t count)
{
    bool *seen = vt_test_owned(calloc((size_t)count + 1, sizeof *seen));
    for (int64_t i = 0; i < count; i++) {
        bool good = order[i] >= 0 && order[i] < count && !seen[order[i]];
        EXPECT(good, "element %ld of %ld is %ld", i, count, order[i]);
        if (good) seen[order[i]] = true;
    }
}

TEST(permutation_holds_every_number_once)
{
    static const int64_t counts[] = {0, 1, 2, 7, 97, 1013};
    int64_t order[1013 + 1], other[1013];
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        order[counts[i]] = -7; /* guard */
        vt_random_permutation(333, 4, counts[i], order);
        check_permutation(order, counts[i]);
        EXPECT(order[counts[i]] == -7, "written past the end, count %ld", counts[i]);
    }
    vt_random_permutation(333, 4, 1013, other);
    EXPECT(memcmp(order, other, sizeof other) == 0, "the same seed and epoch, another order");
    vt_random_permutation(333, 5, 1013, other);
    EXPECT(memcmp(order, other, sizeof other) != 0, "two epochs, the same order");
    vt_random_permutation(334, 4, 1013, other);
    EXPECT(memcmp(order, other, sizeof other) != 0, "two seeds, the same order");
}

/* All six orders of three, each about a sixth of the time: five standard deviations of a binomial count. */
TEST(permutation_is_uniform)
{
    enum { TRIALS = 12000 };
    int found[27] = {0};
    for (uint64_t epoch = 0; epoch < TRIALS; epoch++) {
        int64_t order[3];
        vt_random_permutation(1, epoch, 3, order);
        found[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    static const int orders[] = {5, 7, 11, 15, 19, 21};
    for (int i = 0; i < 6; i++) EXPECT_NEAR(found[orders[i]], TRIALS / 6.0, 5 * sqrt(TRIALS * 5.0 / 36));
}

/* ---- text ---- */

TEST(text_grows)
{
    vt_text text = {0};
    for (int i = 0; i < 1000; i++) vt_text_append(&text, "%d,", i);
    EXPECT(text.length == strlen(text.characters) && text.length == 10 * 2 + 90 * 3 + 900 * 4, "%zu", text.length);
    EXPECT(strncmp(text.characters, "0,1,2,", 6) == 0 && strcmp(text.characters + text.length - 4, "999,") == 0);
    vt_text_close(&text);
    EXPECT(text.characters == NULL && text.length == 0);
}

TEST(shortest_digits_read_back)
{
    char digits[VT_NUMBER_SIZE];
    EXPECT_TEXT(vt_text_float(0.431169f, digits), "0.431169");
    EXPECT_TEXT(vt_text_float(0.1f, digits), "0.1");
    EXPECT_TEXT(vt_text_double(0.1, digits), "0.1");
    EXPECT_TEXT(vt_text_double(1e-7, digits), "1e-07");
    EXPECT_TEXT(vt_text_double(0, digits), "0");
    EXPECT_TEXT(vt_text_double(600, digits), "600");
    EXPECT_TEXT(vt_text_double(-10, digits), "-10");
    EXPECT_TEXT(vt_text_double(999999999999999, digits), "999999999999999");
    EXPECT_TEXT(vt_text_double(1e15, digits), "1e+15");
    EXPECT_TEXT(vt_text_float(20, digits), "20");
    EXPECT_TEXT(vt_text_double(1.0 / 3, digits), "0.3333333333333333");
    for (uint64_t i = 0; i < 2000; i++) {
        double value = ldexp(vt_random_element(1, 2, i) - 0.5, (int)(i % 200) - 100);
        EXPECT(strtod(vt_text_double(value, digits), NULL) == value, "%.17g became %s", value, digits);
        EXPECT(strtof(vt_text_float((float)value, digits), NULL) == (float)value, "%.9g became %s", value, digits);
    }
    vt_text_double(-1.7976931348623157e308, digits);
    EXPECT_TEXT(digits, "-1.7976931348623157e+308");
    EXPECT_TEXT(vt_text_float(-NAN, digits), "nan");
    EXPECT_TEXT(vt_text_double(-(double)NAN, digits), "nan");
}

TEST(bytes_in_words)
{
    char words[VT_NUMBER_SIZE];
    EXPECT_TEXT(vt_text_bytes(0, words), "0 B");
    EXPECT_TEXT(vt_text_bytes(1023, words), "1023 B");
    EXPECT_TEXT(vt_text_bytes(1536, words), "1.50 KB");
    EXPECT_TEXT(vt_text_bytes(20736000, words), "19.78 MB");
    EXPECT_TEXT(vt_text_bytes(0x1p50, words), "1024.00 TB");
}

TEST(numbers_are_read_whole_or_not_at_all)
{
    int64_t integer = 77;
    EXPECT(vt_text_to_integer("-9223372036854775808", &integer) && integer == INT64_MIN);
    EXPECT(vt_text_to_integer("9223372036854775807", &integer) && integer == INT64_MAX);
    integer = 77;
    static const char *const no_integers[] = {"", "9223372036854775808", "12x", "x", "1.0", "1e3", "-"};
    for (size_t i = 0; i < sizeof no_integers / sizeof no_integers[0]; i++)
        EXPECT(!vt_text_to_integer(no_integers[i], &integer) && integer == 77, "'%s'", no_integers[i]);
    double real = 77;
    EXPECT(vt_text_to_double("5E-4", &real) && real == 5e-4);
    EXPECT(vt_text_to_double(".5", &real) && real == 0.5);
    real = 77;
    static const char *const no_reals[] = {"", "1e999", "nan", "inf", "1,5", "0.5 ", "--1", "e5"};
    for (size_t i = 0; i < sizeof no_reals / sizeof no_reals[0]; i++)
        EXPECT(!vt_text_to_double(no_reals[i], &real) && real == 77, "'%s'", no_reals[i]);
}

TEST(nearest_name)
{
    static const char *const names[] = {"embed_dim", "depth", "num_heads", "dt", "lr"};
    const char *nearest = vt_text_nearest("embd_dim", names, 5);
    EXPECT(nearest != NULL && strcmp(nearest, "embed_dim") == 0, "%s", nearest);
    nearest = vt_text_nearest("depht", names, 5);
    EXPECT(nearest != NULL && strcmp(nearest, "depth") == 0, "%s", nearest);
    nearest = vt_text_nearest("lt", names, 5); /* one edit from both: the first */
    EXPECT(nearest != NULL && strcmp(nearest, "dt") == 0, "%s", nearest);
    EXPECT(vt_text_nearest("completely_different", names, 5) == NULL);
    EXPECT(vt_text_nearest("gpus", (const char *const[]){"eps"}, 1) == NULL); /* two edits of four letters */
    nearest = vt_text_nearest("LR", names, 5);
    EXPECT(nearest != NULL && strcmp(nearest, "lr") == 0, "%s", nearest);
    nearest = vt_text_nearest("num", names, 5); /* "lr" and "dt" are nearer by edits, but too far */
    EXPECT(nearest != NULL && strcmp(nearest, "num_heads") == 0, "%s", nearest);
    EXPECT(vt_text_nearest("x", names, 0) == NULL);
}

/* ---- status ---- */

static vt_status fails_below(void)
{
    vt_status status = VT_OK;
    VT_CHECK(1 + 1 == 3, "%d is not %d", 2, 3);
done:
    return status;
}

static vt_status fails_above(void)
{
    vt_status status = VT_OK;
    VT_TRY(fails_below());
    VT_FAIL("never reached");
done:
    if (status != VT_OK) vt_error_context("while adding %s", "ones");
    return status;
}

TEST(the_root_cause_is_kept)
{
    EXPECT_TEXT(vt_error_text(), "");
    EXPECT(fails_above() == VT_ERROR);
    EXPECT_TEXT(vt_error_text(), "while adding ones: 2 is not 3");
    EXPECT(strncmp(vt_error_place(), "tests/unit/base.c:", 18) == 0, "%s", vt_error_place());
    vt_error_note("x.c", 1, "a later one");
    EXPECT_TEXT(vt_error_text(), "while adding ones: 2 is not 3");
    vt_error error;
    vt_error_move_out(&error);
    EXPECT(vt_error_text()[0] == '\0' && vt_error_place()[0] == '\0');
    vt_error_move_in(&error);
    EXPECT_TEXT(vt_error_text(), "while adding ones: 2 is not 3");
    vt_error_clear();
}

TEST(a_long_message_is_cut_not_overrun)
{
    char *longer = vt_test_owned(malloc(10000));
    memset(longer, 'a', 9999);
    longer[9999] = '\0';
    vt_error_note("x.c", 1, "%s", longer);
    EXPECT(strlen(vt_error_text()) == sizeof((vt_error *)0)->text - 1, "%zu", strlen(vt_error_text()));
    vt_error_context("%s", longer);
    EXPECT(strlen(vt_error_text()) == sizeof((vt_error *)0)->text - 1, "%zu", strlen(vt_error_text()));
    vt_error_clear();
}

/* Whatever a value holds, a message is one line. */
TEST(messages_are_on_one_line)
{
    char line[64];
    vt_text_on_one_line(line, sizeof line, "a\nb\tc\r\033[2J\177\302\205d\303\251 \342\200\246");
    EXPECT_TEXT(line, "a\\nb\\tc\\r\\x1b[2J\\x7f\\x85d\303\251 \342\200\246");
    vt_text_on_one_line(line, 6, "abcd\nefg");
    EXPECT_TEXT(line, "abcd");
    vt_text_on_one_line(line, 4, "ab\342\200\246"); /* cut off between characters */
    EXPECT_TEXT(line, "ab");
    vt_error_note("x.c", 1, "found '%s'", "1\n2");
    vt_error_context("--x=%s", "1\n2");
    EXPECT_TEXT(vt_error_text(), "--x=1\\n2: found '1\\n2'");
    vt_error_clear();
}

/* Bytes that are not UTF-8: alone, too long a form, a surrogate, beyond 10FFFF, cut off. */
TEST(names_are_clean_text)
{
    static const char *const names[][2] = {{"\n u10\t", "u10"},
                                           {" \v", ""},
                                           {"a b", "a b"},
                                           {"\377\300\200\355\240\200", "\\xff\\xc0\\x80\\xed\\xa0\\x80"},
                                           {"\364\220\200\200\342\200", "\\xf4\\x90\\x80\\x80\\xe2\\x80"},
                                           {"\360\237\214\200\233[m", "\360\237\214\200\\x9b[m"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *clean = vt_text_clean(names[i][0]), *again = vt_text_clean(clean);
        EXPECT(strcmp(clean, names[i][1]) == 0 && strcmp(again, clean) == 0, "%zu: '%s'", i, clean);
        free(clean);
        free(again);
    }
}

/* Cells that a spreadsheet would take for formulas are text, and are read as what they were. */
TEST(cells_of_tables)
{
    static const char *const cells[][2] = {{"u10", "u10"},       {"=1+1", "'=1+1"},     {"-x", "'-x"},
                                           {"-", "-"},           {"@a,b", "\"'@a,b\""}, {"+\"", "\"'+\"\"\""},
                                           {"'", "'"},           {"'=a", "''=a"},       {"''-a", "'''-a"},
                                           {"a\nb", "\"a\nb\""}, {"\tx", "'\tx"},       {"'tis", "'tis"}};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        SCOPED(vt_text) line = {0};
        vt_csv_append(&line, cells[i][0]);
        EXPECT(strcmp(line.characters, cells[i][1]) == 0, "%zu: %s", i, line.characters);
        if (line.characters[0] != '"') EXPECT(strcmp(vt_csv_written(line.characters), cells[i][0]) == 0, "%zu", i);
    }
}

/* A sparse file without line ends must not take memory for all of it. */
TEST(long_lines_come_in_pieces)
{
    const char *path = test_write("lines", "one\ntwo", 7);
    char *line = NULL;
    size_t size = 0;
    int64_t bytes = 0;
    FILE *file = NULL;
    EXPECT_OK(vt_file_open(path, &file, &bytes));
    EXPECT(bytes == 7 && vt_file_line(file, &line, &size) == 4 && strcmp(line, "one\n") == 0);
    EXPECT(vt_file_line(file, &line, &size) == 3 && strcmp(line, "two") == 0);
    EXPECT(vt_file_line(file, &line, &size) == 0 && feof(file));
    fclose(file);
    EXPECT(truncate(path, (off_t)1 << 40) == 0);
    EXPECT_OK(vt_file_open(path, &file, &bytes));
    EXPECT(vt_file_line(file, &line, &size) == 4);
    for (int i = 0; i < 3; i++) EXPECT(vt_file_line(file, &line, &size) == VT_FILE_LONGEST_LINE);
    EXPECT(size < 4 * (size_t)VT_FILE_LONGEST_LINE);
    fclose(file);
    free(line);
    EXPECT_ERROR(vt_file_read(path, 100, &line, NULL), "lines has 1099511627776 bytes, expected at most 100");
}

/* Wherever the limit of open files was met, the message says which and what raises it. */
TEST(the_limit_of_open_files_is_named)
{
    struct rlimit limit;
    char expected[200];
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    vt_error_note("x.c", 1, "can't open %s: %s", "a.npy", strerror(EMFILE));
    snprintf(expected, sizeof expected,
             "can't open a.npy: Too many open files; this process may have %llu open files: `ulimit -n NUMBER` before "
             "its start raises that",
             (unsigned long long)limit.rlim_cur);
    EXPECT(strncmp(vt_error_text(), expected, strlen(expected)) == 0, "%s", vt_error_text());
    vt_error_clear();
    vt_error_note("x.c", 1, "can't open %s: %s", "a.npy", strerror(ENFILE));
    EXPECT(strstr(vt_error_text(), "fs.file-max") != NULL && strstr(vt_error_text(), "ulimit") == NULL);
    vt_error_clear();
}

/* ---- threads ---- */

static int cores_of_caller(void)
{
    unsigned char cores[VT_CORES_BYTES] = {0};
    int count = 0;
    if (pthread_getaffinity_np(pthread_self(), sizeof cores, (cpu_set_t *)cores) != 0) return 0;
    for (int i = 0; i < VT_CORES_BYTES; i++) count += __builtin_popcount(cores[i]);
    return count;
}

static void *reader(void *context)
{
    int *counts = context;
    counts[0] = cores_of_caller();
    vt_threads_roam();
    counts[1] = cores_of_caller();
    return NULL;
}

static void write_cores(const char *domain, const char *list)
{
    test_write(SETTINGS("%s/cpulist", domain), list, strlen(list));
}

TEST(domains_without_cores_of_the_process_do_not_count)
{
    EXPECT(vt_threads_domains(vt_test_directory()) == 1, "without any");
    write_cores("node0", "0-4095\n");
    EXPECT(vt_threads_domains(vt_test_directory()) == 1);
    write_cores("node1", "\n"); /* memory only */
    write_cores("node2", "8190-8191,99999\n");
    EXPECT(vt_threads_domains(vt_test_directory()) == 1);
    write_cores("node40", "8190,0-8191\n");
    EXPECT(vt_threads_domains(vt_test_directory()) == 2);
}

TEST(threads_stay_on_cores_of_their_own_and_readers_roam)
{
    unsigned char cores[VT_CORES_BYTES];
    int count = 0, alone = 0, on[1024] = {0}, shared = 0, counts[2];
    vt_threads_cores(cores);
    for (int i = 0; i < VT_CORES_BYTES; i++) count += __builtin_popcount(cores[i]);
    if (getenv("OMP_PROC_BIND") != NULL || getenv("OMP_PLACES") != NULL || getenv("GOMP_CPU_AFFINITY") != NULL)
        count = 0;
    if (count < 2 || count > 1024)
        return vt_test_skip("needs 2 to 1024 cores, and that OpenMP was not told where its threads stay");
    vt_threads_pin(count);
#pragma omp parallel num_threads(count) reduction(+ : alone)
    {
        alone += cores_of_caller() == 1;
        on[omp_get_thread_num()] = sched_getcpu();
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) shared += on[i] == on[j];
    EXPECT(alone == count && shared == 0, "%d of %d threads stay, %d pairs on one core", alone, count, shared);
    pthread_t thread;
    VT_ASSERT(pthread_create(&thread, NULL, reader, counts) == 0);
    pthread_join(thread, NULL);
    EXPECT(counts[0] == 1 && counts[1] == count, "a thread starts on %d cores, then may use %d", counts[0], counts[1]);
    vt_threads_pin(1); /* fewer threads than cores: none stays */
    EXPECT(cores_of_caller() == count, "%d cores", cores_of_caller());
}
