/* Hopper's asynchronous instructions on the host (cuda/host_wgmma.h). What they do follows PTX's documentation: lane
 * layouts of wgmma, layouts of operands in shared memory, swizzles, boxes of tensor maps, phases of barriers. When they
 * do it is as free as there: copies land when they like after their start, and products read shared memory, and write
 * their registers, when they like between their start and the wait for them (host_wgmma_order).
 *
 * It ends the program with a sentence when
 * - a product reads bytes that no copy has written, or that a copy is writing, or outside of shared memory;
 * - a copy begins to overwrite what a product that is not waited for reads, or what another copy writes;
 * - registers of a product in flight change, or have changed without a vt_wgmma_fence before the product;
 * - threads of a warpgroup do not start the same product, or a barrier is used before it is ready.
 * Results of products in flight are NaN for whoever reads them too early.
 *
 * Under ThreadSanitizer every copy is a fiber of its own, ordered only by barriers: a product reads its operands at its
 * start and again when it is waited for, a copy writes after its start and before its barrier's phase. So a wait that
 * is missing is a race whatever the order in which things happen here. This file is compiled without ThreadSanitizer,
 * and without calls of memcpy, which that would see. */
#include "operations/host_wgmma.h"

#include <stdio.h>

_Thread_local block_state *host_wgmma_block;
host_wgmma_order host_wgmma_current_order = HOST_WGMMA_LATE;
static uint32_t seed;

_Noreturn void host_wgmma_fail(const char *sentence)
{
    fprintf(stderr, "host_wgmma: %s\n", sentence);
    abort();
}

uint32_t host_wgmma_draw(uint32_t below)
{
    block->random = block->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((block->random >> 33) % below);
}

void host_wgmma_choose(host_wgmma_order how, uint32_t with)
{
    host_wgmma_current_order = how;
    seed = with;
}

/* ---- blocks ---- */

void host_wgmma_block_begins(int threads, unsigned char *shared, int64_t shared_bytes, host_wgmma_waiter *wait,
                             int (*place)(void))
{
    if (threads > MOST_THREADS || shared_bytes > MOST_SHARED) host_wgmma_fail("a block that a GPU refuses");
    if (block == NULL) block = calloc(1, sizeof *block);
    if (block == NULL) host_wgmma_fail("no memory");
    block->shared = shared;
    block->shared_bytes = shared_bytes;
    block->wait = wait;
    block->place = place;
    block->barrier_count = 0;
    block->random = block->random * 2654435769u + seed + 1;
    for (int i = 0; i < MOST_GROUPS; i++) {
        warpgroup *g = &block->groups[i];
        g->started = g->computed = g->freed = g->demanded = 0;
    }
    for (int i = 0; i < threads; i++) {
        thread_state *t = &block->threads[i];
        t->fences = false;
        t->array_count = 0;
        t->started = t->retired = t->committed = 0;
    }
}

void host_wgmma_block_ends(void)
{
    for (int i = 0; i < MOST_COPIES; i++)
        if (block->copies[i].live) host_wgmma_fail("a block ends before its copies have landed");
}

void host_wgmma_thread_ends(int thread)
{
    if (block->threads[thread].retired != block->threads[thread].started)
        host_wgmma_fail("a thread ends before its products are waited for");
}

uint32_t host_wgmma_address(const void *pointer)
{
    const int64_t at = (const unsigned char *)pointer - block->shared;
    if (at < 0 || at >= block->shared_bytes) host_wgmma_fail("a pointer outside of shared memory");
    return (uint32_t)(at + FIRST_ADDRESS);
}

unsigned char *host_wgmma_memory_at(uint32_t address, int bytes)
{
    if (address < FIRST_ADDRESS || (int64_t)address + bytes > FIRST_ADDRESS + block->shared_bytes)
        host_wgmma_fail("an address outside of shared memory");
    return block->shared + (address - FIRST_ADDRESS);
}

/* ---- barriers ---- */

static barrier *find_barrier(uint32_t at)
{
    for (int i = 0; i < block->barrier_count; i++)
        if (block->barriers[i].at == at) return &block->barriers[i];
    host_wgmma_fail("a barrier that is not initialised");
}

/* What ThreadSanitizer sees of a barrier's use: initialising it writes its bytes, everything else reads them. */
static void note_barrier(uint32_t at, bool writes)
{
    if (__tsan_write_range == NULL) return;
    if (writes)
        __tsan_write_range(host_wgmma_memory_at(at, 8), 8);
    else
        __tsan_read_range(host_wgmma_memory_at(at, 8), 8);
}

void vt_barrier_init(uint32_t at, int arrivals)
{
    if (at % 8 != 0 || block->barrier_count == MOST_BARRIERS) host_wgmma_fail("a barrier's place, or too many of them");
    host_wgmma_memory_at(at, 8);
    note_barrier(at, true);
    barrier *b = &block->barriers[block->barrier_count++];
    b->at = at;
    b->expected = b->pending = arrivals;
    b->bytes = b->phase = 0;
    b->fenced = false;
}

void vt_barrier_init_fence(void)
{
    for (int i = 0; i < block->barrier_count; i++) block->barriers[i].fenced = true;
}

static void complete_phase(barrier *b)
{
    if (b->pending < 0) host_wgmma_fail("more arrivals at a barrier than it expects");
    if (b->pending > 0 || b->bytes != 0) return;
    b->phase++;
    b->pending = b->expected;
}

void vt_barrier_arrive_expecting(uint32_t at, int bytes)
{
    barrier *b = find_barrier(at);
    note_barrier(at, false);
    if (__tsan_release != NULL) __tsan_release(&b->token[b->phase % 2]);
    b->bytes += bytes;
    b->pending--;
    complete_phase(b);
}

void vt_barrier_arrive(uint32_t at)
{
    vt_barrier_arrive_expecting(at, 0);
}

static bool phase_is_complete(int64_t what, int64_t parity)
{
    return ((const barrier *)what)->phase % 2 != parity;
}

void vt_barrier_wait(uint32_t at, int parity)
{
    barrier *b = find_barrier(at);
    note_barrier(at, false);
    block->wait(phase_is_complete, (int64_t)b, parity);
    if (__tsan_acquire != NULL) __tsan_acquire(&b->token[parity]);
}

/* ---- copies ---- */

static void write_box(const copy *c)
{
    const vt_box_map *m = &c->map;
    uint32_t to = c->to;
    for (int z = 0; z < m->box[2]; z++)
        for (int y = 0; y < m->box[1]; y++)
            for (int x = 0; x < m->box[0]; x++, to += 2) {
                const int64_t row = c->row + y, panel = c->panel + z;
                const bool inside =
                    row >= 0 && row < m->size[1] && panel >= 0 && panel < m->size[2] && c->sample < m->size[3];
                const int64_t offset = 2 * x + row * m->stride[1] + panel * m->stride[2] + c->sample * m->stride[3];
                *(uint16_t *)host_wgmma_memory_at(swizzled(to), 2) =
                    inside ? *(const uint16_t *)((const char *)m->first + offset) : 0;
            }
}

/* To ThreadSanitizer a thread of its own. */
static void note_landing(copy *c)
{
    if (__tsan_create_fiber == NULL) return;
    void *back = __tsan_get_current_fiber(), *own = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(own, 1);
    __tsan_acquire(&c->token);
    __tsan_write_range(host_wgmma_memory_at(c->to, c->bytes), (unsigned long)c->bytes);
    __tsan_release(&c->done->token[c->done->phase % 2]);
    __tsan_switch_to_fiber(back, 1);
    __tsan_destroy_fiber(own);
}

static void land(copy *c)
{
    note_landing(c);
    if (c->is_box)
        write_box(c);
    else
        for (int i = 0; i < c->bytes; i++) host_wgmma_memory_at(c->to, c->bytes)[i] = c->from[i];
    c->live = false;
    c->done->bytes -= c->bytes;
    complete_phase(c->done);
}

static bool land_one(void)
{
    uint32_t live = 0;
    for (int i = 0; i < MOST_COPIES; i++) live += block->copies[i].live;
    if (live == 0) return false;
    uint32_t which = host_wgmma_current_order == HOST_WGMMA_RANDOM ? host_wgmma_draw(live) : 0;
    for (int i = 0; i < MOST_COPIES; i++) {
        if (!block->copies[i].live || which-- > 0) continue;
        land(&block->copies[i]);
        break;
    }
    return true;
}

/* May these bytes be overwritten? Until the copy lands, they are what no copy has written. */
static void claim(uint32_t at, int bytes)
{
    unsigned char *to = host_wgmma_memory_at(at, bytes);
    const int64_t first = (to - block->shared) / 16, end = (to - block->shared + bytes) / 16;
    for (int i = 0; i < MOST_COPIES; i++) {
        const copy *c = &block->copies[i];
        if (c->live && c->to < at + (uint32_t)bytes && at < c->to + (uint32_t)c->bytes)
            host_wgmma_fail("two copies to the same place");
    }
    for (int i = 0; i < MOST_GROUPS; i++)
        for (int64_t number = block->groups[i].freed; number < block->groups[i].started; number++)
            for (int64_t place = first; place < end; place++)
                if (block->groups[i].products[number % MOST_PRODUCTS].reads[place / 64] >> place % 64 & 1)
                    host_wgmma_fail("a copy over an operand of a product that is not waited for");
    for (int i = 0; i < bytes; i++) to[i] = 0xff;
}

static copy *begin_copy(uint32_t to, int bytes, uint32_t done)
{
    barrier *b = find_barrier(done);
    if (!b->fenced) host_wgmma_fail("a copy on a barrier that no fence has made known");
    claim(to, bytes);
    for (int i = 0; i < MOST_COPIES; i++) {
        copy *c = &block->copies[i];
        if (c->live) continue;
        c->live = true;
        c->to = to, c->bytes = bytes, c->done = b;
        if (__tsan_release != NULL) __tsan_release(&c->token);
        return c;
    }
    host_wgmma_fail("too many copies in flight");
}

void vt_copy_box(uint32_t to, const vt_box_map *map, int row, int panel, int sample, uint32_t done)
{
    bool fits = (uintptr_t)map->first % 16 == 0 && map->box[0] == 16 && to % 128 == 0;
    for (int i = 0; i < 4; i++)
        fits =
            fits && map->box[i] >= 1 && map->box[i] <= 256 && map->size[i] > 0 && (i == 0 || map->stride[i] % 16 == 0);
    if (!fits) host_wgmma_fail("a tensor map, or an address, that a GPU refuses");
    copy *c = begin_copy(to, 2 * map->box[0] * map->box[1] * map->box[2], done);
    c->is_box = true;
    c->map = *map;
    c->row = row, c->panel = panel, c->sample = sample;
    if (host_wgmma_current_order == HOST_WGMMA_EARLY) land(c);
}

void vt_copy_bytes(uint32_t to, const void *from, int bytes, uint32_t done)
{
    if ((uintptr_t)from % 16 != 0 || bytes % 16 != 0 || to % 16 != 0) host_wgmma_fail("a copy of unaligned memory");
    copy *c = begin_copy(to, bytes, done);
    c->is_box = false;
    c->from = from;
    if (host_wgmma_current_order == HOST_WGMMA_EARLY) land(c);
}

/* ---- what happens of its own accord ---- */

bool host_wgmma_advances(void)
{
    bool any = false;
    for (int i = 0; i < MOST_GROUPS; i++) any |= host_wgmma_compute_until(&block->groups[i], block->groups[i].demanded);
    return any || land_one();
}

bool host_wgmma_skips(void)
{
    if (host_wgmma_current_order != HOST_WGMMA_RANDOM) return false;
    warpgroup *g = &block->groups[host_wgmma_draw(MOST_GROUPS)];
    if (host_wgmma_draw(4) == 0) land_one();
    host_wgmma_compute_until(g, g->demanded);
    return host_wgmma_draw(2) == 0;
}
