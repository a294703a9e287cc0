/* A reader of chunks that a cache keeps, as tests/unit and tests/parallel need one. */
#ifndef VT_TESTS_CHUNKS_H
#define VT_TESTS_CHUNKS_H

#include <string.h>

#include "storage/chunk_cache.h"
#include "test.h"

enum { CHUNK_BYTES = 1024 };

/* Of one array, chunk by number. */
static inline vt_chunk_state take_chunk(vt_chunk_cache *cache, int64_t number, vt_kept_chunk *chunk)
{
    return vt_chunk_cache_take(cache, (vt_chunk_key){7, number}, CHUNK_BYTES, chunk);
}

/* Decodes the chunk unless it is kept, and looks at its bytes. Whether it had to be decoded. */
static inline bool use_chunk(vt_chunk_cache *cache, int64_t number)
{
    vt_kept_chunk chunk;
    const int byte = (int)(number % 251);
    const vt_chunk_state state = take_chunk(cache, number, &chunk);
    if (state == VT_CHUNK_NOT_KEPT) return true;
    if (state == VT_CHUNK_WANTED) {
        memset(chunk.bytes, byte, CHUNK_BYTES);
        vt_chunk_cache_settle(cache, &chunk, true);
    }
    EXPECT(chunk.bytes[0] == byte && chunk.bytes[CHUNK_BYTES - 1] == byte, "chunk %ld", number);
    vt_chunk_cache_release(cache, &chunk);
    return state == VT_CHUNK_WANTED;
}

#endif
