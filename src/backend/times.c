#include "backend/times.h"

#include <stdlib.h>
#include <string.h>

#include "backend/operation_work.h"
#include "base/clock.h"
#include "base/memory.h"

enum { MOST = 128 };

typedef struct vt_times {
    vt_backend real; /* the table that is timed */
    vt_operation_time times[MOST];
    int used;
    int nesting; /* operations that are made of others count once */
} vt_times;

/* One more size than there is room for replaces the last. */
static vt_operation_time *find(vt_times *all, const char *operation, const vt_operation_work *work)
{
    for (vt_operation_time *t = all->times; t < all->times + all->used; t++)
        if (strcmp(t->operation, operation) == 0 && t->work.rows == work->rows && t->work.columns == work->columns &&
            t->work.depth == work->depth)
            return t;
    if (all->used < MOST) all->used++;
    all->times[all->used - 1] = (vt_operation_time){.operation = operation, .work = *work};
    return &all->times[all->used - 1];
}

/* The time when all that was asked for is done. A failure stays noted for the step's own check. */
static double time_when_done(vt_backend *backend)
{
    if (!backend->shares_host_memory) (void)backend->times->real.check(backend);
    return vt_clock_seconds();
}

static double begin_operation(vt_backend *backend)
{
    if (backend->times->nesting++ > 0) return 0;
    const double begin = time_when_done(backend);
    if (backend->clock_start != NULL) backend->clock_start(backend);
    return begin;
}

/* The device's clock measures all but copies from and to the host, which may run on another stream. */
static double seconds_since(vt_backend *backend, const char *operation, double begin)
{
    const double by_device = backend->clock_stop != NULL ? backend->clock_stop(backend) : 0;
    if (backend->clock_stop != NULL && strncmp(operation, "copy_", strlen("copy_")) != 0) return by_device;
    return time_when_done(backend) - begin;
}

static void end_operation(vt_backend *backend, const char *operation, const vt_operation_work *work, double begin)
{
    if (--backend->times->nesting > 0) return;
    const double seconds = seconds_since(backend, operation, begin);
    vt_operation_time *time = find(backend->times, operation, work);
    time->seconds += seconds;
    time->flops += vt_operation_flops(work);
    time->bytes += work->moved;
    time->calls++;
}

#define TIMED(name, work, ...)                                                                                         \
    static void timed_##name(vt_backend *backend VT_PARAMETERS(__VA_ARGS__))                                           \
    {                                                                                                                  \
        VT_MATRICES(__VA_ARGS__);                                                                                      \
        const vt_operation_work own = {work};                                                                          \
        const double begin = begin_operation(backend);                                                                 \
        backend->times->real.name(backend VT_ARGUMENTS(__VA_ARGS__));                                                  \
        end_operation(backend, #name, &own, begin);                                                                    \
    }
TIMED(zero, MOVES(OPTIMIZER, (double)bytes), VALUE(void *, memory), VALUE(size_t, bytes))
TIMED(copy, STARTS, VALUE(void *, to), VALUE(const void *, from), VALUE(size_t, bytes))
TIMED(copy_from_host, STARTS, VALUE(void *, memory), VALUE(const void *, host), VALUE(size_t, bytes))
TIMED(copy_to_host, STARTS, VALUE(void *, host), VALUE(const void *, memory), VALUE(size_t, bytes))
#define OPERATION TIMED
#include "backend/operations.def"

void vt_times_open(vt_backend *backend)
{
    vt_times_close(backend);
    vt_times *times = vt_allocate(1, sizeof *times, "the times of operations");
    times->real = *backend;
    backend->times = times;
    backend->zero = timed_zero;
    backend->copy = timed_copy;
    backend->copy_from_host = timed_copy_from_host;
    backend->copy_to_host = timed_copy_to_host;
#define OPERATION(name, work, ...)                                                                                     \
    if (backend->name != NULL) backend->name = timed_##name;
#include "backend/operations.def"
}

void vt_times_close(vt_backend *backend)
{
    vt_times *times = backend->times;
    if (times == NULL) return;
    *backend = times->real;
    free(times);
}

static int longer_first(const void *a, const void *b)
{
    double difference = ((const vt_operation_time *)b)->seconds - ((const vt_operation_time *)a)->seconds;
    return difference < 0 ? -1 : difference > 0;
}

const vt_operation_time *vt_times_sorted(vt_backend *backend, int *count)
{
    vt_times *all = backend->times;
    qsort(all->times, (size_t)all->used, sizeof all->times[0], longer_first);
    *count = all->used;
    return all->times;
}
