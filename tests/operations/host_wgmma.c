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
#include <stdio.h>
#include <stdlib.h>

#include "cuda/host_wgmma.h"

/* There only in a program that is linked with ThreadSanitizer. */
#define WEAK __attribute__((weak))
WEAK void *__tsan_get_current_fiber(void);
WEAK void *__tsan_create_fiber(unsigned flags);
WEAK void __tsan_destroy_fiber(void *fiber);
WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
WEAK void __tsan_acquire(void *token);
WEAK void __tsan_release(void *token);
WEAK void __tsan_read_range(void *address, unsigned long bytes);
WEAK void __tsan_write_range(void *address, unsigned long bytes);

enum {
    MOST_THREADS = 512,
    MOST_GROUPS = MOST_THREADS / 128,
    MOST_SHARED = 227 * 1024,
    PIECES = MOST_SHARED / 16, /* shared memory is watched in pieces of 16 bytes */
    MOST_BARRIERS = 64,
    MOST_COPIES = 64,
    MOST_PRODUCTS = 64, /* of a warpgroup, in flight */
    MOST_ARRAYS = 64,   /* of a thread: operands in registers */
    FIRST_ADDRESS = 1024
};
static const uint32_t POISON = 0x7fc0dead; /* NaN */

typedef struct { /* operands in registers, known by their address */
    const uint32_t *at;
    int count, pending;  /* pending: products in flight that have it as their result */
    uint32_t fenced[64]; /* what it was at the last fence */
    float sums[64];      /* of a result in flight */
} array;

typedef struct {
    bool fences;
    int64_t started, retired, committed, group_end[64];
    int array_count;
    array arrays[MOST_ARRAYS];
} thread_state;

typedef struct {
    uint32_t at;
    int expected, pending;
    int64_t bytes, phase;
    bool fenced;
    char token[2];
} barrier;

typedef struct {
    bool live, is_box;
    uint32_t to;
    int bytes;
    vt_box_map map;
    int row, panel, sample;
    const unsigned char *from;
    barrier *done;
    char token;
} copy;

typedef struct {
    int columns, count, retired; /* threads that have started it, that have waited for it */
    int major;
    bool adds, computed;
    uint64_t b;
    uint32_t a[128][4];
    const uint32_t *a_at[128];
    array *result[128];
    uint64_t reads[(PIECES + 63) / 64];
} product;

typedef struct {
    int64_t started, computed, freed; /* products by their number */
    int64_t demanded;                 /* up to which some thread waits for them */
    product products[MOST_PRODUCTS];
} warpgroup;

/* Of the block that runs on this OpenMP thread. */
typedef struct {
    unsigned char *shared;
    int64_t shared_bytes;
    int barrier_count;
    uint64_t random;
    barrier barriers[MOST_BARRIERS];
    copy copies[MOST_COPIES];
    warpgroup groups[MOST_GROUPS];
    thread_state threads[MOST_THREADS];
} block_state;

static _Thread_local block_state *block;
static host_wgmma_order order = HOST_WGMMA_LATE;
static uint32_t seed;

static _Noreturn void fail(const char *sentence)
{
    fprintf(stderr, "host_wgmma: %s\n", sentence);
    abort();
}

static uint32_t draw(uint32_t below)
{
    block->random = block->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((block->random >> 33) % below);
}

void host_wgmma_choose(host_wgmma_order how, uint32_t with)
{
    order = how;
    seed = with;
}

static float number_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float number;
    } both = {.bits = bits};
    return both.number;
}

static uint32_t bits_of(float number)
{
    union {
        float number;
        uint32_t bits;
    } both = {.number = number};
    return both.bits;
}

/* ---- blocks ---- */

void host_wgmma_block_begins(int threads, unsigned char *shared, int64_t shared_bytes)
{
    if (threads > MOST_THREADS || shared_bytes > MOST_SHARED) fail("a block that a GPU refuses");
    if (block == NULL) block = calloc(1, sizeof *block);
    if (block == NULL) fail("no memory");
    block->shared = shared;
    block->shared_bytes = shared_bytes;
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
        if (block->copies[i].live) fail("a block ends before its copies have landed");
}

void host_wgmma_thread_ends(int thread)
{
    if (block->threads[thread].retired != block->threads[thread].started)
        fail("a thread ends before its products are waited for");
}

uint32_t host_wgmma_address(const void *pointer)
{
    const int64_t at = (const unsigned char *)pointer - block->shared;
    if (at < 0 || at >= block->shared_bytes) fail("a pointer outside of shared memory");
    return (uint32_t)(at + FIRST_ADDRESS);
}

static unsigned char *memory_at(uint32_t address, int bytes)
{
    if (address < FIRST_ADDRESS || (int64_t)address + bytes > FIRST_ADDRESS + block->shared_bytes)
        fail("an address outside of shared memory");
    return block->shared + (address - FIRST_ADDRESS);
}

/* ---- barriers ---- */

static barrier *find_barrier(uint32_t at)
{
    for (int i = 0; i < block->barrier_count; i++)
        if (block->barriers[i].at == at) return &block->barriers[i];
    fail("a barrier that is not initialised");
}

/* What ThreadSanitizer sees of a barrier's use: initialising it writes its bytes, everything else reads them. */
static void note_barrier(uint32_t at, bool writes)
{
    if (__tsan_write_range == NULL) return;
    if (writes)
        __tsan_write_range(memory_at(at, 8), 8);
    else
        __tsan_read_range(memory_at(at, 8), 8);
}

void host_wgmma_barrier_init(uint32_t at, int arrivals)
{
    if (at % 8 != 0 || block->barrier_count == MOST_BARRIERS) fail("a barrier's place, or too many of them");
    memory_at(at, 8);
    note_barrier(at, true);
    barrier *b = &block->barriers[block->barrier_count++];
    b->at = at;
    b->expected = b->pending = arrivals;
    b->bytes = b->phase = 0;
    b->fenced = false;
}

void host_wgmma_barrier_init_fence(void)
{
    for (int i = 0; i < block->barrier_count; i++) block->barriers[i].fenced = true;
}

static void complete_phase(barrier *b)
{
    if (b->pending < 0) fail("more arrivals at a barrier than it expects");
    if (b->pending > 0 || b->bytes != 0) return;
    b->phase++;
    b->pending = b->expected;
}

void host_wgmma_barrier_arrive(uint32_t at, int64_t bytes)
{
    barrier *b = find_barrier(at);
    note_barrier(at, false);
    if (__tsan_release != NULL) __tsan_release(&b->token[b->phase % 2]);
    b->bytes += bytes;
    b->pending--;
    complete_phase(b);
}

static bool phase_is_complete(int64_t what, int64_t parity)
{
    return ((const barrier *)what)->phase % 2 != parity;
}

void host_wgmma_barrier_wait(uint32_t at, int parity, host_wgmma_waiter *wait)
{
    barrier *b = find_barrier(at);
    note_barrier(at, false);
    wait(phase_is_complete, (int64_t)b, parity);
    if (__tsan_acquire != NULL) __tsan_acquire(&b->token[parity]);
}

/* ---- copies ---- */

/* The 32-byte swizzle exchanges bit 4 of an address by adding bit 7 without carry. */
static uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 3 & 0x10);
}

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
                *(uint16_t *)memory_at(swizzled(to), 2) =
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
    __tsan_write_range(memory_at(c->to, c->bytes), (unsigned long)c->bytes);
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
        for (int i = 0; i < c->bytes; i++) memory_at(c->to, c->bytes)[i] = c->from[i];
    c->live = false;
    c->done->bytes -= c->bytes;
    complete_phase(c->done);
}

static bool land_one(void)
{
    uint32_t live = 0;
    for (int i = 0; i < MOST_COPIES; i++) live += block->copies[i].live;
    if (live == 0) return false;
    uint32_t which = order == HOST_WGMMA_RANDOM ? draw(live) : 0;
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
    unsigned char *to = memory_at(at, bytes);
    const int64_t first = (to - block->shared) / 16, end = (to - block->shared + bytes) / 16;
    for (int i = 0; i < MOST_COPIES; i++) {
        const copy *c = &block->copies[i];
        if (c->live && c->to < at + (uint32_t)bytes && at < c->to + (uint32_t)c->bytes)
            fail("two copies to the same place");
    }
    for (int i = 0; i < MOST_GROUPS; i++)
        for (int64_t number = block->groups[i].freed; number < block->groups[i].started; number++)
            for (int64_t place = first; place < end; place++)
                if (block->groups[i].products[number % MOST_PRODUCTS].reads[place / 64] >> place % 64 & 1)
                    fail("a copy over an operand of a product that is not waited for");
    for (int i = 0; i < bytes; i++) to[i] = 0xff;
}

static copy *begin_copy(uint32_t to, int bytes, uint32_t done)
{
    barrier *b = find_barrier(done);
    if (!b->fenced) fail("a copy on a barrier that no fence has made known");
    claim(to, bytes);
    for (int i = 0; i < MOST_COPIES; i++) {
        copy *c = &block->copies[i];
        if (c->live) continue;
        c->live = true;
        c->to = to, c->bytes = bytes, c->done = b;
        if (__tsan_release != NULL) __tsan_release(&c->token);
        return c;
    }
    fail("too many copies in flight");
}

void host_wgmma_copy_box(uint32_t to, const vt_box_map *map, int row, int panel, int sample, uint32_t done)
{
    bool fits = (uintptr_t)map->first % 16 == 0 && map->box[0] == 16 && to % 128 == 0;
    for (int i = 0; i < 4; i++)
        fits =
            fits && map->box[i] >= 1 && map->box[i] <= 256 && map->size[i] > 0 && (i == 0 || map->stride[i] % 16 == 0);
    if (!fits) fail("a tensor map, or an address, that a GPU refuses");
    copy *c = begin_copy(to, 2 * map->box[0] * map->box[1] * map->box[2], done);
    c->is_box = true;
    c->map = *map;
    c->row = row, c->panel = panel, c->sample = sample;
    if (order == HOST_WGMMA_EARLY) land(c);
}

void host_wgmma_copy_bytes(uint32_t to, const void *from, int bytes, uint32_t done)
{
    if ((uintptr_t)from % 16 != 0 || bytes % 16 != 0 || to % 16 != 0) fail("a copy of unaligned memory");
    copy *c = begin_copy(to, bytes, done);
    c->is_box = false;
    c->from = from;
    if (order == HOST_WGMMA_EARLY) land(c);
}

/* ---- products ---- */

/* Where element (k, n) of operand B is; major: see wgmma.h. */
static uint32_t element_at(uint64_t descriptor, int major, int k, int n)
{
    const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
    const int leading = (int)(descriptor >> 16 & 0x3fff) << 4, stride = (int)(descriptor >> 32 & 0x3fff) << 4;
    const int offset =
        major == 0 ? n % 8 * 32 + n / 8 * stride + k * 2 : n % 16 * 2 + n / 16 * leading + k % 8 * 32 + k / 8 * stride;
    if (descriptor >> 62 != 3 || (descriptor >> 49 & 7) != 0) fail("a descriptor without a 32-byte swizzle");
    if (start % 256 != 0) fail("an operand does not begin where its swizzle does");
    return swizzled(start + (uint32_t)offset);
}

static float read_operand(uint32_t at)
{
    const uint16_t half = *(const uint16_t *)memory_at(at, 2);
    if (half == 0xffff) fail("a product reads what no copy has written");
    return number_of((uint32_t)half << 16);
}

/* Fragment of D: thread 4 g + t of warp w has rows 16 w + g and g + 8, columns 8 j + 2 t and 8 j + 2 t + 1. */
static void add_to_result(array *d, int thread, bool adds, int columns, float (*a)[16], float (*b)[256])
{
    for (int i = 0; i < columns / 2; i++) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
        const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        double sum = adds ? (double)d->sums[i] : 0;
        for (int k = 0; k < 16; k++) sum += (double)a[row][k] * (double)b[k][column];
        d->sums[i] = (float)sum;
    }
    if (--d->pending > 0) return;
    for (int i = 0; i < columns / 2; i++) {
        if (d->at[i] != POISON) fail("a thread writes a result while its product is in flight");
        *(float *)(uintptr_t)&d->at[i] = d->sums[i];
        d->fenced[i] = bits_of(d->sums[i]);
    }
}

static void compute(product *p)
{
    static _Thread_local float a[64][16], b[16][256];
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 64; m++) {
            /* Fragment of A: as D's rows; depths 2 t, 2 t + 1 and those + 8. */
            const int thread = m / 16 * 32 + m % 8 * 4 + k % 8 / 2, i = m % 16 / 8 + k / 8 * 2;
            a[m][k] = number_of(p->a[thread][i] >> k % 2 * 16 << 16);
        }
        for (int n = 0; n < p->columns; n++) b[k][n] = read_operand(element_at(p->b, p->major, k, n));
    }
    for (int thread = 0; thread < 128; thread++) add_to_result(p->result[thread], thread, p->adds, p->columns, a, b);
    p->computed = true;
}

/* Computes the products up to number `end` that all threads have started; true: there was one. */
static bool compute_until(warpgroup *g, int64_t end)
{
    const int64_t before = g->computed;
    for (; g->computed < end && g->computed < g->started; g->computed++) {
        product *p = &g->products[g->computed % MOST_PRODUCTS];
        if (p->count < 128) break;
        compute(p);
    }
    return g->computed > before;
}

/* The thread's array at `at`; it must be as it was at the last fence. */
static array *watched(thread_state *self, const uint32_t *at, int count)
{
    for (int i = 0; i < self->array_count; i++) {
        array *known = &self->arrays[i];
        if (known->at != at || known->count != count) continue;
        for (int j = 0; known->pending == 0 && j < count; j++)
            if (at[j] != known->fenced[j]) fail("an operand's registers have changed since the last vt_wgmma_fence");
        return known;
    }
    if (self->array_count == MOST_ARRAYS) fail("too many operands in registers");
    if (!self->fences) fail("a product without a vt_wgmma_fence before it");
    array *new_one = &self->arrays[self->array_count++];
    new_one->at = at, new_one->count = count, new_one->pending = 0;
    for (int j = 0; j < count; j++) new_one->fenced[j] = at[j];
    return new_one;
}

void host_wgmma_fence(int thread)
{
    thread_state *self = &block->threads[thread];
    self->fences = true;
    for (int i = 0; i < self->array_count; i++) {
        array *known = &self->arrays[i];
        for (int j = 0; known->pending == 0 && j < known->count; j++) known->fenced[j] = known->at[j];
    }
}

/* For ThreadSanitizer, the first lane of each warp reads the operand. */
static void note_reads(const product *p, int thread)
{
    if (__tsan_read_range == NULL || thread % 32 != 0) return;
    for (int64_t place = 0; place < block->shared_bytes / 16; place++)
        if (p->reads[place / 64] >> place % 64 & 1) __tsan_read_range(block->shared + 16 * place, 16);
}

static void begin_product(product *p, int columns, uint64_t b, int major, bool adds)
{
    p->columns = columns, p->major = major, p->b = b;
    p->adds = adds;
    p->count = p->retired = 0;
    p->computed = false;
    for (size_t i = 0; i < sizeof p->reads / sizeof *p->reads; i++) p->reads[i] = 0;
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < columns; n++) {
            const int64_t place = (memory_at(element_at(b, major, k, n), 2) - block->shared) / 16;
            p->reads[place / 64] |= (uint64_t)1 << place % 64;
        }
}

void host_wgmma_multiply(int thread, float *d, int columns, const uint32_t *a, uint64_t b, int major, bool adds)
{
    thread_state *self = &block->threads[thread];
    warpgroup *g = &block->groups[thread / 128];
    const int64_t number = self->started++;
    product *p = &g->products[number % MOST_PRODUCTS];
    if (number == g->started) {
        if (g->started - g->freed == MOST_PRODUCTS) fail("too many products in flight");
        g->started++;
        begin_product(p, columns, b, major, adds);
    } else if (p->columns != columns || p->major != major || p->adds != adds || p->b != b) {
        fail("threads of a warpgroup start different products");
    }
    array *result = p->result[thread % 128] = watched(self, (const uint32_t *)d, columns / 2);
    if (result->pending++ == 0)
        for (int i = 0; i < columns / 2; i++) result->sums[i] = d[i];
    for (int i = 0; i < columns / 2; i++) ((uint32_t *)d)[i] = POISON;
    watched(self, a, 4);
    p->a_at[thread % 128] = a;
    for (int i = 0; i < 4; i++) p->a[thread % 128][i] = a[i];
    note_reads(p, thread);
    if (++p->count == 128 && (order == HOST_WGMMA_EARLY || (order == HOST_WGMMA_RANDOM && draw(2) == 0)))
        compute_until(g, number + 1);
}

void host_wgmma_commit(int thread)
{
    thread_state *self = &block->threads[thread];
    self->group_end[self->committed++ % 64] = self->started;
}

static bool products_are_computed(int64_t what, int64_t until)
{
    return ((const warpgroup *)what)->computed >= until;
}

void host_wgmma_wait(int thread, int pending, host_wgmma_waiter *wait)
{
    thread_state *self = &block->threads[thread];
    warpgroup *g = &block->groups[thread / 128];
    if (self->committed <= pending) return;
    const int64_t end = self->group_end[(self->committed - 1 - pending) % 64];
    if (g->demanded < end) g->demanded = end;
    wait(products_are_computed, (int64_t)g, end);
    for (; self->retired < end; self->retired++) {
        product *p = &g->products[self->retired % MOST_PRODUCTS];
        const uint32_t *now = p->a_at[thread % 128];
        for (int i = 0; i < 4; i++)
            if (now[i] != p->a[thread % 128][i]) fail("registers of a product in flight have changed");
        note_reads(p, thread);
        if (++p->retired == 128) g->freed = self->retired + 1;
    }
}

/* ---- what happens of its own accord ---- */

bool host_wgmma_advances(void)
{
    bool any = false;
    for (int i = 0; i < MOST_GROUPS; i++) any |= compute_until(&block->groups[i], block->groups[i].demanded);
    return any || land_one();
}

bool host_wgmma_skips(void)
{
    if (order != HOST_WGMMA_RANDOM) return false;
    warpgroup *g = &block->groups[draw(MOST_GROUPS)];
    if (draw(4) == 0) land_one();
    compute_until(g, g->demanded);
    return draw(2) == 0;
}
