#include "data/frame_cache.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"

vt_status vt_frame_cache_open(int64_t count, int64_t floats, vt_frame_cache **result)
{
    vt_status status = VT_OK;
    char size[VT_NUMBER_SIZE];
    const size_t bytes = (size_t)(count * floats) * sizeof(float);
    vt_frame_cache *cache = vt_allocate(1, sizeof *cache, "the cache");
    VT_ASSERT(count > 0 && floats > 0);
    *cache = (vt_frame_cache){.floats = floats, .values = vt_allocate_large(bytes)};
    VT_CHECK(cache->values != NULL, "no memory for the cache (%s)", vt_text_bytes((double)bytes, size));
    cache->states = vt_allocate((size_t)count, 1, "the cache");
    *result = cache;
    cache = NULL;
done:
    vt_frame_cache_close(&cache);
    return status;
}

void vt_frame_cache_close(vt_frame_cache **cache)
{
    if (*cache == NULL) return;
    free((*cache)->values);
    free((*cache)->states);
    free(*cache);
    *cache = NULL;
}

void vt_frame_cache_settle(vt_frame_cache *cache, int64_t frame, bool has_come)
{
    VT_ASSERT(cache->states[frame] == VT_FRAME_COMING);
    cache->states[frame] = has_come ? VT_FRAME_KEPT : VT_FRAME_MISSING;
    cache->kept += has_come;
}
