/* AMX's tile registers in software, one set a thread, after Intel's manual (backend/cpu/amx/tiles.h names it): palette
 * 1, eight tiles of up to 16 rows of up to 64 bytes. What the processor would refuse with an exception is noted here,
 * and done to nothing. */
#ifndef VT_TESTS_OPERATIONS_TILES_MODEL_H
#define VT_TESTS_OPERATIONS_TILES_MODEL_H

#include <stddef.h>

struct tile_configuration;

void tiles_model_configure(const struct tile_configuration *configuration);
void tiles_model_release(void);
void tiles_model_zero(int tile);
void tiles_model_load(int tile, const void *from, ptrdiff_t stride);
void tiles_model_store(int tile, void *to, ptrdiff_t stride);
void tiles_model_multiply(int sum, int a, int b);

/* The first thing that was refused to any thread since the last call; NULL: nothing was. */
const char *tiles_model_refused(void);

#endif
