#define _GNU_SOURCE /* nftw */
#include "fuzz.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/status.h"
#include "base/text.h"

static char directory[128];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(void)
{
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A crash in a copy of the process (storage/trial.h) is not a finding: libFuzzer must not report it. */
void __sanitizer_set_death_callback(void (*callback)(void));
static void end_quietly(void)
{
    __sanitizer_set_death_callback(NULL);
}

__attribute__((constructor)) static void prepare_copies(void)
{
    pthread_atfork(NULL, NULL, end_quietly);
}

const char *vt_fuzz_directory(void)
{
    if (directory[0] != '\0') return directory;
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/vitrain-fuzz-XXXXXX", base != NULL ? base : "/tmp");
    VT_ASSERT(mkdtemp(directory) != NULL && atexit(remove_directory) == 0);
    return directory;
}

char *vt_fuzz_write(const char *name, const void *data, size_t size)
{
    char *path = vt_text_format("%s/%s", vt_fuzz_directory(), name);
    FILE *file = fopen(path, "wb");
    VT_ASSERT(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    return path;
}
