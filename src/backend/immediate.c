/* The functions of a back end that does everything at once, in the host's memory: nothing is pinned, pending or
 * recorded. */
#include <stdlib.h>

#include "backend/backend.h"
#include "base/memory.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* there is little to do */

static vt_status allocate_host(vt_backend *backend, size_t bytes, void **memory)
{
    *memory = vt_allocate(1, bytes > 0 ? bytes : 1, "what a step leaves");
    return VT_OK;
}

static void release_host(vt_backend *backend, void *memory)
{
    free(memory);
}

static void mark(vt_backend *backend, int mark)
{
}

static vt_status wait(vt_backend *backend, int mark)
{
    return backend->check(backend);
}

static void upload_end(vt_backend *backend, void *memory, const void *staging, size_t bytes)
{
    backend->copy_from_host(backend, memory, staging, bytes);
}

static void copy_beside(vt_backend *backend, int place, void *to, const void *from, size_t bytes)
{
    backend->copy(backend, to, from, bytes);
}

static void copy_beside_end(vt_backend *backend, int place)
{
}

void vt_backend_fill_immediate(vt_backend *backend)
{
    backend->allocate_host = allocate_host;
    backend->release_host = release_host;
    backend->copy = backend->copy_from_host;
    backend->copy_to_host_later = backend->copy_to_host;
    backend->mark = mark;
    backend->wait = wait;
    backend->upload = backend->copy_from_host;
    backend->upload_end = upload_end;
    backend->copy_beside = copy_beside;
    backend->copy_beside_end = copy_beside_end;
}
