/* The eight tile registers of Intel AMX, as a kernel sees them: all of 16 rows of 64 bytes. A kernel over this header
 * is compiled twice: for processors that have them, and with VT_TILES_MODEL over a model in software, which tests run
 * anywhere. Tile numbers must be constants.
 *
 *   tiles_configure()              once a thread, before the others; another library may have left other tiles
 *   tiles_release()                when the thread is done: the system need not keep the tiles any more
 *   tile_zero(tile)
 *   tile_load(tile, from, stride)  16 rows of 64 bytes; `stride` bytes from one to the next
 *   tile_store(tile, to, stride)
 *   tile_multiply(sum, a, b)       sum [16 × 16 float32] += a [16 × 32 bfloat16] b: row p of b holds 16 pairs, of
 *                                  which pair c are b's numbers (2p, c) and (2p + 1, c). Denormal numbers count as 0.
 *
 * Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1, chapter 18, and TDPBF16PS. */
#ifndef VT_BACKEND_CPU_AMX_TILES_H
#define VT_BACKEND_CPU_AMX_TILES_H

#include <stdint.h>

/* What LDTILECFG reads. */
typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

_Static_assert(sizeof(tile_configuration) == 64, "as the instruction reads it");

static inline tile_configuration tiles_all_full(void)
{
    tile_configuration all = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        all.row_bytes[tile] = 64;
        all.rows[tile] = 16;
    }
    return all;
}

#ifdef VT_TILES_MODEL

#include "operations/tiles_model.h"

#define tiles_load_configuration(configuration) tiles_model_configure(configuration)
#define tiles_release() tiles_model_release()
#define tile_zero(tile) tiles_model_zero(tile)
#define tile_load(tile, from, stride) tiles_model_load((tile), (from), (stride))
#define tile_store(tile, to, stride) tiles_model_store((tile), (to), (stride))
#define tile_multiply(sum, a, b) tiles_model_multiply((sum), (a), (b))

#else

#include <immintrin.h>

/* gcc's intrinsics do not say that loading a tile reads memory, nor that a configuration has 64 bytes (its
 * _tile_loadconfig names 8): the first needs a barrier, the second is written out. */
#define tiles_memory_is_read() __asm__ volatile("" ::: "memory")
#define tiles_load_configuration(configuration) __asm__ volatile("ldtilecfg %0" ::"m"(*(configuration)))
#define tiles_release() _tile_release()
#define tile_zero(tile) _tile_zero(tile)
#define tile_load(tile, from, stride)                                                                                  \
    do {                                                                                                               \
        tiles_memory_is_read();                                                                                        \
        _tile_loadd(tile, (from), (stride));                                                                           \
    } while (0)
#define tile_store(tile, to, stride) _tile_stored(tile, (to), (stride))
#define tile_multiply(sum, a, b) _tile_dpbf16ps(sum, a, b)

#endif

static inline void tiles_configure(void)
{
    const tile_configuration all = tiles_all_full();
    tiles_load_configuration(&all);
}

#endif
