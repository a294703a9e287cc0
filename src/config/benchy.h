/* The configuration of --enable_benchy: the YAML file of NERSC's benchy that BENCHY_CONFIG_FILE names. */
#ifndef VT_CONFIG_BENCHY_H
#define VT_CONFIG_BENCHY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { VT_BENCHY_IO, VT_BENCHY_SYNTHETIC, VT_BENCHY_FULL, VT_BENCHY_TESTS };
typedef enum { VT_BENCHY_PROFILE_SINGLE, VT_BENCHY_PROFILE_ALL, VT_BENCHY_PROFILE_NONE } vt_benchy_profile;

/* benchy's words, in the order of the enumerators. */
#define VT_BENCHY_PROFILES "single|all|none"

typedef struct {
    bool runs;
    int64_t batches, trials, warmups; /* batches of a trial; trials that count, and before them that don't */
} vt_benchy_test;

typedef struct {
    int64_t report_every; /* batches between lines of the log */
    bool trains_on;       /* the run goes on behind the tests, and trains */
    vt_benchy_profile profile;
    char *directory, *file; /* of the JSON; NULL: not said */
    vt_benchy_test tests[VT_BENCHY_TESTS];
} vt_benchy_settings;

/* benchy's defaults, and what the file says instead; path NULL: the defaults alone. Errors, with line and column: no
 * such file, a key that benchy doesn't have, a value that is none. To be closed also after an error. */
vt_status vt_benchy_settings_open(const char *path, vt_benchy_settings *settings);
void vt_benchy_settings_close(vt_benchy_settings *settings);

#endif
