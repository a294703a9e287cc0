/* Products of the stand-in for Hopper's asynchronous instructions: see host_wgmma.c. */
#include "operations/host_wgmma.h"

static const uint32_t POISON = 0x7fc0dead; /* NaN: in the registers of a result in flight */

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

/* Where element (k, n) of operand B is; major: see wgmma.h. */
static uint32_t element_at(uint64_t descriptor, int major, int k, int n)
{
    const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
    const int leading = (int)(descriptor >> 16 & 0x3fff) << 4, stride = (int)(descriptor >> 32 & 0x3fff) << 4;
    const int offset =
        major == 0 ? n % 8 * 32 + n / 8 * stride + k * 2 : n % 16 * 2 + n / 16 * leading + k % 8 * 32 + k / 8 * stride;
    if (descriptor >> 62 != 3 || (descriptor >> 49 & 7) != 0) host_wgmma_fail("a descriptor without a 32-byte swizzle");
    if (start % 256 != 0) host_wgmma_fail("an operand does not begin where its swizzle does");
    return swizzled(start + (uint32_t)offset);
}

static float read_operand(uint32_t at)
{
    const uint16_t half = *(const uint16_t *)host_wgmma_memory_at(at, 2);
    if (half == 0xffff) host_wgmma_fail("a product reads what no copy has written");
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
        if (d->at[i] != POISON) host_wgmma_fail("a thread writes a result while its product is in flight");
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

bool host_wgmma_compute_until(warpgroup *g, int64_t end)
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
            if (at[j] != known->fenced[j])
                host_wgmma_fail("an operand's registers have changed since the last vt_wgmma_fence");
        return known;
    }
    if (self->array_count == MOST_ARRAYS) host_wgmma_fail("too many operands in registers");
    if (!self->fences) host_wgmma_fail("a product without a vt_wgmma_fence before it");
    array *new_one = &self->arrays[self->array_count++];
    new_one->at = at, new_one->count = count, new_one->pending = 0;
    for (int j = 0; j < count; j++) new_one->fenced[j] = at[j];
    return new_one;
}

void vt_wgmma_fence(void)
{
    thread_state *self = &block->threads[block->place()];
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
            const int64_t place = (host_wgmma_memory_at(element_at(b, major, k, n), 2) - block->shared) / 16;
            p->reads[place / 64] |= (uint64_t)1 << place % 64;
        }
}

void host_wgmma_multiply(float *d, int columns, const uint32_t *a, uint64_t b, int major, bool adds)
{
    const int thread = block->place();
    thread_state *self = &block->threads[thread];
    warpgroup *g = &block->groups[thread / 128];
    const int64_t number = self->started++;
    product *p = &g->products[number % MOST_PRODUCTS];
    if (number == g->started) {
        if (g->started - g->freed == MOST_PRODUCTS) host_wgmma_fail("too many products in flight");
        g->started++;
        begin_product(p, columns, b, major, adds);
    } else if (p->columns != columns || p->major != major || p->adds != adds || p->b != b) {
        host_wgmma_fail("threads of a warpgroup start different products");
    }
    array *result = p->result[thread % 128] = watched(self, (const uint32_t *)d, columns / 2);
    if (result->pending++ == 0)
        for (int i = 0; i < columns / 2; i++) result->sums[i] = d[i];
    for (int i = 0; i < columns / 2; i++) ((uint32_t *)d)[i] = POISON;
    watched(self, a, 4);
    p->a_at[thread % 128] = a;
    for (int i = 0; i < 4; i++) p->a[thread % 128][i] = a[i];
    note_reads(p, thread);
    if (++p->count == 128 && (host_wgmma_current_order == HOST_WGMMA_EARLY ||
                              (host_wgmma_current_order == HOST_WGMMA_RANDOM && host_wgmma_draw(2) == 0)))
        host_wgmma_compute_until(g, number + 1);
}

void vt_wgmma_commit(void)
{
    thread_state *self = &block->threads[block->place()];
    self->group_end[self->committed++ % 64] = self->started;
}

static bool products_are_computed(int64_t what, int64_t until)
{
    return ((const warpgroup *)what)->computed >= until;
}

void host_wgmma_wait(int pending)
{
    const int thread = block->place();
    thread_state *self = &block->threads[thread];
    warpgroup *g = &block->groups[thread / 128];
    if (self->committed <= pending) return;
    const int64_t end = self->group_end[(self->committed - 1 - pending) % 64];
    if (g->demanded < end) g->demanded = end;
    block->wait(products_are_computed, (int64_t)g, end);
    for (; self->retired < end; self->retired++) {
        product *p = &g->products[self->retired % MOST_PRODUCTS];
        const uint32_t *now = p->a_at[thread % 128];
        for (int i = 0; i < 4; i++)
            if (now[i] != p->a[thread % 128][i]) host_wgmma_fail("registers of a product in flight have changed");
        note_reads(p, thread);
        if (++p->retired == 128) g->freed = self->retired + 1;
    }
}
