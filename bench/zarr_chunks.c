/* zarr_chunks THREADS ROUNDS FILE...: reads the files of a Zarr store's chunks and decodes them with the codec's own
 * library (c-blosc, else libzstd), in a loop on so many threads: each chunk behind the one before it, in memory as
 * large as the reader's batches ahead are, since neither side may find it in a cache. Prints chunks and decoded bytes a
 * second, of the median round: what the reader is compared with (bench/io). */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef VT_HAS_BLOSC
#include <blosc.h>
#endif
#ifdef VT_HAS_ZSTD
#include <zstd.h>
#endif

enum { LARGEST = 64 << 20, MOST_THREADS = 64 };
#define RING ((size_t)256 << 20) /* bytes of a thread, beside LARGEST */

static char **files;
static long count, next;
static int64_t decoded;

static size_t decode(const unsigned char *stored, size_t bytes, unsigned char *result)
{
    size_t made = 0;
#ifdef VT_HAS_BLOSC
    if (blosc_cbuffer_validate(stored, bytes, &made) == 0 && made <= LARGEST &&
        blosc_decompress_ctx(stored, result, made, 1) == (int)made)
        return made;
#endif
#ifdef VT_HAS_ZSTD
    made = ZSTD_decompress(result, LARGEST, stored, bytes);
    if (!ZSTD_isError(made)) return made;
#endif
    fprintf(stderr, "zarr_chunks: neither blosc nor zstd\n");
    exit(1);
}

static void *work(void *memory)
{
    unsigned char *ring = memory;
    size_t at = 0;
    unsigned char *stored = malloc(LARGEST);
    for (;;) {
        const long i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
        if (i >= count) break;
        struct stat info;
        const int file = open(files[i], O_RDONLY);
        if (file < 0 || fstat(file, &info) != 0 || info.st_size > LARGEST ||
            pread(file, stored, (size_t)info.st_size, 0) != info.st_size) {
            fprintf(stderr, "zarr_chunks: can't read %s\n", files[i]);
            exit(1);
        }
        close(file);
        const size_t made = decode(stored, (size_t)info.st_size, ring + at);
        at = at + made < RING ? at + made : 0;
        __atomic_add_fetch(&decoded, made, __ATOMIC_RELAXED);
    }
    free(stored);
    return NULL;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argument_count, char **arguments)
{
    if (argument_count < 4) {
        fprintf(stderr, "zarr_chunks THREADS ROUNDS FILE...\n");
        return 1;
    }
    enum { MOST_ROUNDS = 99 };
    const long threads = atol(arguments[1]), rounds = atol(arguments[2]);
    double rates[MOST_ROUNDS], bytes = 0;
    pthread_t started[MOST_THREADS];
    unsigned char *rings[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS || rounds < 1 || rounds > MOST_ROUNDS) return 1;
    files = arguments + 3;
    count = argument_count - 3;
    for (long t = 0; t < threads; t++) {
        rings[t] = malloc(RING + LARGEST);
        if (rings[t] == NULL) return 1;
        memset(rings[t], 1, RING + LARGEST);
    }
    for (long round = 0; round < rounds; round++) {
        next = decoded = 0;
        const double begin = seconds();
        for (long t = 0; t < threads; t++) pthread_create(&started[t], NULL, work, rings[t]);
        for (long t = 0; t < threads; t++) pthread_join(started[t], NULL);
        rates[round] = (double)count / (seconds() - begin);
        bytes = (double)decoded / (double)count;
    }
    for (long t = 0; t < threads; t++) free(rings[t]);
    qsort(rates, (size_t)rounds, sizeof *rates, rising);
    printf("bare loop %10.1f chunks/s %8.2f GB/s decoded\n", rates[rounds / 2], rates[rounds / 2] * bytes / 1e9);
    return 0;
}
