/* AMX's tile registers in software, one set for each thread, after Intel's manual (backend/cpu/amx/tiles.h names it):
 * palette 1, eight tiles of up to 16 rows of up to 64 bytes. Where the processor would raise an exception, the model
 * notes the fault and does nothing. */
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

/* The first fault of any thread since the last call; NULL: none. */
const char *tiles_model_refused(void);

#endif
