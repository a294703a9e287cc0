/* Decoded chunks that are kept: what is dropped, and who waits for whom. */
#include "chunks.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"

TEST(chunks_the_oldest_are_dropped)
{
    SCOPED(vt_chunk_cache) cache;
    vt_kept_chunk held, other, large;
    vt_chunk_cache_open(&cache, 4 * CHUNK_BYTES);
    for (int64_t i = 0; i < 4; i++) EXPECT(use_chunk(&cache, i) == 1);
    for (int64_t i = 0; i < 4; i++) EXPECT(use_chunk(&cache, i) == 0);
    EXPECT(use_chunk(&cache, 4) == 1 && use_chunk(&cache, 1) == 0 && use_chunk(&cache, 0) == 1 &&
           use_chunk(&cache, 1) == 1);
    /* now 3, 4, 0, 1, of which 3 is the next to go: not while it is in use */
    EXPECT(take_chunk(&cache, 3, &held) == VT_CHUNK_FOUND);
    EXPECT(take_chunk(&cache, 9, &other) == VT_CHUNK_NOT_KEPT && other.bytes == NULL);
    vt_chunk_cache_release(&cache, &held);
    EXPECT(use_chunk(&cache, 9) == 1 && use_chunk(&cache, 3) == 1);
    /* larger than all of it; of another size than it was; of another array */
    EXPECT(vt_chunk_cache_take(&cache, (vt_chunk_key){7, 20}, 5 * CHUNK_BYTES, &large) == VT_CHUNK_NOT_KEPT);
    EXPECT(vt_chunk_cache_take(&cache, (vt_chunk_key){7, 3}, CHUNK_BYTES - 1, &large) == VT_CHUNK_NOT_KEPT);
    EXPECT(vt_chunk_cache_take(&cache, (vt_chunk_key){8, 3}, CHUNK_BYTES, &large) == VT_CHUNK_WANTED);
    /* failed: nobody finds it */
    vt_chunk_cache_settle(&cache, &large, false);
    vt_chunk_cache_release(&cache, &large);
    EXPECT(vt_chunk_cache_take(&cache, (vt_chunk_key){8, 3}, CHUNK_BYTES, &large) == VT_CHUNK_WANTED);
    vt_chunk_cache_settle(&cache, &large, true);
    vt_chunk_cache_release(&cache, &large);
    for (int64_t i = 0; i < 1000; i++) use_chunk(&cache, i * i % 13); /* round and round */
}

TEST(chunks_of_many_sizes)
{
    enum { BUDGET = 100000, ROUNDS = 20000 };
    SCOPED(vt_chunk_cache) cache;
    int64_t found = 0;
    vt_chunk_cache_open(&cache, BUDGET);
    for (uint32_t i = 0, x = 1; i < ROUNDS; i++) {
        x = x * 1664525u + 1013904223u;
        const int64_t number = x >> 27, size = 1 + number * number * 37; /* 0 … 31 */
        vt_kept_chunk chunk;
        const vt_chunk_state state = vt_chunk_cache_take(&cache, (vt_chunk_key){3, number}, size, &chunk);
        EXPECT(state != VT_CHUNK_NOT_KEPT);
        if (state == VT_CHUNK_WANTED) memset(chunk.bytes, (int)number, (size_t)size);
        if (state == VT_CHUNK_WANTED) vt_chunk_cache_settle(&cache, &chunk, true);
        for (int64_t b = 0; b < size; b++)
            if (chunk.bytes[b] != number) EXPECT(false, "chunk %ld of %ld, byte %ld", number, size, b);
        found += state == VT_CHUNK_FOUND;
        vt_chunk_cache_release(&cache, &chunk);
    }
    EXPECT(found > ROUNDS / 5 && cache.counts.found == found, "%ld found", found);
}

typedef struct {
    vt_chunk_cache *cache;
    vt_chunk_state state;
    vt_kept_chunk chunk;
} waiting;

static void *wait_for(void *context)
{
    waiting *own = context;
    own->state = take_chunk(own->cache, 5, &own->chunk);
    return NULL;
}

TEST(chunks_are_waited_for)
{
    for (int good = 0; good < 2; good++) {
        SCOPED(vt_chunk_cache) cache;
        vt_kept_chunk chunk;
        pthread_t thread;
        vt_chunk_cache_open(&cache, 8 * CHUNK_BYTES);
        EXPECT(take_chunk(&cache, 5, &chunk) == VT_CHUNK_WANTED);
        waiting other = {.cache = &cache};
        EXPECT(pthread_create(&thread, NULL, wait_for, &other) == 0);
        usleep(20000);
        memset(chunk.bytes, 1, CHUNK_BYTES);
        vt_chunk_cache_settle(&cache, &chunk, good);
        pthread_join(thread, NULL);
        EXPECT(other.state == (good ? VT_CHUNK_FOUND : VT_CHUNK_WANTED), "%d", (int)other.state);
        EXPECT((other.chunk.bytes == chunk.bytes) == good);
        if (!good) vt_chunk_cache_settle(&cache, &other.chunk, false);
        vt_chunk_cache_release(&cache, &other.chunk);
        vt_chunk_cache_release(&cache, &chunk);
    }
}

/* No more than there is to keep, and no more than a part of the address space that `ulimit -v` leaves. */
TEST(chunks_take_the_memory_that_is_planned)
{
    const size_t budget = 1 << 28, most = 1 << 27;
    struct rlimit before, limit;
    SCOPED(vt_chunk_cache) cache;
    vt_chunk_cache_open(&cache, (int64_t)budget);
    EXPECT(vt_chunk_cache_bytes(&cache) == budget);
    vt_chunk_cache_expect(&cache, 3 * CHUNK_BYTES, 9 * CHUNK_BYTES);
    EXPECT(vt_chunk_cache_bytes(&cache) == 3 * CHUNK_BYTES);
    for (int64_t i = 0; i < 4; i++) EXPECT(use_chunk(&cache, i) == 1);
    EXPECT(use_chunk(&cache, 3) == 0 && use_chunk(&cache, 0) == 1);
    vt_chunk_cache_close(&cache);
    EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = (rlim_t)vt_memory_of_process("VmSize") + 8 * most;
    vt_chunk_cache_open(&cache, (int64_t)budget);
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    const size_t allowed = vt_chunk_cache_bytes(&cache);
    const int64_t made = use_chunk(&cache, 0);
    EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
    EXPECT(made == 1 && allowed <= most && allowed > most / 2, "%zu bytes", allowed);
}
