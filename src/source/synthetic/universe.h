/* A synthetic universe: boxes of dark matter and gas, of which the gas follows from the dark matter, so that a model
 * can learn it. Zel'dovich's approximation (1970) moves particles from a grid; gas is what they carry, smoothed, and
 * hot where it runs together. shared/spec/unet3d.md, §11, has the formulas; docs/unet3d.md tells users. */
#ifndef VT_SOURCE_SYNTHETIC_UNIVERSE_H
#define VT_SOURCE_SYNTHETIC_UNIVERSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { VT_UNIVERSE_NBODY = 4, VT_UNIVERSE_HYDRO = 5 };

typedef struct {
    const char *directory;
    int64_t box_size[2]; /* sides of the training and the validation box in points, even */
    uint64_t seed;
    int64_t tile;                                                   /* copies of the box along each axis of the file */
    bool npy;                                                       /* writes the .npy files as well */
    bool force;                                                     /* replaces files that are there */
    void (*report)(const char *path, double bytes, double seconds); /* after each file */
} vt_universe_options;

/* Bytes of memory that making a box of `side` points takes. */
double vt_universe_bytes(int64_t side);

/* Fields of one box, as the files have them: nbody [4, side³], hydro [5, side³], malloc'd. `training_side`: of the box
 * that sets the scales of both. box 0: training, 1: validation. */
void vt_universe_make(int64_t side, int64_t training_side, uint64_t seed, int box, float **nbody, float **hydro);

/* Writes train.h5 and valid.h5, and their .npy files. */
vt_status vt_universe_write(const vt_universe_options *options);

#endif
