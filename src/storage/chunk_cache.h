/* Decoded chunks that are kept: for later batches, and for the other ranks of this node, which then need not read and
 * decode them, too. The oldest ones are dropped first. */
#ifndef VT_STORAGE_CHUNK_CACHE_H
#define VT_STORAGE_CHUNK_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "parallel/world.h"

typedef struct {
    int64_t decoded, bytes; /* chunks that this rank has read and decoded, and their decoded bytes */
    int64_t found;          /* how often it found one decoded already */
} vt_chunk_counts;

typedef struct {
    int64_t budget;               /* bytes of chunks, for each sharer */
    double own, all;              /* decoded bytes of chunks: that this rank keeps for itself; of all that there are */
    int place, sharers;           /* this rank among those of its node that need the same chunks; mostly 0 of 1 */
    struct vt_chunk_table *table; /* NULL: nothing has been kept yet */
    size_t mapped;                /* bytes of `table` and of the chunks behind it */
    pthread_mutex_t opening;      /* guards `table` */
    vt_chunk_counts counts;       /* atomic */
} vt_chunk_cache;

/* Which chunk: number `number` of the array that vt_array_key tells from all others. */
typedef struct {
    uint64_t array;
    int64_t number;
} vt_chunk_key;

typedef struct {
    unsigned char *bytes;
    uint32_t slot;
} vt_kept_chunk;

typedef enum { VT_CHUNK_NOT_KEPT, VT_CHUNK_FOUND, VT_CHUNK_WANTED } vt_chunk_state;

void vt_chunk_cache_open(vt_chunk_cache *cache, int64_t budget);
void vt_chunk_cache_close(vt_chunk_cache *cache);

/* Before the cache is used or shared: how many decoded bytes there are to keep at most, of chunks that later batches
 * may need, and of all, which sharers may need. Each chunk takes a multiple of VT_CHUNK_ALIGNMENT. */
enum { VT_CHUNK_ALIGNMENT = 64 };
void vt_chunk_cache_expect(vt_chunk_cache *cache, double own, double all);

/* The memory that it may come to take, of this rank's share; of NULL none. */
size_t vt_chunk_cache_bytes(const vt_chunk_cache *cache);

/* Collective, before threads use the cache: all ranks of a node keep chunks in the same memory, if the system allows
 * it. What was kept before is dropped. NULL: nothing is to be shared. */
void vt_chunk_cache_share(vt_chunk_cache *cache, vt_world *world);

/* Is a chunk worth keeping that no other batch of this rank will need? */
static inline bool vt_chunk_cache_is_for_others(const vt_chunk_cache *cache)
{
    return cache->sharers > 1;
}

/* Counts a chunk that this rank has read and decoded. */
static inline void vt_chunk_cache_count(vt_chunk_cache *cache, int64_t bytes)
{
    __atomic_add_fetch(&cache->counts.decoded, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&cache->counts.bytes, bytes, __ATOMIC_RELAXED);
}

/* FOUND: chunk->bytes [size] are the chunk's. WANTED: the caller has to decode it, to chunk->bytes, and to call
 * vt_chunk_cache_settle; others who need it wait for that. NOT_KEPT: the caller decodes it for itself, because there is
 * no room, or another rank takes too long. After the first two the chunk is in use until vt_chunk_cache_release. */
vt_chunk_state vt_chunk_cache_take(vt_chunk_cache *cache, vt_chunk_key key, int64_t size, vt_kept_chunk *chunk);
/* The caller has decoded a chunk that was WANTED. Not `decoded`: it failed, and each caller that waits for the chunk
 * decodes it for itself. */
void vt_chunk_cache_settle(vt_chunk_cache *cache, const vt_kept_chunk *chunk, bool decoded);
void vt_chunk_cache_release(vt_chunk_cache *cache, const vt_kept_chunk *chunk);

#endif
