/* A back end over another one for tests whose operands lie in the host's memory, anywhere: each operation gets copies
 * of them in the other back end's own memory, at addresses as (un)aligned as theirs, with guard bytes on both sides of
 * each block, and brings the results back. So the tests of the operations run unchanged on a GPU. */
#ifndef VT_TESTS_OPERATIONS_MIRROR_H
#define VT_TESTS_OPERATIONS_MIRROR_H

#include "backend/backend.h"

/* Takes `inner`, which is closed with it. Its `check` fails when an operation wrote outside of its operands, or into
 * one that it may only read. VITRAIN_TEST_EXACT in the environment: no guard bytes behind a block, so that
 * compute-sanitizer sees an access there. */
vt_status open_mirror(vt_backend *inner, vt_backend **backend);
vt_backend *mirror_inner(vt_backend *backend);

#endif
