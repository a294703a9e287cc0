/* One rank, for tests of a registry or a model without a trainer. */
#ifndef VT_TESTS_ALONE_H
#define VT_TESTS_ALONE_H

#include "parallel/region.h"
#include "test.h"

typedef struct {
    vt_config *config;
    vt_world *world;
    vt_parallel *parallel;
} alone;

static inline alone open_alone(vt_backend *backend, int64_t tokens)
{
    alone a = {0};
    const vt_launch launch = {.world_size = 1, .local_size = 1};
    EXPECT_OK(vt_config_open_default(&a.config));
    EXPECT_OK(vt_world_open(a.config, &launch, &a.world));
    EXPECT_OK(vt_parallel_open(a.config, a.world, backend, tokens, &a.parallel));
    return a;
}

static inline void alone_close(alone *a)
{
    vt_parallel_close(&a->parallel);
    vt_world_close(&a->world, false);
    vt_config_close(&a->config);
}

#endif
