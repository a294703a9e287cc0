/* A data directory of synthetic atmosphere: train/2001.h5, …, then one year each for valid/ and test/, and stats/. */
#ifndef VT_SOURCE_SYNTHETIC_SYNTHETIC_SET_H
#define VT_SOURCE_SYNTHETIC_SYNTHETIC_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { VT_SYNTHETIC_FIRST_YEAR = 2001 };

typedef struct {
    const char *directory;
    int64_t height, width, channels;
    int64_t years;                   /* of training */
    int64_t steps_per_year;          /* 1460: 6-hourly, 365 days */
    int64_t valid_steps, test_steps; /* from the first of January of the years that follow; 0: none */
    uint64_t seed;
    double noise;
    int64_t chunk_times, compression;                                              /* as in vt_fields_writer_options */
    bool force;                                                                    /* replace files that are there */
    void (*report)(const char *path, int64_t steps, double bytes, double seconds); /* after each file; may be NULL */
} vt_synthetic_set_options;

/* Errors: a file that is there already (without force), a *YYYY.h5 that would become part of the set (also with
 * force), no permission, a full disk. A file has its name only when it is complete; the statistics, of the training
 * years, come last. */
vt_status vt_synthetic_set_write(const vt_synthetic_set_options *options);

#endif
