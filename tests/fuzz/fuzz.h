/* Shared by the fuzz targets. Each target is a file tests/fuzz/NAME.c with LLVMFuzzerTestOneInput, and starts from
 * tests/fuzz/corpus/NAME; `make fuzz` runs all of them under AddressSanitizer and UBSan. */
#ifndef VT_TESTS_FUZZ_H
#define VT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "test.h" /* SCOPED */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A directory for this process, made at the first call and removed at the end. */
const char *vt_fuzz_directory(void);

/* The file `name` in it, with this content; the path is malloc'd. */
char *vt_fuzz_write(const char *name, const void *data, size_t size);

#endif
