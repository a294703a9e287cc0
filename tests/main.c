#define _GNU_SOURCE /* nftw */
#include "test.h"

#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "operations/paths.h"
#include "parallel/group.h"
#include "parallel/launch.h"

typedef struct {
    char name[256];
    vt_test_function *function;
    bool on_gpu, is_long;
} test_entry;

static test_entry tests[1024];
static int test_count;
static int failures_of_test;
static bool skipped;
static char reason[256]; /* why it was skipped */
static char directory[128];
static vt_group *ranks; /* of --parallel */
vt_engine *vt_test_engine;
bool vt_test_gpu_used;
bool vt_test_gpu_wanted;

bool vt_test_gpu_alone(void)
{
    const char *paths = getenv("VITRAIN_TEST_PATHS");
    return paths != NULL && strcmp(paths, "gpu") == 0;
}

bool vt_test_gpu_known(void)
{
    return getenv("VITRAIN_TEST_GPU_KNOWN") != NULL;
}

void vt_test_register(const char *file, const char *name, vt_test_function *function, bool on_gpu, bool is_long)
{
    VT_ASSERT(test_count < 1024);
    const char *start = strncmp(file, "tests/", 6) == 0 ? file + 6 : file;
    int length = (int)strlen(start) - 2;
    snprintf(tests[test_count].name, sizeof tests[test_count].name, "%.*s/%s", length, start, name);
    tests[test_count].on_gpu = on_gpu;
    tests[test_count].is_long = is_long;
    tests[test_count++].function = function;
}

void vt_test_fail(const char *file, int line, const char *format, ...)
{
    if (++failures_of_test > 10) return;
    printf("    ");
    if (vt_test_engine != NULL && vt_test_engine->size > 1) printf("rank %d: ", vt_test_engine->rank);
    printf("%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void vt_test_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    skipped = true;
}

void vt_test_lacks(const char *what)
{
    const char *ci = getenv("CI");
    vt_test_skip("%s (make deps)", what);
    if (ci != NULL && strcmp(ci, "true") == 0) vt_test_fail(__FILE__, __LINE__, "%s", reason);
}

const char *vt_test_directory(void)
{
    if (directory[0] == '\0') {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/vitrain-test-XXXXXX", base != NULL ? base : "/tmp");
        VT_ASSERT(mkdtemp(directory) != NULL);
    }
    return directory;
}

static struct owned {
    void *memory;
    struct owned *next;
} * owned;

void *vt_test_owned(void *memory)
{
    if (memory == NULL) vt_memory_exhausted(0, "a test");
    struct owned *one = vt_allocate(1, sizeof *one, "a test");
    *one = (struct owned){memory, owned};
    owned = one;
    return memory;
}

static void free_owned(void)
{
    for (struct owned *one = owned; one != NULL; one = owned) {
        owned = one->next;
        free(one->memory);
        free(one);
    }
}

const char *test_path(const char *name)
{
    char *path = vt_test_owned(vt_text_format("%s/%s", vt_test_directory(), name));
    for (char *slash = path + strlen(directory) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    return path;
}

const char *test_write(const char *name, const void *bytes, size_t count)
{
    const char *path = test_path(name);
    FILE *file = fopen(path, "wb");
    VT_ASSERT(file != NULL && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
    return path;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* The operations that the running test called on the GPU; names are constants. */
static const char *operations[256];
static int operation_count;

void vt_test_operation(const char *name)
{
    int i = 0;
    while (i < operation_count && operations[i] != name) i++;
    if (i < operation_count || operation_count == 256) return;
    operations[operation_count++] = name;
}

static void print_operations(void)
{
    if (operation_count == 0 || !vt_test_gpu_alone()) return;
    printf("    operations:");
    for (int i = 0; i < operation_count; i++) printf(" %s", operations[i]);
    printf("\n");
}

static const char *running;
static const char *seconds_allowed; /* VITRAIN_TEST_SECONDS */

/* Ends this process, because a call that hangs in the driver can't be continued. */
static void give_up(int number)
{
    static const char *const words[] = {"FAIL ", NULL, ": not done after ", NULL, " s\n"};
    (void)number;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = i == 1 ? running : i == 3 ? seconds_allowed : words[i];
        if (write(STDOUT_FILENO, word, strlen(word)) < 0) break;
    }
    _exit(1);
}

static void limit_time(const char *test)
{
    running = test;
    seconds_allowed = getenv("VITRAIN_TEST_SECONDS");
    if (seconds_allowed == NULL) return;
    signal(SIGALRM, give_up);
    alarm((unsigned)atoi(seconds_allowed));
}

static void run(const test_entry *test)
{
    const double begin = vt_clock_seconds();
    failures_of_test = 0;
    skipped = false;
    vt_test_gpu_used = vt_test_gpu_wanted = false;
    operation_count = 0;
    vt_error_clear();
    fflush(stdout);
    limit_time(test->name);
    test->function();
    free_owned();
    print_operations();
    if ((vt_test_gpu_used || vt_test_gpu_wanted) && !test->on_gpu)
        vt_test_fail(__FILE__, __LINE__, "the test uses the GPU where there is one: it must be a GPU_TEST");
    if (vt_test_gpu_alone() && !vt_test_gpu_used && !skipped) vt_test_skip("does not use the GPU");
    char where[32] = "";
    if (ranks != NULL) {
        double sum = failures_of_test;
        vt_group_all_reduce(ranks, VT_SUM_FLOAT64, &sum, 1, NULL);
        failures_of_test = (int)sum;
        snprintf(where, sizeof where, " (%d rank%s)", ranks->size, ranks->size > 1 ? "s" : "");
    }
    const char *result = failures_of_test > 0 ? "FAIL" : skipped ? "skip" : "ok  ";
    if (ranks == NULL || ranks->rank == 0) {
        printf("%s %s%s", result, test->name, where);
        if (skipped && failures_of_test == 0) printf(": %s", reason);
        const double seconds = vt_clock_seconds() - begin;
        if (seconds >= 1 && !vt_test_gpu_alone()) printf(" (%.0f s)", seconds);
        printf("\n");
    }
    if (directory[0] != '\0' && failures_of_test == 0) nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    directory[0] = '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const test_entry *)a)->name, ((const test_entry *)b)->name);
}

static vt_status open_ranks(void)
{
    vt_status status = VT_OK;
    vt_launch launch = {0};
    int *members = NULL;
    VT_TRY(vt_launch_detect(&launch));
    VT_TRY(vt_engine_open_mpi(&launch, 60, &vt_test_engine));
    members = malloc((size_t)launch.world_size * sizeof *members);
    VT_ASSERT(members != NULL);
    for (int rank = 0; rank < launch.world_size; rank++) members[rank] = rank;
    VT_TRY(vt_group_open(vt_test_engine, "test", members, launch.world_size, launch.rank, 0, NULL, &ranks));
done:
    free(members);
    return status;
}

/* A word that is a folder of tests, such as "unit", selects the folder; any other word is a part of a name. */
static bool is_folder(const char *word)
{
    size_t length = strlen(word);
    for (int i = 0; i < test_count; i++)
        if (strncmp(tests[i].name, word, length) == 0 && tests[i].name[length] == '/') return true;
    return false;
}

static bool is_named(const char *name, const char *word)
{
    if (word[0] == '=') return strcmp(name, word + 1) == 0;
    if (is_folder(word)) return strncmp(name, word, strlen(word)) == 0 && name[strlen(word)] == '/';
    return strstr(name, word) != NULL;
}

/* Selected by its folder, by a part of its name, or by its whole name after '='. */
static bool is_wanted(const test_entry *test, int count, char *const *words, bool parallel)
{
    bool wanted = count == 0;
    for (int i = 0; i < count; i++) wanted = wanted || is_named(test->name, words[i]);
    return wanted && parallel == (strncmp(test->name, "parallel/", 9) == 0) &&
           test->is_long == (getenv("VITRAIN_TEST_LONG") != NULL);
}

static int name_gpu(void)
{
    vt_backend *backend = NULL;
    bool found = path_open_gpu(&backend) == VT_OK;
    printf("%s\n", found ? backend->name : vt_error_text());
    vt_error_clear();
    vt_backend_close(&backend);
    return found ? 0 : 1;
}

int main(int argument_count, char **arguments)
{
    int passed = 0, failed = 0, skips = 0, first = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argument_count > 1 && strcmp(arguments[1], "--has-mpi") == 0) {
        printf("%s\n", vt_engine_has_mpi() ? "built with MPI" : "built without MPI");
        return vt_engine_has_mpi() ? 0 : 1;
    }
    if (argument_count > 1 && strcmp(arguments[1], "--has-gpu") == 0) return name_gpu();
    if (argument_count > 2 && strcmp(arguments[1], "--fault") == 0) return vt_test_fault(arguments[2]);
    if (argument_count > 2 && strcmp(arguments[1], "--hdf5") == 0)
        return vt_test_values(argument_count - 2, arguments + 2);
    if (argument_count > 2 && strcmp(arguments[1], "--damage") == 0)
        return vt_test_damage(argument_count - 2, arguments + 2);
    qsort(tests, (size_t)test_count, sizeof tests[0], by_name);
    const bool lists = argument_count > first && strcmp(arguments[first], "--list") == 0;
    first += lists;
    const bool parallel = argument_count > first && strcmp(arguments[first], "--parallel") == 0;
    first += parallel;
    for (int i = 0; lists && i < test_count; i++)
        if (is_wanted(&tests[i], argument_count - first, arguments + first, parallel) &&
            (tests[i].on_gpu || !vt_test_gpu_alone()))
            printf("%s\n", tests[i].name);
    if (lists) return 0;
    if (vt_test_gpu_alone() && !vt_test_gpu_known() && name_gpu() != 0) return 1;
    if (parallel && open_ranks() != VT_OK) {
        fprintf(stderr, "%s\n", vt_error_text());
        return 1;
    }
    for (int i = 0; i < test_count; i++) {
        if (!is_wanted(&tests[i], argument_count - first, arguments + first, parallel)) continue;
        run(&tests[i]);
        if (failures_of_test > 0) {
            failed++;
            if (getenv("VITRAIN_TEST_UNTIL_FAILURE") != NULL) break;
        } else if (skipped) {
            skips++;
        } else {
            passed++;
        }
    }
    if (ranks == NULL || ranks->rank == 0) printf("%d passed, %d failed, %d skipped\n", passed, failed, skips);
    vt_group_close(&ranks);
    vt_engine_close(&vt_test_engine);
    return failed > 0 ? 1 : 0;
}
