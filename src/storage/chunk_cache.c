#include "storage/chunk_cache.h"

#include <errno.h>
#include <math.h>
#include <sys/mman.h>
#include <time.h>

#include "base/memory.h"

enum { SLOTS = 1 << 16, ALIGNMENT = VT_CHUNK_ALIGNMENT };

/* A part of the memory. Those in use lie one behind another in the order of their age, round and round. */
typedef struct {
    vt_chunk_key key;
    int64_t offset, bytes;
    uint32_t next;        /* 1 + the next slot with this hash; 0: there is none */
    int32_t users;        /* who decode it or read it now, of any rank */
    vt_chunk_state state; /* NOT_KEPT: decoding it failed */
} chunk_slot;

/* Lies before the chunks, perhaps in memory that ranks share. */
struct vt_chunk_table {
    pthread_mutex_t lock; /* guards what follows */
    bool is_broken;       /* a rank ended while it had the lock: nothing is kept any more */
    int64_t bytes;        /* of the chunks */
    int64_t head;         /* where the next chunk goes */
    uint32_t oldest, count;
    uint32_t by_hash[SLOTS]; /* 1 + the first slot */
    chunk_slot slots[SLOTS];
};

/* An eighth of what is free may be shared, and an eighth of the address space that is left be mapped, but so many bytes
 * in any case. */
static const double LEAST_SHARED = 16 << 20;

/* ---- memory ---- */

static size_t table_bytes(void)
{
    return (sizeof(struct vt_chunk_table) + 4095) / 4096 * 4096;
}

static unsigned char *bytes_of(struct vt_chunk_table *table, const chunk_slot *slot)
{
    return (unsigned char *)table + table_bytes() + slot->offset;
}

/* Of memory that is all zeros. */
static void prepare(void *memory, size_t bytes)
{
    struct vt_chunk_table *table = memory;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&table->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    table->bytes = (int64_t)(bytes - table_bytes());
}

static void close_table(vt_chunk_cache *cache)
{
    if (cache->table != NULL) munmap(cache->table, cache->mapped);
    cache->table = NULL;
}

/* `wanted`, as far as `left` bytes allow; negative: it is not known how many are. */
static double allowed(double wanted, double left)
{
    return left < 0 ? wanted : fmin(wanted, fmax(left / 8, LEAST_SHARED));
}

/* What this rank keeps for itself. */
static double own_bytes(const vt_chunk_cache *cache)
{
    return allowed(fmin((double)cache->budget, cache->own), vt_memory_address_space_left());
}

/* Memory of this rank's own, which takes no place before it is used. */
static bool open_table(vt_chunk_cache *cache)
{
    pthread_mutex_lock(&cache->opening);
    if (cache->table == NULL) {
        cache->mapped = table_bytes() + (size_t)own_bytes(cache);
        void *mapped =
            mmap(NULL, cache->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped != MAP_FAILED) {
            prepare(mapped, cache->mapped);
            cache->table = mapped;
        }
    }
    pthread_mutex_unlock(&cache->opening);
    return cache->table != NULL;
}

void vt_chunk_cache_open(vt_chunk_cache *cache, int64_t budget)
{
    *cache = (vt_chunk_cache){.budget = budget, .own = INFINITY, .all = INFINITY, .sharers = 1};
    pthread_mutex_init(&cache->opening, NULL);
}

void vt_chunk_cache_close(vt_chunk_cache *cache)
{
    close_table(cache);
    pthread_mutex_destroy(&cache->opening);
}

void vt_chunk_cache_expect(vt_chunk_cache *cache, double own, double all)
{
    cache->own = own;
    cache->all = all;
}

size_t vt_chunk_cache_bytes(const vt_chunk_cache *cache)
{
    if (cache == NULL) return 0;
    if (cache->table != NULL) return cache->mapped / (size_t)cache->sharers;
    return (size_t)own_bytes(cache);
}

/* Tensor and context parallel ranks have parts of the same samples. */
static void find_sharers(vt_chunk_cache *cache, const vt_world *world)
{
    static const vt_axis apart[] = {VT_AXIS_DATA, VT_AXIS_PIPELINE};
    const vt_layout *layout = &world->layout;
    const int *node_of = world->node_of, own = world->rank;
    cache->place = cache->sharers = 0;
    for (int rank = 0; rank < world->ranks; rank++) {
        bool shares = node_of[rank] == node_of[own];
        for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
            shares = shares && vt_layout_coordinate(layout, rank, apart[i]) == world->coordinate[apart[i]];
        cache->place += shares && rank < own;
        cache->sharers += shares;
    }
}

void vt_chunk_cache_share(vt_chunk_cache *cache, vt_world *world)
{
    const vt_layout *layout = &world->layout;
    if (cache == NULL) return;
    const bool alone = layout->size[VT_AXIS_TENSOR] * layout->size[VT_AXIS_CONTEXT] == 1;
    if (alone && cache->own <= 0) return; /* neither later batches nor other ranks need a chunk again */
    find_sharers(cache, world);
    const double wanted = fmin((double)cache->budget * cache->sharers, cache->sharers > 1 ? cache->all : cache->own);
    const double bytes = allowed(allowed(wanted, vt_memory_available()), vt_memory_address_space_left());
    size_t mapped = table_bytes() + ((size_t)bytes + 4095) / 4096 * 4096;
    void *shared = vt_world_share_memory(world, &mapped, prepare);
    if (shared == NULL) {
        cache->place = 0;
        cache->sharers = 1;
        return;
    }
    close_table(cache);
    cache->table = shared;
    cache->mapped = mapped;
}

/* ---- slots ---- */

/* False: nothing is kept any more. */
static bool lock(struct vt_chunk_table *table)
{
    if (pthread_mutex_lock(&table->lock) == EOWNERDEAD) {
        table->is_broken = true;
        pthread_mutex_consistent(&table->lock);
    }
    if (!table->is_broken) return true;
    pthread_mutex_unlock(&table->lock);
    return false;
}

static uint32_t *first_of(struct vt_chunk_table *table, vt_chunk_key key)
{
    const uint64_t mixed = (key.array ^ (uint64_t)key.number) * UINT64_C(0x9E3779B97F4A7C15);
    return &table->by_hash[mixed >> 48];
}

static chunk_slot *find(struct vt_chunk_table *table, vt_chunk_key key)
{
    for (uint32_t i = *first_of(table, key); i > 0; i = table->slots[i - 1].next) {
        chunk_slot *slot = &table->slots[i - 1];
        if (slot->key.array == key.array && slot->key.number == key.number) return slot;
    }
    return NULL;
}

static void link_slot(struct vt_chunk_table *table, chunk_slot *slot)
{
    uint32_t *first = first_of(table, slot->key);
    slot->next = *first;
    *first = (uint32_t)(slot - table->slots) + 1;
}

/* From here on nobody finds it. */
static void unlink_slot(struct vt_chunk_table *table, chunk_slot *slot)
{
    uint32_t *place = first_of(table, slot->key);
    if (slot->state == VT_CHUNK_NOT_KEPT) return;
    while (*place != (uint32_t)(slot - table->slots) + 1) place = &table->slots[*place - 1].next;
    *place = slot->next;
    slot->state = VT_CHUNK_NOT_KEPT;
}

/* Is the oldest slot's memory within [begin, end)? */
static bool oldest_is_within(const struct vt_chunk_table *table, int64_t begin, int64_t end)
{
    const int64_t offset = table->slots[table->oldest].offset;
    return table->count > 0 && offset >= begin && offset < end;
}

static bool drop_oldest(struct vt_chunk_table *table)
{
    chunk_slot *slot = &table->slots[table->oldest];
    if (slot->users > 0) return false;
    unlink_slot(table, slot);
    table->oldest = (table->oldest + 1) % SLOTS;
    table->count--;
    return true;
}

/* NULL: too large, or what would have to be dropped is in use. */
static chunk_slot *make_slot(struct vt_chunk_table *table, vt_chunk_key key, int64_t bytes)
{
    const int64_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (room > table->bytes) return NULL;
    if (table->count == SLOTS && !drop_oldest(table)) return NULL;
    if (table->head + room > table->bytes) {
        while (oldest_is_within(table, table->head, table->bytes))
            if (!drop_oldest(table)) return NULL;
        table->head = 0;
    }
    while (oldest_is_within(table, table->head, table->head + room))
        if (!drop_oldest(table)) return NULL;
    chunk_slot *slot = &table->slots[(table->oldest + table->count++) % SLOTS];
    *slot = (chunk_slot){.key = key, .offset = table->head, .bytes = bytes, .users = 1, .state = VT_CHUNK_WANTED};
    table->head += room;
    link_slot(table, slot);
    return slot;
}

/* ---- chunks ---- */

/* Somewhat longer each time; false: it has been too long. */
static bool rest(int round)
{
    enum { ROUNDS = 2500, LONGEST = 2000000 /* nanoseconds: in all about five seconds */ };
    const long nanoseconds = 20000L * (round + 1);
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds < LONGEST ? nanoseconds : LONGEST}, NULL);
    return round < ROUNDS;
}

vt_chunk_state vt_chunk_cache_take(vt_chunk_cache *cache, vt_chunk_key key, int64_t size, vt_kept_chunk *chunk)
{
    *chunk = (vt_kept_chunk){0};
    if (!open_table(cache)) return VT_CHUNK_NOT_KEPT;
    struct vt_chunk_table *table = cache->table;
    for (int round = 0;; round++) {
        if (!lock(table)) return VT_CHUNK_NOT_KEPT;
        chunk_slot *slot = find(table, key);
        const bool is_new = slot == NULL;
        if (is_new) slot = make_slot(table, key, size);
        const bool fits = slot != NULL && slot->bytes == size, is_found = fits && slot->state == VT_CHUNK_FOUND;
        if (is_found) slot->users++;
        pthread_mutex_unlock(&table->lock);
        if (is_new || is_found) {
            if (slot != NULL) *chunk = (vt_kept_chunk){bytes_of(table, slot), (uint32_t)(slot - table->slots)};
            if (is_found) __atomic_add_fetch(&cache->counts.found, 1, __ATOMIC_RELAXED);
            return is_found ? VT_CHUNK_FOUND : slot != NULL ? VT_CHUNK_WANTED : VT_CHUNK_NOT_KEPT;
        }
        if (!fits || !rest(round)) return VT_CHUNK_NOT_KEPT;
    }
}

void vt_chunk_cache_settle(vt_chunk_cache *cache, const vt_kept_chunk *chunk, bool decoded)
{
    struct vt_chunk_table *table = cache->table;
    chunk_slot *slot = &table->slots[chunk->slot];
    if (!lock(table)) return;
    if (decoded)
        slot->state = VT_CHUNK_FOUND;
    else
        unlink_slot(table, slot);
    pthread_mutex_unlock(&table->lock);
}

void vt_chunk_cache_release(vt_chunk_cache *cache, const vt_kept_chunk *chunk)
{
    if (!lock(cache->table)) return;
    cache->table->slots[chunk->slot].users--;
    pthread_mutex_unlock(&cache->table->lock);
}
