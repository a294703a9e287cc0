/* A model on one rank without a trainer: tests run it, or train it, by hand. */
#ifndef VT_TESTS_BARE_MODEL_H
#define VT_TESTS_BARE_MODEL_H

#include "alone.h"
#include "model/model.h"
#include "optimizer/optimizer.h"

typedef struct {
    vt_backend *backend;
    alone rank;
    vt_parameters *parameters;
    vt_model *model;
    vt_optimizer *optimizer; /* of one that is trained, as are those below */
    vt_saved *saved;
    vt_arena arena;
    vt_pass pass;
} bare_model;

/* Over its back end, with parameters that have no values yet. */
static inline void open_bare_model(bare_model *m, const vt_config *config, vt_type type)
{
    const vt_parameters_storage storage = {.bucket_bytes = 1 << 25, .shards = 1, .grain = 16};
    EXPECT_OK(vt_model_check(config, m->backend));
    EXPECT_OK(vt_parameters_open(m->backend, m->rank.parallel, &m->parameters));
    EXPECT_OK(vt_model_open(config, m->parameters, &m->model));
    EXPECT_OK(vt_parameters_allocate(m->parameters, type, &storage));
}

/* What training takes besides, in micro-batches of `batch` samples. */
static inline void open_bare_training(bare_model *m, const vt_config *config, vt_type type, int64_t batch,
                                      size_t arena_bytes)
{
    EXPECT_OK(vt_optimizer_open(config, m->backend, m->parameters, &m->optimizer));
    vt_saved_open(m->model, m->parameters->units, &m->saved);
    EXPECT_OK(vt_arena_open(m->backend, arena_bytes, &m->arena));
    m->pass = (vt_pass){.backend = m->backend,
                        .arena = &m->arena,
                        .parallel = m->rank.parallel,
                        .batch = batch,
                        .type = type,
                        .training = true,
                        .has_backward = true,
                        .head = m->model->head};
}

static inline void bare_model_close(bare_model *m)
{
    vt_offload_close(&m->pass.offload);
    vt_arena_close(&m->arena);
    vt_saved_close(&m->saved);
    vt_optimizer_close(&m->optimizer);
    vt_model_close(&m->model);
    vt_parameters_close(&m->parameters);
    alone_close(&m->rank);
    vt_backend_close(&m->backend);
}

#endif
