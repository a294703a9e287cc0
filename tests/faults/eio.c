/* For LD_PRELOAD: reads of the file EIO_FILE (the end of its path) that touch byte EIO_OFFSET fail with EIO after the
 * first EIO_AFTER of them. With EIO_SLEEP, each read of any file takes that many microseconds longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static long touched;

static int is_bad(int descriptor, off_t offset, size_t count)
{
    const char *file = getenv("EIO_FILE"), *place = getenv("EIO_OFFSET"), *after = getenv("EIO_AFTER");
    const char *sleeps = getenv("EIO_SLEEP");
    char link[64], path[PATH_MAX];
    if (sleeps != NULL) usleep((useconds_t)atol(sleeps));
    if (file == NULL || place == NULL) return 0;
    off_t bad = (off_t)atoll(place);
    if (bad < offset || bad >= offset + (off_t)count) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < (ssize_t)strlen(file)) return 0;
    path[length] = '\0';
    if (strcmp(path + length - strlen(file), file) != 0) return 0;
    return __atomic_fetch_add(&touched, 1, __ATOMIC_RELAXED) >= (after != NULL ? atol(after) : 0);
}

ssize_t pread(int descriptor, void *memory, size_t count, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (is_bad(descriptor, offset, count)) {
        errno = EIO;
        return -1;
    }
    return real(descriptor, memory, count, offset);
}

ssize_t pread64(int descriptor, void *memory, size_t count, off_t offset)
{
    return pread(descriptor, memory, count, offset);
}
