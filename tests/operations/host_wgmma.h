/* What the two files of the stand-in for Hopper's asynchronous instructions share: a block's state, and checks. */
#ifndef VT_TESTS_OPERATIONS_HOST_WGMMA_H
#define VT_TESTS_OPERATIONS_HOST_WGMMA_H

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
    host_wgmma_waiter *wait;
    int (*place)(void);
    int barrier_count;
    uint64_t random;
    barrier barriers[MOST_BARRIERS];
    copy copies[MOST_COPIES];
    warpgroup groups[MOST_GROUPS];
    thread_state threads[MOST_THREADS];
} block_state;

extern _Thread_local block_state *host_wgmma_block;
#define block host_wgmma_block

/* Ends the program. */
_Noreturn void host_wgmma_fail(const char *sentence);
/* An address in shared memory, with so many bytes behind it. */
unsigned char *host_wgmma_memory_at(uint32_t address, int bytes);
/* Below `below`. */
uint32_t host_wgmma_draw(uint32_t below);
/* Of the blocks from now on. */
extern host_wgmma_order host_wgmma_current_order;
/* Computes the products up to number `end` that all threads have started; true: there was one. */
bool host_wgmma_compute_until(warpgroup *g, int64_t end);

/* The 32-byte swizzle exchanges bit 4 of an address by adding bit 7 without carry. */
static inline uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 3 & 0x10);
}

#endif
