#include "data/frame_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/text.h"

static size_t bytes_of(const vt_frame_cache *cache)
{
    return (size_t)(cache->count * cache->floats) * sizeof(float);
}

vt_status vt_frame_cache_open(int64_t count, int64_t floats, vt_frame_cache **result)
{
    vt_status status = VT_OK;
    char size[VT_NUMBER_SIZE];
    vt_frame_cache *cache = vt_allocate(1, sizeof *cache, "the cache");
    VT_ASSERT(count > 0 && floats > 0);
    *cache = (vt_frame_cache){.count = count, .floats = floats};
    void *mapped = mmap(NULL, bytes_of(cache), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) cache->values = mapped;
    VT_CHECK(mapped != MAP_FAILED, "no memory for the cache (%s): %s", vt_text_bytes((double)bytes_of(cache), size),
             strerror(errno));
    madvise(mapped, bytes_of(cache), MADV_HUGEPAGE); /* advice only: fewer page faults where the kernel follows it */
    cache->states = vt_allocate((size_t)count, 1, "the cache");
    *result = cache;
    cache = NULL;
done:
    vt_frame_cache_close(&cache);
    return status;
}

void vt_frame_cache_close(vt_frame_cache **pointer)
{
    vt_frame_cache *cache = *pointer;
    if (cache == NULL) return;
    *pointer = NULL;
    if (cache->values != NULL) munmap(cache->values, bytes_of(cache));
    free(cache->states);
    free(cache);
}

void vt_frame_cache_settle(vt_frame_cache *cache, int64_t frame, bool has_come)
{
    VT_ASSERT(cache->states[frame] == VT_FRAME_COMING);
    cache->states[frame] = has_come ? VT_FRAME_KEPT : VT_FRAME_MISSING;
    cache->kept += has_come;
}
