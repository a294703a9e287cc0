#define _GNU_SOURCE /* nftw */
#include "test.h"

#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char name[256];
    vt_test_function *function;
} test_entry;

static test_entry tests[1024];
static int test_count;
static int failures_of_test;
static bool skipped;
static char directory[128];

void vt_test_register(const char *file, const char *name, vt_test_function *function)
{
    VT_ASSERT(test_count < 1024);
    const char *start = strncmp(file, "tests/", 6) == 0 ? file + 6 : file;
    int length = (int)strlen(start) - 2;
    snprintf(tests[test_count].name, sizeof tests[test_count].name, "%.*s/%s", length, start, name);
    tests[test_count++].function = function;
}

void vt_test_fail(const char *file, int line, const char *format, ...)
{
    if (++failures_of_test > 10) return;
    printf("    %s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void vt_test_skip(const char *format, ...)
{
    skipped = true;
    printf("    skipped: ");
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
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

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void run(const test_entry *test)
{
    failures_of_test = 0;
    skipped = false;
    vt_error_clear();
    fflush(stdout);
    test->function();
    printf("%s %s\n", failures_of_test > 0 ? "FAIL" : skipped ? "skip" : "ok  ", test->name);
    if (directory[0] != '\0' && failures_of_test == 0) nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    directory[0] = '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const test_entry *)a)->name, ((const test_entry *)b)->name);
}

int main(int argument_count, char **arguments)
{
    int passed = 0, failed = 0, skips = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    qsort(tests, (size_t)test_count, sizeof tests[0], by_name);
    for (int i = 0; i < test_count; i++) {
        bool wanted = argument_count < 2;
        for (int j = 1; j < argument_count; j++) wanted = wanted || strstr(tests[i].name, arguments[j]) != NULL;
        if (!wanted) continue;
        run(&tests[i]);
        if (failures_of_test > 0)
            failed++;
        else if (skipped)
            skips++;
        else
            passed++;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skips);
    return failed > 0 ? 1 : 0;
}
