/* What is done beside products of packed operands: the next operand is packed, unit by unit, and cache lines that are
 * needed soon are prefetched into the second level. */
#ifndef VT_BACKEND_CPU_AMX_BESIDE_H
#define VT_BACKEND_CPU_AMX_BESIDE_H

#include "backend/cpu/amx/terms.h"

typedef struct {
    void (*pack)(void *work, int64_t count); /* the next `count` units */
    void *work;
    pace pace;
    const char *ahead, *end; /* what is still to be prefetched */
} beside_product;

INLINE void do_beside(void *work, int place)
{
    enum { LINES_AT_A_PLACE = 4 };
    beside_product *b = work;
    (void)place;
    b->pack(b->work, take_due(&b->pace, b->pace.left));
    for (int i = 0; i < LINES_AT_A_PLACE && b->ahead < b->end; i++, b->ahead += 64) __builtin_prefetch(b->ahead, 0, 2);
}

/* Packs the units that are left. */
static inline void finish_beside(beside_product *b)
{
    b->pack(b->work, b->pace.left);
    b->pace.left = 0;
}

#endif
