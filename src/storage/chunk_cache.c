#include "storage/chunk_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void vt_chunk_cache_open(vt_chunk_cache *cache, int64_t budget)
{
    *cache = (vt_chunk_cache){.budget = budget};
    pthread_mutex_init(&cache->lock, NULL);
}

void vt_chunk_cache_close(vt_chunk_cache *cache)
{
    VT_ASSERT(cache->used == 0);
    pthread_mutex_destroy(&cache->lock);
}

static void unlink_entry(vt_chunk_cache *cache, vt_chunk_entry *entry)
{
    *(entry->newer != NULL ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older != NULL ? &entry->older->newer : &cache->oldest) = entry->newer;
    entry->newer = entry->older = NULL;
}

static void link_newest(vt_chunk_cache *cache, vt_chunk_entry *entry)
{
    entry->older = cache->newest;
    entry->newer = NULL;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void drop(vt_chunk_cache *cache, vt_chunk_entry *entry)
{
    unlink_entry(cache, entry);
    cache->used -= entry->kept_size;
    free(entry->bytes);
    entry->bytes = NULL;
}

const unsigned char *vt_chunk_cache_take(vt_chunk_cache *cache, vt_chunk_entry *entry)
{
    pthread_mutex_lock(&cache->lock);
    const unsigned char *bytes = entry->bytes;
    if (bytes != NULL) {
        entry->users++;
        unlink_entry(cache, entry);
        link_newest(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

void vt_chunk_cache_keep(vt_chunk_cache *cache, vt_chunk_entry *entry, const unsigned char *bytes, int64_t size)
{
    unsigned char *copy = size <= cache->budget ? malloc((size_t)size) : NULL;
    if (copy == NULL) return;
    memcpy(copy, bytes, (size_t)size);
    pthread_mutex_lock(&cache->lock);
    for (vt_chunk_entry *old = cache->oldest, *next; old != NULL && cache->used + size > cache->budget; old = next) {
        next = old->newer;
        if (old->users == 0) drop(cache, old);
    }
    if (entry->bytes == NULL && cache->used + size <= cache->budget) {
        entry->bytes = copy;
        entry->kept_size = size;
        cache->used += size;
        link_newest(cache, entry);
        copy = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    free(copy);
}

void vt_chunk_cache_release(vt_chunk_cache *cache, vt_chunk_entry *entry)
{
    pthread_mutex_lock(&cache->lock);
    entry->users--;
    pthread_mutex_unlock(&cache->lock);
}

void vt_chunk_cache_drop(vt_chunk_cache *cache, vt_chunk_entry *entries, int64_t count)
{
    pthread_mutex_lock(&cache->lock);
    for (int64_t i = 0; i < count; i++) {
        VT_ASSERT(entries[i].users == 0);
        if (entries[i].bytes != NULL) drop(cache, &entries[i]);
    }
    pthread_mutex_unlock(&cache->lock);
}
