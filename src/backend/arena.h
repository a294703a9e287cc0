/* A stack of device memory for what one micro-batch needs: forward pushes, backward pops. Its size is known before the
 * run, because the dry back end runs the same step first and notes the peak. */
#ifndef VT_BACKEND_ARENA_H
#define VT_BACKEND_ARENA_H

#include "backend/backend.h"

typedef struct {
    vt_backend *backend;
    char *base;
    size_t capacity;
    size_t used; /* bytes */
    size_t peak; /* the largest `used` so far */
} vt_arena;

/* Allocates `capacity` bytes; SIZE_MAX (dry back end only): no memory, and no limit. */
vt_status vt_arena_open(vt_backend *backend, size_t capacity, vt_arena *arena);
void vt_arena_close(vt_arena *arena);

/* Not zeroed, aligned to 256 bytes. */
void *vt_arena_push(vt_arena *arena, size_t bytes);
vt_matrix vt_arena_push_matrix(vt_arena *arena, vt_type type, int64_t rows, int64_t columns);

/* vt_arena_pop(arena, mark) gives back all that was pushed since mark = arena->used was noted. */
void vt_arena_pop(vt_arena *arena, size_t mark);

#endif
