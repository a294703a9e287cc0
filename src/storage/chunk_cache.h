/* Decoded chunks of several times, kept for later batches; the least recently used ones are dropped first. */
#ifndef VT_STORAGE_CHUNK_CACHE_H
#define VT_STORAGE_CHUNK_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Where a chunk lies, and what is kept of it. */
typedef struct vt_chunk_entry {
    int64_t address; /* -1: never written */
    uint32_t size;   /* 0: not looked up yet */
    uint32_t skipped_filters;
    int users;            /* threads that read `bytes` now */
    unsigned char *bytes; /* decoded, [kept_size]; NULL: not kept */
    int64_t kept_size;
    struct vt_chunk_entry *newer, *older; /* of those kept */
} vt_chunk_entry;

typedef struct {
    pthread_mutex_t lock;
    int64_t budget, used; /* bytes */
    vt_chunk_entry *newest, *oldest;
} vt_chunk_cache;

void vt_chunk_cache_open(vt_chunk_cache *cache, int64_t budget);
void vt_chunk_cache_close(vt_chunk_cache *cache);

/* The chunk's bytes, to be returned with vt_chunk_cache_release; NULL when they are not kept. */
const unsigned char *vt_chunk_cache_take(vt_chunk_cache *cache, vt_chunk_entry *entry);

/* Keeps a copy, if there is room for it beside what is in use. */
void vt_chunk_cache_keep(vt_chunk_cache *cache, vt_chunk_entry *entry, const unsigned char *bytes, int64_t size);
void vt_chunk_cache_release(vt_chunk_cache *cache, vt_chunk_entry *entry);

/* Drops what is kept of entries [count], none of which is in use; before they are freed. */
void vt_chunk_cache_drop(vt_chunk_cache *cache, vt_chunk_entry *entries, int64_t count);

#endif
