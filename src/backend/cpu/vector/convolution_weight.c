/* Convolutions by tiles: dweight (convolution_values.h). A block of channels of x × a block of channels of dy at a
 * time, its products summed over all tiles. */
#include "backend/cpu/vector/convolution_tiles.h"

enum {
    BLOCK = 64,       /* channels of dy */
    BLOCK_TILES = 64, /* whose values are packed at once */
    MOST_PARTS = 8    /* of the tiles, each with sums of its own */
};

/* A block of channels of x × a block of channels of dy at a time. */
typedef struct {
    tiling tiles;
    vt_matrix x, dy;
    float *dweight;
    int64_t parts, x_blocks, y_blocks;
    int64_t channels, block; /* of a block of x, and of dy */
    int64_t rows;            /* of the sums: (sublattice, channel) */
    int64_t in_group;        /* sublattices whose channels fit in COLUMN_STRIDE */
    int64_t groups;          /* of sublattices */
} weight_work;

static int64_t sums_of_plane(const weight_work *w)
{
    return PLANE * w->rows * w->block;
}

/* left [PLANE][groups][BLOCK_TILES][COLUMN_STRIDE]. */
static void pack_left(const weight_work *w, int64_t first, int64_t tiles, int j, int64_t c, float *left)
{
    const int64_t count = smaller(w->channels, w->tiles.shape.in - c);
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        vector values[72];
        tile_place(&w->tiles, first + tile, at);
        spread_tile(&w->tiles, &w->x, at, j, c, count, values);
        for (int p = 0; p < PLANE; p++) {
            for (int s = 0; s < SUBLATTICES; s++) {
                float *to = left + ((p * w->groups + s / w->in_group) * BLOCK_TILES + tile) * COLUMN_STRIDE;
                store_up_to(to + s % w->in_group * w->channels, values[plane_place(p, s)], w->channels);
            }
        }
    }
}

/* right [PLANE][BLOCK / PANEL][BLOCK_TILES][PANEL]. */
static void pack_right(const weight_work *w, int64_t first, int64_t tiles, int j, int64_t c, float *right)
{
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at[4];
        tile_place(&w->tiles, first + tile, at);
        for (int64_t i = 0; i < BLOCK; i += LANES) {
            const int64_t count = w->tiles.shape.out - c - i;
            vector products[PLANE] = {{0}};
            if (count > 0) spread_gradient(&w->tiles, &w->dy, at, j, c + i, count, products);
            for (int p = 0; p < PLANE; p++)
                store(right + ((p * (BLOCK / PANEL) + i / PANEL) * BLOCK_TILES + tile) * PANEL + i % PANEL,
                      products[p]);
        }
    }
}

/* Adds up part `part` of the tiles: sums [PLANE][rows][BLOCK]. */
static void add_part(const weight_work *w, int64_t part, int j, int64_t x_block, int64_t y_block, float *memory,
                     float *sums)
{
    float *left = memory, *right = left + PLANE * w->groups * BLOCK_TILES * COLUMN_STRIDE;
    const int64_t begin = piece_begin(w->tiles.count, w->parts, part);
    const int64_t end = piece_begin(w->tiles.count, w->parts, part + 1);
    for (int64_t first = begin; first < end; first += BLOCK_TILES) {
        const int64_t tiles = smaller(BLOCK_TILES, end - first);
        pack_left(w, first, tiles, j, x_block * w->channels, left);
        pack_right(w, first, tiles, j, y_block * BLOCK, right);
        for (int64_t item = 0; item < PLANE * w->groups * (BLOCK / PANEL); item++) {
            const int64_t panel = item % (BLOCK / PANEL), group = item / (BLOCK / PANEL) % w->groups;
            const int64_t p = item / (BLOCK / PANEL) / w->groups, sublattice = group * w->in_group;
            const int64_t rows = smaller(w->in_group, SUBLATTICES - sublattice) * w->channels;
            const int64_t parts = pieces(rows, MOST_ROWS);
            const float *a = left + (p * w->groups + group) * BLOCK_TILES * COLUMN_STRIDE;
            const float *b = right + (p * (BLOCK / PANEL) + panel) * BLOCK_TILES * PANEL;
            float *to = sums + (p * w->rows + sublattice * w->channels) * BLOCK + panel * PANEL;
            for (int64_t i = 0; i < parts; i++) {
                const int64_t r = piece_begin(rows, parts, i);
                product_by_columns(piece_begin(rows, parts, i + 1) - r, a + r, COLUMN_STRIDE, b, PANEL, tiles,
                                   to + r * BLOCK, BLOCK, first > begin,
                                   (upcoming){(const char *)(to + (r + MOST_ROWS) * BLOCK), 0});
            }
        }
    }
}

/* A channel of a block of x: sums [3][parts][PLANE][rows][block]. */
static void add_channel(const weight_work *w, const float *sums, int64_t x_block, int64_t y_block, int64_t channel)
{
    const int64_t c = x_block * w->channels + channel, o = y_block * w->block;
    vector values[216];
    for (int64_t i = 0; i < w->block && c < w->tiles.shape.in && o + i < w->tiles.shape.out; i += LANES) {
        for (int product = 0; product < PRODUCTS; product++) {
            for (int s = 0; s < SUBLATTICES; s++) {
                vector sum = {0};
                for (int64_t part = 0; part < w->parts; part++)
                    sum += load(sums + (product / PLANE * w->parts + part) * sums_of_plane(w) +
                                (product % PLANE * w->rows + s * w->channels + channel) * w->block + i);
                values[value_place(product, s)] = sum;
            }
        }
        add_kernels(values, w->dweight + ((o + i) * w->tiles.shape.in + c) * TAPS, w->tiles.shape.in * TAPS,
                    w->tiles.shape.out - o - i);
    }
}

void VT_KERNEL(vt_tiled_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                         float *dweight)
{
    weight_work w = {.tiles = tiling_of(shape), .x = x, .dy = dy, .dweight = dweight, .block = BLOCK};
    w.channels = smaller(LANES, shape->in);
    w.in_group = smaller(SUBLATTICES, COLUMN_STRIDE / w.channels);
    w.groups = pieces(SUBLATTICES, w.in_group);
    w.rows = SUBLATTICES * w.channels;
    w.x_blocks = pieces(shape->in, w.channels);
    w.y_blocks = pieces(shape->out, BLOCK);
    /* few blocks: the tiles are divided, too, by the shape alone */
    const int64_t blocks = w.x_blocks * w.y_blocks, most = pieces(w.tiles.count, 4 * BLOCK_TILES);
    w.parts = smaller(smaller(most, MOST_PARTS), pieces(2 * MOST_PARTS, blocks));
    const int64_t at_once = smaller(blocks, 2 * vt_cpu_threads(backend));
    const int64_t own = 3 * w.parts * sums_of_plane(&w);
    const int64_t packed = PLANE * BLOCK_TILES * (w.groups * COLUMN_STRIDE + BLOCK);
    float *sums = vt_cpu_shared(backend, (size_t)(at_once * own) * sizeof *sums);
    if (sums == NULL || !vt_cpu_scratch_reserve(backend, (size_t)packed * sizeof *sums)) return;
    for (int64_t block = 0; block < blocks; block += at_once) {
        const int64_t now = smaller(at_once, blocks - block);
#pragma omp parallel for schedule(dynamic, 1)
        for (int64_t item = 0; item < now * 3 * w.parts; item++) {
            const int64_t b = block + item / (3 * w.parts), part = item % w.parts;
            add_part(&w, part, (int)(item / w.parts % 3), b / w.y_blocks, b % w.y_blocks, vt_cpu_scratch(backend),
                     sums + item * sums_of_plane(&w));
        }
#pragma omp parallel for collapse(2) schedule(static)
        for (int64_t b = 0; b < now; b++)
            for (int64_t channel = 0; channel < w.channels; channel++)
                add_channel(&w, sums + b * own, (block + b) / w.y_blocks, (block + b) % w.y_blocks, channel);
    }
}
