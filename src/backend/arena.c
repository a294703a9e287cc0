#include "backend/arena.h"

enum { ALIGNMENT = 256 };

/* Where an arena without memory begins: any address will do, since nothing there is used. */
static char *const unreal_base = (char *)(uintptr_t)ALIGNMENT;

vt_status vt_arena_open(vt_backend *backend, size_t capacity, vt_arena *arena)
{
    *arena = (vt_arena){.backend = backend, .base = unreal_base, .capacity = capacity};
    if (capacity == SIZE_MAX) return VT_OK;
    void *memory = NULL;
    vt_status status = backend->allocate(backend, VT_MEMORY_ACTIVATIONS, capacity, &memory);
    arena->base = memory;
    return status;
}

void vt_arena_close(vt_arena *arena)
{
    if (arena->backend != NULL && arena->capacity != SIZE_MAX) arena->backend->release(arena->backend, arena->base);
    *arena = (vt_arena){0};
}

void *vt_arena_push(vt_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    VT_ASSERT(rounded <= arena->capacity - arena->used);
    void *memory = arena->base + arena->used;
    arena->used += rounded;
    if (arena->used > arena->peak) arena->peak = arena->used;
    return memory;
}

vt_matrix vt_arena_push_matrix(vt_arena *arena, vt_type type, int64_t rows, int64_t columns)
{
    void *memory = vt_arena_push(arena, (size_t)rows * (size_t)columns * vt_type_size(type));
    vt_matrix matrix = vt_matrix_make(memory, rows, columns);
    matrix.type = type;
    return matrix;
}

void vt_arena_pop(vt_arena *arena, size_t mark)
{
    VT_ASSERT(mark <= arena->used);
    arena->used = mark;
}
