/* The back end that computes nothing: the same step runs over it to learn how much memory and how many FLOPs it takes.
 * Only matrix products are counted in FLOPs (a multiply-add is two), attention's included. Memory bounds all other
 * operations, so the bytes that they read and write are counted. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/operation_work.h"
#include "base/memory.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* most operands are not looked at */

static vt_dry_count *count_of(vt_backend *backend)
{
    return backend->state;
}

/* Counts a call. A product of one more size than there is room for joins the last. */
static void add_work(vt_backend *backend, const vt_operation_work *work)
{
    vt_dry_count *count = count_of(backend);
    const double flops = vt_operation_flops(work);
    int i = 0;
    count->operations++;
    count->flops += flops;
    count->attention_flops += work->attention_flops;
    count->moved[work->kind] += work->moved;
    if (!work->is_product) return;
    while (i < count->product_count &&
           (count->products[i].flops != flops || count->products[i].bytes != work->product_bytes))
        i++;
    if (i == VT_DRY_PRODUCTS) i--;
    if (i == count->product_count)
        count->products[count->product_count++] = (vt_dry_product){flops, work->product_bytes, 0};
    count->products[i].calls++;
}

static double dry_available_memory(vt_backend *backend)
{
    return -1;
}

static vt_status dry_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    count_of(backend)->bytes[category] += bytes;
    *memory = (void *)(uintptr_t)256; /* an address that looks aligned and must never be used */
    return VT_OK;
}

static void dry_release(vt_backend *backend, void *memory)
{
}

static void dry_zero(vt_backend *backend, void *memory, size_t bytes)
{
    add_work(backend, &(vt_operation_work){.kind = VT_WORK_OPTIMIZER, .moved = (double)bytes});
}

static void dry_copy_from_host(vt_backend *backend, void *memory, const void *host, size_t bytes)
{
}

/* What comes to the host is 0. */
static void dry_copy_to_host(vt_backend *backend, void *host, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((char *)host)[i] = 0;
}

static vt_status dry_check(vt_backend *backend)
{
    return VT_OK;
}

static void dry_close(vt_backend *backend)
{
    free(backend->state);
}

/* Plans are made without the optional ones. */
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...)                                                                                     \
    static void dry_##name(vt_backend *backend VT_PARAMETERS(__VA_ARGS__))                                             \
    {                                                                                                                  \
        VT_MATRICES(__VA_ARGS__);                                                                                      \
        const vt_operation_work own = {work};                                                                          \
        add_work(backend, &own);                                                                                       \
    }
#include "backend/operations.def"

vt_status vt_backend_open_dry(vt_backend **result)
{
    vt_backend *backend = vt_allocate(1, sizeof *backend, "the dry back end");
    vt_dry_count *count = vt_allocate(1, sizeof *count, "the dry back end");
    *backend = (vt_backend){.state = count,
                            .shares_host_memory = true,
                            .close = dry_close,
                            .check = dry_check,
                            .available_memory = dry_available_memory,
                            .allocate = dry_allocate,
                            .release = dry_release,
                            .zero = dry_zero,
                            .copy_from_host = dry_copy_from_host,
                            .copy_to_host = dry_copy_to_host};
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...) backend->name = dry_##name;
#include "backend/operations.def"
    vt_backend_fill_immediate(backend);
    snprintf(backend->name, sizeof backend->name, "dry");
    *result = backend;
    return VT_OK;
}

const vt_dry_count *vt_backend_dry_count(const vt_backend *backend)
{
    return backend->state;
}
